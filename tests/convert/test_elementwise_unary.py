"""Functions of one operand against torch in float64: tiny, large, special and integer operands, at every target."""

import numpy as np
import pytest
import torch
from convert.dialects import PRECISIONS, TARGETS, converted, exact_values, programs

from coreproof.runtime import load

INF, NAN = float("inf"), float("nan")
NEAR = [0.0, 1e-30, -1e-30, 1e-6, -1e-6, 1e-3, -1e-3, 0.1, -0.1, 0.5, -0.5, 0.999, -0.999]
WIDE = [*NEAR, 1.0, -1.0, 1.001, 1.5, 2.0, -2.0, 7.0, -7.0, 17.5, -17.5, 80.0, -80.0, 1e5, 1e20, INF, -INF, NAN]
INTEGERS = torch.tensor([0, 1, 2, 5, -1, -3], dtype=torch.int32)

FUNCTIONS = [
    "acos", "acosh", "asin", "asinh", "atan", "cos", "cosh", "erf", "exp", "exp2", "expm1", "log", "log10", "log1p",
    "log2", "reciprocal", "rsqrt", "sigmoid", "sin", "sinh", "sqrt", "tan", "tanh", "trunc",
]  # fmt: skip


def check(got, wanted, ulps=8):
    """Within `ulps` float32 roundings (2**-23 relative) of float64's value; inf, NaN and its sign of zero agree."""
    wanted32 = wanted.float().numpy()
    with np.errstate(over="ignore", invalid="ignore"):
        error = np.abs(got.astype(np.float64) - wanted.numpy())
    near = error <= ulps * 2.0**-23 * np.abs(wanted.numpy()) + 1e-45
    same = (got == wanted32) | (np.isnan(got) & np.isnan(wanted32))
    assert (near | same).all(), (got[~(near | same)], wanted32[~(near | same)])


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("target", [TARGETS[0], TARGETS[-1]], ids=lambda t: t.name)
def test_functions_of_floats(name, target):
    x = torch.tensor(WIDE)
    if name in ("sin", "cos", "tan", "exp", "exp2", "sinh", "cosh", "tanh", "erf", "sigmoid"):
        x = x[(x.abs() < 1e4) | ~x.isfinite()]  # one float32 step of a large angle is a whole turn
    function = getattr(torch, name)
    for (got,) in exact_values(lambda v: function(v), (x,), target):
        check(got, function(x.double()), ulps=64 if name in ("sinh", "cosh", "exp", "exp2") else 8)


@pytest.mark.parametrize("name", [name for name in FUNCTIONS if name != "trunc"])
def test_functions_of_integers_and_bools_are_floats(name):
    function = getattr(torch, name)
    for x in (INTEGERS, torch.tensor([True, False])):
        for (got,) in exact_values(lambda v: function(v), (x,), TARGETS[-1]):
            assert got.dtype == np.float32
            check(got, function(x.double()), ulps=64)


@pytest.mark.parametrize("name", ["log1p", "expm1", "asinh"])
def test_a_tiny_operand_is_its_own_value(name):
    x = torch.tensor([1e-30, -1e-30, 1e-10, -1e-10])
    for (got,) in exact_values(lambda v: getattr(torch, name)(v), (x,), TARGETS[-1]):
        np.testing.assert_allclose(got, x.numpy(), rtol=2.0**-22)


@pytest.mark.parametrize("dim", [0, 1, -1])
def test_log_softmax_far_from_zero(dim):
    x = torch.tensor([[0.0, -200.0, 3.0], [500.0, 500.0, -1e4], [1e-3, 0.0, -INF]])
    for (got,) in exact_values(lambda v: torch.log_softmax(v, dim), (x,), TARGETS[0]):
        check(got, torch.log_softmax(x.double(), dim), ulps=16)


def test_log_softmax_in_declared_float16_is_finite():
    x = torch.tensor([[0.0, -30.0, 12.0], [60.0, -60.0, 0.0]])
    for program in programs(lambda v: torch.log_softmax(v, -1), (x,)).values():
        model = load(converted(program, TARGETS[-1], PRECISIONS[0]))
        (name,) = (value.name for value in model.function().inputs)
        (got,) = model.predict({name: x.numpy().astype(np.float16)}).values()
        # float16: four roundings of 2**-11 relative to at most 120
        np.testing.assert_allclose(got, torch.log_softmax(x, -1).numpy(), atol=4 * 120 * 2.0**-11)


@pytest.mark.parametrize("function", [
    lambda x: torch.log_softmax(x, 1, dtype=torch.float32),
    lambda x: torch.nn.functional.logsigmoid(x),
    lambda x: torch.logsumexp(x, 1),
    lambda x: torch.nn.functional.softplus(x),
])  # fmt: skip
def test_sums_of_exponentials(function):
    x = torch.tensor([[-200.0, -90.0, 0.0], [90.0, 1e-3, 200.0]])
    for (got,) in exact_values(function, (x,), TARGETS[-1]):
        # softplus and the like pass through 1 + exp: half a float32 step at 1 may be lost, 2**-24
        np.testing.assert_allclose(got, function(x.double()).float().numpy(), rtol=1e-6, atol=2.0**-23)
