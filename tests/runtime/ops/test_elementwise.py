"""Arithmetic, logic and casts: integer extremes, halves, infinities, broadcasting."""

import math

import coremltools as ct
import numpy as np
import pytest
import torch
from coremltools.converters.mil.mil import Builder as mb
from op_run import run

from coreproof.errors import ModelError
from coreproof.runtime import load

INF, NAN = float("inf"), float("nan")
LEAST = -(2**31)


def ints(*values):
    return torch.tensor(values, dtype=torch.int32)


def floats(*values):
    return torch.tensor(values, dtype=torch.float32)


@pytest.mark.parametrize(
    "op, function",
    [
        ("acos", math.acos), ("asin", math.asin), ("atan", math.atan), ("atanh", math.atanh), ("cos", math.cos),
        ("cosh", math.cosh), ("erf", math.erf), ("exp", math.exp), ("exp2", lambda x: 2.0**x), ("sin", math.sin),
        ("sinh", math.sinh), ("tan", math.tan), ("tanh", math.tanh), ("abs", abs), ("square", lambda x: x * x),
    ],
)  # fmt: skip
def test_functions_of_one_operand(op, function):
    x = floats(-0.875, -0.25, 0.0, 0.5, 0.75)
    expected = torch.tensor([function(v) for v in x.tolist()], dtype=torch.float64)
    # A float32 result within 4 units in the last place.
    torch.testing.assert_close(run(op, x=x).double(), expected, rtol=2.0**-22, atol=2.0**-25)
    assert run(op, x=x[3].clone()).shape == () and run(op, x=x[:0]).shape == (0,)


@pytest.mark.parametrize(
    "op, expected",
    [
        ("round", [-2, -2, 0, 0, 2, 2]),
        ("floor", [-3, -2, -1, 0, 1, 2]),
        ("ceil", [-2, -1, 0, 1, 2, 3]),
        ("sign", [-1, -1, -1, 1, 1, 1]),
    ],
)
def test_halves(op, expected):
    assert run(op, x=floats(-2.5, -1.5, -0.5, 0.5, 1.5, 2.5)).tolist() == expected


def test_roots_and_logarithms_at_the_ends():
    assert run("sqrt", x=floats(0, 4, INF)).tolist() == [0, 2, INF] and run("sqrt", x=floats(-1)).isnan().all()
    assert run("log", x=floats(0), epsilon=0.0).tolist() == [-INF]
    assert run("log", x=floats(1), epsilon=1.0).item() == pytest.approx(math.log(2))
    assert run("rsqrt", x=floats(3), epsilon=1.0).tolist() == [0.5]
    assert run("inverse", x=floats(1.5, -2.5), epsilon=0.5).tolist() == [0.5, -0.5]  # added, whatever the sign
    assert run("exp2", x=ints(0, 3, 10)).tolist() == [1, 8, 1024]


@pytest.mark.parametrize("op, expected", [("floor_div", -(2**31)), ("real_div", -(2**31)), ("mod", 0)])
def test_the_least_integer_by_minus_one_wraps(op, expected):
    # The processor traps on this division, which would end the whole process and not only fail.
    assert run(op, x=ints(LEAST), y=ints(-1)).tolist() == [expected]


def test_integers_by_minus_one_and_by_zero():
    x = ints(7, -7, 0)
    assert run("floor_div", x=x, y=ints(-1)).tolist() == [-7, 7, 0]
    assert run("mod", x=x, y=ints(-1)).tolist() == [0, 0, 0]
    assert run("floor_div", x=x, y=ints(0)).tolist() == [0, 0, 0]
    assert run("floor_div", x=x, y=ints(2)).dtype == torch.int32


def test_floats_divide_with_infinity_and_sign():
    assert run("real_div", x=floats(1, -1), y=floats(0, 0)).tolist() == [INF, -INF]
    assert run("mod", x=floats(5.5, -5.5, 5.5), y=floats(2, 2, -2)).tolist() == [1.5, 0.5, -0.5]
    assert run("floor_div", x=floats(-5.5, 5.5), y=floats(2, 2)).tolist() == [-3, 2]


def test_arithmetic_wraps_and_keeps_large_integers():
    top = 2**31 - 1
    assert run("add", x=ints(top), y=ints(1)).tolist() == [LEAST]
    assert run("sub", x=ints(2**24 + 1), y=ints(0)).tolist() == [2**24 + 1]
    assert run("mul", x=ints(2**16), y=ints(2**16)).tolist() == [0]
    assert run("pow", x=ints(3, -2), y=ints(19, 31)).tolist() == [3**19, LEAST]
    assert run("pow", x=ints(2, 1, -1), y=ints(-1, -5, -3)).tolist() == [0, 1, -1]


