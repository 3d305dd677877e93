"""Pooling and rolling with the arguments that an export leaves out."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from convert.dialects import TARGETS, assert_same, programs, run

from coreproof.convert.program import to_mil

X = torch.randn(1, 2, 5, 7)


def rolls(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return torch.roll(x, 1), torch.roll(x, -3), torch.roll(x, (1, -2), (2, 3)), torch.roll(x, 9, 3), x.clone() + 0


def pools(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return F.max_pool2d(x, 2), F.max_pool2d(x, (3, 2), padding=1), F.max_pool2d(x, 3, 1), F.max_pool1d(x[0], 3)


ROLLS = programs(rolls, (X,), keep=(torch.ops.aten.roll.default,))
POOLS = programs(pools, (X,))


@pytest.mark.parametrize("dialect", ["aten", "edge"])
@pytest.mark.parametrize("target", TARGETS)
def test_roll(target, dialect):
    assert_same(run(ROLLS[dialect], (X,), target), rolls(X))


@pytest.mark.parametrize("dialect", ["aten", "edge"])
@pytest.mark.parametrize("target", TARGETS)
def test_a_pool_without_stride_steps_by_its_kernel(target, dialect):
    (function,) = to_mil(POOLS[dialect], target).functions.values()
    assert [output.shape for output in function.outputs] == [tuple(want.shape) for want in pools(X)]
    steps = [(list(op.kernel_sizes.val), list(op.strides.val)) for op in function.find_ops(op_type="max_pool")]
    assert steps[:3] == [([2, 2], [2, 2]), ([3, 2], [3, 2]), ([3, 3], [1, 1])]
