from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from convert.dialects import PRECISIONS, TARGETS, assert_same, converted, programs, run

X = torch.tensor([[-3.0, -0.5, 0.0], [0.75, 2.0, 30.0]])


def gelus(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    # The node named `tanh` must not be taken for the argument of that name.
    return (
        F.gelu(torch.tanh(x), approximate="tanh"),
        torch.ops.aten.gelu.default(x, approximate="tanh"),
        F.gelu(x),
        torch.ops.aten.gelu.default(-x, approximate="none"),
    )


def positional(program):
    for node in program.graph.nodes:
        if "gelu" in str(node.target) and "approximate" in node.kwargs:
            node.args, node.kwargs = (node.args[0], node.kwargs["approximate"]), {}
    return program


PROGRAMS = {**programs(gelus, (X,)), "positional": positional(programs(gelus, (X,))["aten"])}


@pytest.mark.parametrize("dialect", PROGRAMS)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("precision", PRECISIONS)
def test_gelu_keeps_its_mode(dialect, target, precision):
    mil = converted(PROGRAMS[dialect], target, precision)
    modes = [op.mode.val for op in mil.functions["main"].operations if op.op_type == "gelu"]
    assert modes == ["TANH_APPROXIMATION", "TANH_APPROXIMATION", "EXACT", "EXACT"]


@pytest.mark.parametrize("dialect", PROGRAMS)
def test_gelu_values(dialect):
    # The two modes differ by up to 4.7e-4.
    assert_same(run(PROGRAMS[dialect], (X,), TARGETS[-1]), gelus(X), atol=1e-6)