@pytest.mark.parametrize(
    "op, expected",
    [
        ("equal", [0, 1, 0, 0]), ("not_equal", [1, 0, 1, 1]), ("greater", [0, 0, 1, 0]), ("less", [1, 0, 0, 0]),
        ("greater_equal", [0, 1, 1, 0]), ("less_equal", [1, 1, 0, 0]),
    ],
)  # fmt: skip
def test_comparisons_give_bools_and_nan_is_unordered(op, expected):
    got = run(op, x=floats(1, 2, 3, NAN), y=floats(2, 2, 2, NAN))
    assert got.dtype == torch.bool and got.int().tolist() == expected
    assert run(op, x=ints(2**24 + 1), y=ints(2**24)).tolist() == [op in ("not_equal", "greater", "greater_equal")]


def test_logic():
    x, y = torch.tensor([[True], [False]]), torch.tensor([True, False])
    assert run("logical_and", x=x, y=y).tolist() == [[True, False], [False, False]]
    assert run("logical_or", x=x, y=y).tolist() == [[True, True], [True, False]]
    assert run("logical_xor", x=x, y=y).tolist() == [[False, True], [True, False]]
    assert run("logical_not", x=y).tolist() == [False, True]


def test_greater_and_smaller_keep_nan_and_bounds_hold():
    assert run("maximum", x=floats(1, NAN), y=floats(2, 0))[0] == 2 and run("maximum", x=NAN, y=1.0).isnan()
    assert run("minimum", x=ints(1, -5), y=ints(0, 3)).tolist() == [0, -5]
    x = floats(-INF, -1.5, 0.25, 9)
    assert run("clip", x=x, alpha=-1.0, beta=0.5).tolist() == [-1, -1, 0.25, 0.5]
    assert run("clip", "CoreML5", x=x, alpha=1.0, beta=-1.0).tolist() == [-1] * 4  # the upper bound is applied last
    assert run("threshold", x=ints(-3, 4), alpha=ints(2)[0]).tolist() == [2, 4]
    assert run("select", cond=x > 0, a=x, b=floats(7)).tolist() == [7, 7, 0.25, 9]


@pytest.mark.parametrize("dtype, bits", [("int8", 8), ("uint8", 8), ("int16", 16), ("uint16", 16), ("int32", 32)])
def test_casts_saturate_floats_and_wrap_integers(dtype, bits):
    signed = dtype.startswith("int")
    low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1)
    got = run("cast", x=floats(-1e20, -0.9, 3.99, 1e20, NAN), dtype=dtype)
    assert got.tolist() == [low, 0, 3, high, 0]
    values = [-1, 70000, 200, LEAST]
    kind = {"int8": np.int8, "uint8": np.uint8, "int16": np.int16, "uint16": np.uint16, "int32": np.int32}[dtype]
    assert run("cast", x=ints(*values), dtype=dtype).tolist() == np.array(values, np.int64).astype(kind).tolist()
    assert run("cast", x=torch.tensor([True, False]), dtype=dtype).tolist() == [1, 0]


def test_casts_to_floats_and_bools_and_to_nothing():
    assert run("cast", x=ints(3, -4), dtype="fp16").dtype == torch.float32
    assert run("cast", x=floats(0.0, -0.0, 1e-30, NAN), dtype="bool").tolist() == [False, False, True, True]
    with pytest.raises(ValueError, match="cannot cast"):
        run("cast", x=ints(1), dtype="string")


def test_broadcasts_beyond_memory_are_refused():
    with pytest.raises(ModelError, match="GiB"):
        run("add", x=torch.zeros(1, 1).expand(2**20, 1), y=torch.zeros(1, 1).expand(1, 2**30))


def test_a_program_rounds_half_results_and_narrows_integers():
    @mb.program(
        input_specs=[mb.TensorSpec(shape=(2,)), mb.TensorSpec(shape=(2,), dtype=ct.converters.mil.mil.types.int32)],
        opset_version=ct.target.iOS17,
    )
    def program(x, i):
        half = mb.cast(x=x, dtype="fp16")
        return mb.cast(x=mb.mul(x=half, y=np.float16(3)), dtype="fp32"), mb.mod(x=i, y=np.int32(-4))

    x = np.float32([0.1, 2049])
    scaled, rest = load(program).predict({"x": x, "i": np.int32([7, -7])}).values()
    assert scaled.tolist() == (x.astype(np.float16) * np.float16(3)).astype(np.float32).tolist()
    assert rest.tolist() == [-1, -3] and rest.dtype == np.int32
