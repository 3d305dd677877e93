"""Converters of the tensor_operation family."""

from __future__ import annotations

from typing import Any

from coremltools.converters.mil.mil import Builder as mb

from .arguments import as_dtype, literal, mil_dtype, operand
from .registry import converter


@converter("cumsum")
def cumsum(context: Any, node: Any) -> None:
    """cumsum(Tensor self, int dim, *, ScalarType? dtype=None) -> Tensor; bools and integers add up as int64"""
    x = as_dtype(operand(context, node, "self", 0), mil_dtype(node))
    context.add(mb.cumsum(x=x, axis=literal(node, "dim", 1), name=node.name))
