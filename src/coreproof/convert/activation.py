"""Converters of the activation family."""

from __future__ import annotations

from typing import Any

from coremltools.converters.mil.mil import Builder as mb

from .arguments import as_dtype, constant, literal, mil_dtype, operand
from .registry import converter

_GELU_MODES = {"none": "EXACT", "tanh": "TANH_APPROXIMATION"}


@converter("gelu")
def gelu(context: Any, node: Any) -> None:
    """gelu(Tensor self, *, str approximate="none") -> Tensor

    coremltools reads `approximate` by position only, and torch.export writes it as a keyword: the exact mode came out
    in silence. The two differ by up to 4.7e-4 (pytorch/executorch#24317).
    """
    mode = _GELU_MODES[literal(node, "approximate", 1, default="none")]
    context.add(mb.gelu(x=operand(context, node, "self", 0), mode=mode, name=node.name))


@converter("relu")
def relu(context: Any, node: Any) -> None:
    """relu(Tensor self) -> Tensor; MIL's relu takes no integers, whose maximum with 0 it is"""
    dtype = mil_dtype(node)
    x = as_dtype(operand(context, node, "self", 0), dtype)
    if dtype == "int32":
        context.add(mb.maximum(x=x, y=constant(0, dtype), name=node.name))
    else:
        context.add(mb.relu(x=x, name=node.name))
