"""Ops in every form that torch has for them, held against torch: factors, divisors, signs, ties, padding, diagonals."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from convert.dialects import TARGETS, exact_values

INF, NAN = float("inf"), float("nan")
X = torch.tensor([[-2.5, 0.0, 3.5, 1.0], [0.25, -0.75, 0.5, 8.0], [6.0, -1.5, 2.0, -4.0]])
Y = torch.tensor([[2.0, -3.0, -2.0, 1.0], [0.5, 4.0, -0.25, 2.0], [1.0, 1.0, -8.0, 16.0]])
INTS = torch.tensor([[-7, 7, -8, 0], [7, 5, -3, 1], [70000, -70000, 2, 9]], dtype=torch.int32)
DIVISORS = torch.tensor([[2, -2, -2, 5], [3, -1, 7, -4], [3, 3, 1, -9]], dtype=torch.int32)
B = X > 0
IMAGE = torch.arange(2 * 3 * 7 * 5, dtype=torch.float32).reshape(2, 3, 7, 5).sin()
SIGNED = torch.tensor([0.0, -0.0, 1.0, -1.0, 2.5, -2.5, INF, -INF])

FORMS = {
    "add alpha": (lambda x, y: (torch.add(x, y, alpha=2), torch.add(x, 1, alpha=3)), (X, Y)),
    "add ints": (lambda i, d: (torch.add(i, d, alpha=-2), i + 1, i + 0.5), (INTS, DIVISORS)),
    "add bools": (lambda b: (b + b.logical_not(), b + 1, b + 1.5), (B,)),
    "sub alpha": (lambda x, y: (torch.sub(x, y, alpha=0.5), torch.sub(x, 2, alpha=2), 1 - x), (X, Y)),
    "rsub": (lambda x, i: (torch.rsub(x, 1, alpha=3), torch.rsub(i, 1, alpha=3), torch.rsub(x, x, alpha=2)), (X, INTS)),
    "floor": (lambda x, y: (
        torch.div(x, y, rounding_mode="floor"), x // 2, torch.div(x, 0.25, rounding_mode="floor")), (X, Y)),
    "floor ints": (lambda i, d: (i // d, i // 3, torch.div(i, d, rounding_mode="floor")), (INTS, DIVISORS)),
    "trunc": (lambda i, d: (torch.div(i, d, rounding_mode="trunc"), torch.fmod(i, 3)), (INTS, DIVISORS)),
    "fmod": (lambda i, d: torch.fmod(i, d), (INTS, DIVISORS)),
    "shift": (lambda i: (i << 3, i >> 2, i >> 0), (INTS[:2],)),
    "pow": (lambda x: (2**x, x**2, 3**x, x**3, x.abs() ** 0.5, x**-1), (X[1:],)),
    "round": (lambda x: (torch.round(x, decimals=1), torch.round(x * 100, decimals=-1)), (X,)),
    "relu": (lambda i, x: (i.relu(), x.relu()), (INTS, X)),
    "addmm": (lambda x, y: (
        torch.addmm(x[:, :3], x, y.t(), beta=2, alpha=0.5), torch.addmm(x[:, :3], x, y.t(), beta=0)), (X, Y)),
    "baddbmm": (lambda x, y: torch.baddbmm(x[None, :, :3], x[None], y.t()[None], beta=3, alpha=2), (X, Y)),
    "argmax": (lambda x: (x.argmax(), x.argmin(keepdim=True), x.argmax(0), x.argmin(1, keepdim=True)), (X,)),
    "argmax of ints": (lambda i: (i.argmax(), i.argmin(1)), (INTS,)),
    "diagonal": (lambda x: (x.diagonal(), x.diagonal(1), x.diagonal(-2), x.diagonal(0, 1, 0)), (X,)),
    "diagonal of more": (lambda x: (x.diagonal(0, 2, 3), x.diagonal(-1, -1, 0), x.diagonal(2, 1, 2)), (IMAGE,)),
    "median": (lambda x: (x.median(), x.median(1).values, x.median(0, keepdim=True).values), (X,)),
    "median of ints": (lambda i: (i.median(), i.median(1).values), (INTS,)),
    "sort": (lambda x, b: (x.sort(1).values, x.sort(0, descending=True).values, b.sort(1).values), (X, B)),
    "var_mean": (lambda x: (
        *torch.var_mean(x), *torch.var_mean(x, 1, keepdim=True), *torch.var_mean(x, (0, 1), correction=0)), (X,)),
    "pad": (lambda x: (
        F.pad(x, (1, 2)), F.pad(x, (-1, 2), value=3.0), F.pad(x, (-1, -1, 2, -1)), F.pad(x, (0, -2))), (IMAGE,)),
    "pad ints and bools": (lambda i, b: (F.pad(i, (1, -1), value=-5), F.pad(b, (2, 1), value=True)), (INTS, B)),
    "average pools": (lambda x: (
        F.avg_pool2d(x, 3, divisor_override=4), F.avg_pool2d(x, 2, 1, 1, divisor_override=3), F.avg_pool2d(x, 2),
        F.avg_pool2d(x, (3, 2), 2, 1, ceil_mode=True), F.avg_pool2d(x, 3, 2, 1, count_include_pad=False)), (IMAGE,)),
    "average pools of one dimension": (lambda x: (F.avg_pool1d(x, 2), F.avg_pool1d(x, 3, 2, 1)), (IMAGE[0],)),
    "atan2": (lambda y, x: torch.atan2(y, x), (SIGNED.repeat_interleave(8), SIGNED.repeat(8))),
}  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("target", [TARGETS[0], TARGETS[-1]], ids=lambda t: t.name)
def test_forms(form, target):
    function, inputs = FORMS[form]
    wanted = function(*inputs)
    wanted = wanted if isinstance(wanted, tuple) else (wanted,)
    for got in exact_values(function, inputs, target):
        assert len(got) == len(wanted)
        for one, want in zip(got, wanted, strict=True):
            assert one.shape == tuple(want.shape)
            # float32: a few roundings of 2**-24 relative, composed in another order; integers are exact
            np.testing.assert_allclose(one, want.numpy(), rtol=2e-6 if want.is_floating_point() else 0, atol=1e-6)


@pytest.mark.parametrize("x", [torch.tensor([1.0, NAN, 3.0]), torch.tensor([[NAN, 1.0], [2.0, 0.0]])])
def test_the_median_of_nan_is_nan(x):
    for got, _ in exact_values(lambda v: tuple(v.median(-1)), (x,), TARGETS[-1]):
        np.testing.assert_array_equal(got, x.median(-1).values.numpy())


def test_beta_zero_hides_what_is_not_finite():
    first = torch.full((3, 3), NAN)
    for (got,) in exact_values(lambda f, x: torch.addmm(f, x, x.t(), beta=0), (first, X), TARGETS[-1]):
        np.testing.assert_allclose(got, (X @ X.t()).numpy(), rtol=1e-6)


def test_a_quotient_too_small_for_a_float_is_rounded_down():
    x, y = torch.tensor([-1.0, 1.0, -1e-38, 0.0]), torch.tensor([INF, INF, 1e38, -INF])
    for (got,) in exact_values(lambda a, b: torch.div(a, b, rounding_mode="floor"), (x, y), TARGETS[-1]):
        assert got.tolist() == torch.div(x, y, rounding_mode="floor").tolist() == [-1.0, 0.0, -1.0, 0.0]
