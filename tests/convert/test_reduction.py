from __future__ import annotations

import functools

import pytest
import torch
from convert.dialects import PRECISIONS, TARGETS, assert_same, converted, programs, run
from torch.export import Dim

# Ties everywhere, a row and a column of one value, and a first hit that is not at 0.
FLAGS = torch.tensor([[False, False, True, True], [False, True, False, True], [False, False, False, True]])
OTHER = torch.tensor([[True, False, True, False], [False, False, True, True], [True, True, True, True]])
INTS = torch.tensor([[-7, 3, 2, -(2**31)], [5, -1, 5, 2**31 - 1], [0, 0, 0, 0]])
FLOATS = torch.tensor([[0.5, -0.25, 0.0, 3.0], [0.0, 0.0, 0.0, 0.0], [-2.0, float("nan"), 1.0, 0.75]])


def of_flags(b: torch.Tensor, c: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return (
        b.min(),
        b.max(),
        b.amin(),
        b.amax(),
        b.amin(1),
        b.amax(0, keepdim=True),
        b.amax((0, 1), keepdim=True),
        *b.min(1),
        *b.max(1),
        *b.min(0, keepdim=True),
        *b.max(-1, keepdim=True),
        torch.minimum(b, c),
        torch.maximum(b, c),
        torch.min(b, c),
        torch.max(b, c),
        b.any(),
        b.all(1),
        b.any((0, 1), keepdim=True),
        b.all(dim=0, keepdim=True),
        b.sum(),
        b.sum(1),
        b.sum((0, 1), keepdim=True),
        b.cumsum(1),
    )


def of_ints(i: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return (
        i.min(),
        i.amax(0),
        *i[:2, 1:].max(1),
        i[:, :3].sum(1),
        i[:, :3].sum(),
        i[:, :3].sum(1, dtype=torch.float32),
        i[:, :3].cumsum(1),
        i.any(1),
        i.all(1),
        torch.maximum(i, i.flip(0)),
        i[:, :3].mean(1, dtype=torch.float32),
    )


def of_floats(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return (
        x.any(),
        x.any(1),
        x.all(0),
        x[:2].sum(),
        x[:2].sum(1, keepdim=True),
        x[:2].mean(),
        x[:2].mean((0, 1)),
        x[:2].amax(),
        *x[:, 2:].min(0),
        x[:2].half().sum(1),
        x[:2].cumsum(0),
        torch.maximum(x[:2], x[:2].long()),
    )


CASES = {"flags": (of_flags, (FLAGS, OTHER)), "ints": (of_ints, (INTS,)), "floats": (of_floats, (FLOATS,))}


@functools.cache
def exported(case):
    return programs(*CASES[case])


@pytest.mark.parametrize("dialect", ["aten", "edge"])
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("case", CASES)
def test_a_reduction_is_torchs(case, target, dialect):
    function, inputs = CASES[case]
    assert_same(run(exported(case)[dialect], inputs, target), function(*inputs), rtol=1e-6)


@functools.cache
def exported_dynamic():
    return programs(lambda x: of_flags(x > 0, x < 1), (torch.randn(5, 4),), dynamic=({0: Dim("n", min=3, max=50)},))


@pytest.mark.parametrize("dialect", ["aten", "edge"])
@pytest.mark.parametrize("target", TARGETS)
def test_a_reduction_of_bool_over_a_dynamic_size(target, dialect):
    x = torch.randn(7, 4)
    assert_same(run(exported_dynamic()[dialect], (x,), target), of_flags(x > 0, x < 1))


@pytest.mark.parametrize("dialect", ["aten", "edge"])
@pytest.mark.parametrize("target", [TARGETS[0], TARGETS[-1]])
@pytest.mark.parametrize("precision", PRECISIONS)
def test_bool_reductions_survive_the_passes(target, dialect, precision):
    x = torch.randn(6, 4)
    half = precision == PRECISIONS[0] and target >= TARGETS[1]
    mil = converted(exported_dynamic()[dialect], target, precision)
    actual = run(mil, (x.half() if half else x,), target)
    for got, want in zip(actual, of_flags(x > 0, x < 1), strict=True):
        assert got.tolist() == want.tolist()
