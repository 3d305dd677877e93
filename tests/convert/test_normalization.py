from __future__ import annotations

import functools

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from convert.dialects import PRECISIONS, TARGETS, assert_same, converted, programs, run

RMS_NORM = torch.ops.aten.rms_norm.default
SHAPE = (2, 3, 4)
WEIGHT = torch.tensor([0.5, -2.0, 1.0, 3.0])
# torch's default for every dtype, 2**-23.
EPSILON = 1.1920929e-07
# Whole keeps rms_norm as the partitioner does; edge decomposes it.
DIALECTS = ("aten", "edge", "whole")


def norms(x: torch.Tensor, weight: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return (
        F.rms_norm(x, (4,)),
        F.rms_norm(x, (3, 4)),
        F.rms_norm(x, (4,), weight),
        F.rms_norm(x, (4,), weight, eps=1e-5),
    )


def by_definition(x: torch.Tensor, weight: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """The same in float64."""

    def norm(dims, eps):
        wide = x.double()
        return wide / torch.sqrt(wide.square().mean(dims, keepdim=True) + eps)

    results = (norm(-1, EPSILON), norm((-2, -1), EPSILON), norm(-1, EPSILON) * weight, norm(-1, 1e-5) * weight)
    return tuple(result.float() for result in results)


def dialects(function, inputs, buffers) -> dict:
    whole = programs(function, inputs, buffers, keep=(RMS_NORM,))
    return {**programs(function, inputs, buffers), "whole": whole["edge"]}


PROGRAMS = dialects(norms, (torch.ones(SHAPE),), (WEIGHT,))
WITHOUT_WEIGHT = dialects(lambda x: F.rms_norm(x, (4,)), (torch.ones(SHAPE),), ())


def rows(scale: float) -> torch.Tensor:
    return torch.randn(SHAPE, generator=torch.Generator().manual_seed(3)) * scale


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("scale", [1e-4, 1.0, 1e4])
def test_rms_norm_is_torchs(dialect, target, scale):
    x = rows(scale)
    actual = run(PROGRAMS[dialect], (x,), target)
    assert_same(actual, norms(x, WEIGHT), rtol=1e-5)
    assert_same(actual, by_definition(x, WEIGHT), rtol=1e-5)


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("target", TARGETS)
def test_a_row_of_zeros_stays_zeros(dialect, target):
    x = rows(1.0)
    x[1] = 0
    assert_same(run(PROGRAMS[dialect], (x,), target), norms(x, WEIGHT), rtol=1e-5)


@pytest.mark.parametrize("dialect", ["aten", "whole"])
@pytest.mark.parametrize("precision", PRECISIONS)
def test_the_converted_program_holds_torchs_epsilon(dialect, precision):
    mil = converted(WITHOUT_WEIGHT[dialect], TARGETS[-1], precision)
    constants = [op.outputs[0].val for op in mil.functions["main"].operations if op.op_type == "const"]
    floats = [float(value) for value in constants if np.asarray(value).dtype.kind == "f" and np.ndim(value) == 0]
    assert any(abs(value - EPSILON) < 1e-13 for value in floats)
    assert not any(1e-6 < value < 1e-4 for value in floats)


@functools.cache
def in_float16(dialect):
    return converted(PROGRAMS[dialect], TARGETS[-1], PRECISIONS[0])


@pytest.mark.parametrize("dialect", ["aten", "whole"])
@pytest.mark.parametrize("scale", [1e-4, 1e-3, 1.0, 1e4])
def test_squares_stay_in_the_range_of_float16(dialect, scale):
    x = rows(scale).half().float()
    actual = run(in_float16(dialect), (x.half(),), TARGETS[-1])
    assert [array.dtype for array in actual] == [np.float16] * 4
    for got, want in zip(actual, by_definition(x, WEIGHT), strict=True):
        np.testing.assert_allclose(got.astype(np.float32), want.numpy(), rtol=6e-3, atol=1e-3)


def test_the_epsilon_does_not_depend_on_the_dtype():
    x, weight = rows(1e-4).half(), WEIGHT.half()
    program = programs(norms, (x,), (weight,))["aten"]
    assert_same(run(program, (x,), TARGETS[-1]), norms(x, weight), rtol=6e-3, atol=1e-3)


def test_the_fused_op_gives_the_reciprocal_too():
    def function(x, weight):
        return torch.ops.aten._fused_rms_norm.default(x, [4], weight, None)

    x = rows(1e-4)
    program = programs(function, (x,), (WEIGHT,))["aten"]
    assert any("_fused_rms_norm" in str(node.target) for node in program.graph.nodes)
    assert_same(run(program, (x,), TARGETS[-1]), function(x, WEIGHT), rtol=1e-5)
