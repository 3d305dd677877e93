from __future__ import annotations

import functools

import numpy as np
import pytest
import torch
from convert.dialects import PRECISIONS, TARGETS, assert_same, converted, programs, run
from torch.export import Dim

from coreproof.convert.program import to_mil

INF = float("inf")
X = torch.tensor([[-2.5, 0.0, 3.5], [INF, -INF, 0.5]])
Y = torch.tensor([[2.0, -3.0, -2.0], [0.5, 4.0, -0.25]])
FLAGS = torch.tensor([[True, False, True], [False, False, True]])
INTS = torch.tensor([[-7, 7, -8], [7, 5, -(2**31)]])
DIVISORS = torch.tensor([[2, -2, -2], [3, -1, 7]])
BYTES = torch.tensor([0, 1, 200, 255], dtype=torch.uint8)
SIGNED = torch.tensor([-128, 0, 127], dtype=torch.int8)


def casts(x: torch.Tensor, i: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return (
        x[:1].to(torch.int64),
        x.half(),
        x.bool(),
        x.double(),
        i.float(),
        i.bool(),
        (x > 0).float(),
        (x > 0).long(),
        i.to(torch.int32),
        x.to(torch.float32) * 1,
    )


def constants(x: torch.Tensor, u: torch.Tensor, s: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return (
        u.float(),
        u.long(),
        u.half(),
        u.bool(),
        s.float(),
        s.int(),
        s.bool(),
        s.double() + x[0, 0],
        x[0, 0] * u.float(),
    )


def bounds(x: torch.Tensor, i: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return (
        i.clamp(0),
        i.clamp(max=3),
        i.clamp(-3, 3),
        i[:1].clamp(0.5, 2.0),
        x.clamp(min=0),
        x.clamp(max=1),
        x.clamp(-1, 1),
        x.clamp(5, -5),
        torch.clamp_min(x, 0),
        torch.clamp_max(x, 1),
        torch.clamp(x, max=x.flip(0)),
        x.half().clamp(-1, 1.5),
        torch.maximum(x, i),
        torch.minimum(x.half(), x),
    )


def quotients(x: torch.Tensor, y: torch.Tensor, i: torch.Tensor, j: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return (
        x / y,
        torch.div(x, y, rounding_mode="trunc"),
        torch.div(x[:1], y[:1], rounding_mode="floor"),
        torch.div(i, j, rounding_mode="floor"),
        torch.div(i, j, rounding_mode="trunc"),
        torch.div(i, 2, rounding_mode="trunc"),
        i / j,
        i // j,
        x / j,
        x.half() / 2,
        x[:1] // 2,
        # A node named `floor` must not be taken for the rounding mode of that name.
        torch.div(torch.floor(y), j, rounding_mode="floor"),
    )


def choices(x: torch.Tensor, i: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return (
        torch.where(b, x, 0.0),
        torch.where(b, 1.0, 0.0),
        torch.where(b, 2, i),
        torch.where(b, i, x),
        torch.where(b, x.half(), x),
        torch.where(b[:, :1], x[:1], 1.0),
        torch.where(b, x > 0, False),
    )


def dynamic(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    b = x > 0
    return (
        torch.where(b, x, 0.0),
        torch.where(b, 1.0, 0.0),
        torch.where(b, 2, x.long()),
        torch.where(b, x.amax(), x),
        torch.where(b, x.amax(), -INF),
        torch.where(b, x[:, :1], 1.0),
        torch.where(b, True, x > -1),
        x.new_zeros(x.shape[0] // 2, 2),
    )


CASES = {
    "casts": (casts, (X, INTS), ()),
    "constants": (constants, (X,), (BYTES, SIGNED)),
    "bounds": (bounds, (X, INTS), ()),
    "quotients": (quotients, (X, Y, INTS, DIVISORS), ()),
    "choices": (choices, (X, INTS, FLAGS), ()),
}

pytestmark = pytest.mark.parametrize("dialect", ["aten", "edge"])


@functools.cache
def exported(case):
    if case == "bytes":
        return programs(lambda x, u: x + u.float(), (torch.zeros(4),), (BYTES,))
    if isinstance(case, torch.dtype):
        return programs(lambda x: x[:1].to(case), (X,))
    return programs(*CASES[case])


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("case", CASES)
def test_values_and_dtypes_are_torchs(case, target, dialect):
    function, inputs, buffers = CASES[case]
    assert_same(run(exported(case)[dialect], inputs, target), function(*inputs, *buffers), rtol=1e-6)


@functools.cache
def exported_dynamic():
    return programs(dynamic, (torch.randn(5, 3),), dynamic=({0: Dim("n", min=4, max=50)},))


@pytest.mark.parametrize("target", TARGETS)
def test_a_choice_of_a_dynamic_size(target, dialect):
    x = torch.randn(7, 3)
    assert_same(run(exported_dynamic()[dialect], (x,), target), dynamic(x))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("precision", PRECISIONS)
def test_a_cast_of_a_small_integer_constant_becomes_a_constant(target, dialect, precision):
    mil = converted(exported("bytes")[dialect], target, precision)
    half = precision == PRECISIONS[0] and target >= TARGETS[1]
    (result,) = run(mil, (torch.zeros(4, dtype=torch.float16 if half else torch.float32),), target)
    assert result.tolist() == [0, 1, 200, 255]
    dtypes = {np.asarray(op.outputs[0].val).dtype for op in mil.functions["main"].operations if op.op_type == "const"}
    assert not dtypes & {np.dtype(np.uint8), np.dtype(np.int8)}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", [torch.uint8, torch.int16])
def test_a_cast_to_a_small_integer_is_refused(target, dialect, dtype):
    with pytest.raises(NotImplementedError, match=str(dtype)):
        to_mil(exported(dtype)[dialect], target)
