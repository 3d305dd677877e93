from __future__ import annotations

import functools

import numpy as np
import pytest
import torch
from convert.dialects import PRECISIONS, TARGETS, assert_same, converted, programs, run
from coremltools.converters.mil.mil import types
from torch.export import Dim

from coreproof.convert.program import to_mil

X = torch.tensor([[-2.5, 0.0, 3.5], [7.0, -1.0, 0.5]])
ROWS = torch.randn(5, 3)
N = Dim("n", min=5, max=50)

pytestmark = [pytest.mark.parametrize("dialect", ["aten", "edge"]), pytest.mark.parametrize("target", TARGETS)]


def static(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return (
        torch.full((1, 16), 4099),
        torch.full((2,), 2.5),
        torch.full((2,), True),
        torch.full((2, 1), -(2**31)),
        torch.full((3,), 2.75, dtype=torch.int64),
        torch.zeros(2, 3, dtype=torch.int64),
        torch.zeros(2),
        torch.ones(3, dtype=torch.bool),
        torch.ones(2, dtype=torch.float64),
        x.new_zeros(4, dtype=torch.int32),
        x.new_ones(2),
        x.new_full((3,), -7, dtype=torch.int64),
        torch.zeros_like(x > 0, dtype=torch.float),
        torch.zeros_like(x > 0),
        torch.ones_like(x, dtype=torch.bool),
        torch.ones_like(x.long()),
        torch.full_like(x, float("-inf")),
        torch.full_like(x, -3.75, dtype=torch.int64),
        torch.full_like(x > 0, 2.5, dtype=torch.float16),
        torch.fill(x, 3),
        torch.fill(x.long(), -5),
        torch.fill(x > 0, 1),
        torch.scalar_tensor(3),
        torch.scalar_tensor(2.5, dtype=torch.float16),
        torch.scalar_tensor(True, dtype=torch.bool),
        torch.arange(5),
        torch.arange(1, 5.5),
        torch.arange(9, 1, -3),
        torch.arange(0, 1, 0.25, dtype=torch.float16),
        torch.arange(3, dtype=torch.float32),
        torch.arange(-1.5, 3.5, dtype=torch.int64),
    )


def dynamic(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    n = x.shape[0]
    return (
        torch.full((n, 4), 4099),
        torch.full((2, 3), n),
        torch.full((n, 2), n),
        torch.zeros(n, 2, dtype=torch.bool),
        torch.ones(n // 2 + 1),
        x.new_zeros(2, n, dtype=torch.int64),
        x.new_ones(3, n * 2),
        x.new_full((n,), -0.5, dtype=torch.float16),
        torch.zeros_like(x, dtype=torch.int64),
        torch.ones_like(x > 0, dtype=torch.float),
        torch.full_like(x, 2.5),
        torch.fill(x.long(), 1),
        torch.scalar_tensor(n),
        torch.scalar_tensor(n, dtype=torch.float32),
        torch.arange(n),
        torch.arange(2, n, 2),
        torch.arange(n, dtype=torch.float32),
    )


def known_at_run_time(x: torch.Tensor, zero: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return (
        torch.fill(x, x.amax()),
        torch.fill(x.long(), x.amin()),
        torch.fill(x > 0, (x > 0).any()),
        torch.fill(x, (x > 100).any()),
        torch.fill(x, zero.amax()),
        torch.fill(x, torch.log(zero - 1).amax()),
    )


def uninitialised(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return (
        torch.empty(2, 3),
        torch.empty(4, dtype=torch.int64),
        torch.empty(2, dtype=torch.bool),
        x.new_empty(2, 2),
        x.new_empty(3, dtype=torch.int32),
        torch.empty_like(x),
        torch.empty_like(x, dtype=torch.int64),
        torch.empty_permuted((2, 3), (0, 1), dtype=torch.float16),
    )


def masked(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    fill = torch.full((1, 16), 4099)
    return fill, torch.where(x[:1] < 0, fill[:, :3], 4098)


def too_large(x: torch.Tensor) -> torch.Tensor:
    return x.long() + torch.full((3,), 2**31)


def of_bytes(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return x, torch.full((3,), 7, dtype=torch.uint8)


def between_floats(x: torch.Tensor) -> torch.Tensor:
    return torch.arange(0.5, x.shape[0], dtype=torch.int64)


@functools.cache
def exported(function):
    if function is known_at_run_time:
        return programs(function, (ROWS, torch.tensor([-0.0])), dynamic=({0: N}, {}))
    if function in (dynamic, between_floats):
        return programs(function, (ROWS,), dynamic=({0: N},))
    return programs(function, (X,))


def test_a_fill_has_torchs_dtype_shape_and_value(target, dialect):
    assert_same(run(exported(static)[dialect], (X,), target), static(X))


@pytest.mark.parametrize("rows", [5, 8])
def test_a_fill_of_a_dynamic_size(target, dialect, rows):
    x = torch.randn(rows, 3)
    assert_same(run(exported(dynamic)[dialect], (x,), target), dynamic(x))


def test_symbolic_sizes_keep_their_symbol(target, dialect):
    (function,) = to_mil(exported(dynamic)[dialect], target).functions.values()
    (x,) = function.inputs.values()
    shapes = [output.shape for output in function.outputs]
    assert shapes[0][0] == shapes[2][0] == shapes[8][0] == x.shape[0]


@pytest.mark.parametrize("rows", [5, 8])
@pytest.mark.parametrize("zero", [0.0, -0.0])
def test_a_fill_value_known_only_at_run_time(target, dialect, rows, zero):
    inputs = (torch.randn(rows, 3), torch.tensor([zero]))
    actual = run(exported(known_at_run_time)[dialect], inputs, target)
    assert_same(actual, known_at_run_time(*inputs))
    assert np.signbit(actual[4]).all() == np.signbit(zero)


def test_an_empty_tensor_has_torchs_dtype_and_shape(target, dialect):
    for got, want in zip(run(exported(uninitialised)[dialect], (X,), target), uninitialised(X), strict=True):
        assert got.shape == tuple(want.shape)
        assert got.dtype == (np.int32 if want.dtype == torch.int64 else want.numpy().dtype)


@pytest.mark.parametrize("precision", PRECISIONS)
def test_an_int_fill_is_never_a_float(target, dialect, precision):
    mil = converted(exported(masked)[dialect], target, precision)
    assert_same(run(mil, (X,), target), masked(X))
    assert all(types.is_int(op.outputs[0].dtype) for op in mil.functions["main"].find_ops(op_type="fill"))


@pytest.mark.parametrize(
    ("function", "error", "message"),
    [
        (too_large, OverflowError, "2147483648 .* int32"),
        (of_bytes, NotImplementedError, "full.* torch.uint8"),
        (between_floats, NotImplementedError, "float bound known only at run time"),
    ],
)
def test_what_core_ml_cannot_hold_is_refused(target, dialect, function, error, message):
    with pytest.raises(error, match=message):
        to_mil(exported(function)[dialect], target)
