"""Converters of casts, bounds and choices, element by element, in the dtype of torch's result."""

from __future__ import annotations

from typing import Any

from coremltools.converters.mil.frontend import _utils
from coremltools.converters.mil.frontend.torch import ops
from coremltools.converters.mil.mil import Builder as mb
from coremltools.converters.mil.mil.types.symbolic import any_symbolic

from .arguments import as_dtype, broadcast_to_shape, mil_dtype, operand, require_contiguous
from .registry import converter


@converter("to", "to.dtype", "to.dtype_layout", "_to_copy")
def to(context: Any, node: Any) -> None:
    """_to_copy(Tensor self, *, ScalarType? dtype=None, ...) -> Tensor

    Raises:
        NotImplementedError: a conversion to a type that Core ML does not compute in, such as uint8; coremltools would
            give int32 or float32 instead.
    """
    context.add(as_dtype(operand(context, node, "self", 0), mil_dtype(node), name=node.name), node.name)


@converter("dim_order_ops::_to_dim_order_copy", "dim_order_ops._to_dim_order_copy")
def _to_dim_order_copy(context: Any, node: Any) -> None:
    """_to_dim_order_copy(Tensor self, *, ScalarType? dtype=None, ..., int[]? dim_order=None) -> Tensor

    Raises:
        NotImplementedError: as `to`, and for a dim order that is not the contiguous one.
    """
    require_contiguous(node)
    to(context, node)


@converter("clamp")
def clamp(context: Any, node: Any) -> None:
    """clamp(Tensor self, Scalar? min=None, Scalar? max=None) -> Tensor; clamp.Tensor has tensors for bounds

    A bound left out is no bound, where coremltools takes float32's extremes, which make floats of integers and replace
    infinities. Where min > max the result is max.
    """
    _clamp(context, node, operand(context, node, "min", 1), operand(context, node, "max", 2))


@converter("clamp_min")
def clamp_min(context: Any, node: Any) -> None:
    """clamp_min(Tensor self, Scalar min) -> Tensor; clamp_min.Tensor(Tensor self, Tensor min) -> Tensor"""
    _clamp(context, node, operand(context, node, "min", 1), None)


@converter("clamp_max")
def clamp_max(context: Any, node: Any) -> None:
    """clamp_max(Tensor self, Scalar max) -> Tensor; clamp_max.Tensor(Tensor self, Tensor max) -> Tensor"""
    _clamp(context, node, None, operand(context, node, "max", 1))


def _clamp(context: Any, node: Any, low: Any, high: Any) -> None:
    dtype = mil_dtype(node)
    x = as_dtype(operand(context, node, "self", 0), dtype)
    if dtype != "int32" and isinstance(low, (int, float)) and isinstance(high, (int, float)) and low < high:
        x = mb.clip(x=x, alpha=as_dtype(low, dtype), beta=as_dtype(high, dtype))
    else:
        if low is not None:
            x = mb.maximum(x=x, y=as_dtype(low, dtype))
        if high is not None:
            x = mb.minimum(x=x, y=as_dtype(high, dtype))
    context.add(x, node.name)


@converter("where", "where.self", "where.scalarself", "where.scalarother")
def where(context: Any, node: Any) -> None:
    """where.self(Tensor condition, Tensor self, Tensor other) -> Tensor; either value may be a Scalar

    MIL infers the shape of a `select` from its two values alone, so they take the condition's shape first.
    `where(condition)`, the indices of what is true, is left to coremltools.
    """
    if len(node.inputs) == 1:
        ops.where(context, node)
        return
    dtype = mil_dtype(node)
    condition = as_dtype(operand(context, node, "condition", 0), "bool")
    x, y = (as_dtype(operand(context, node, keyword, i), dtype) for i, keyword in ((1, "self"), (2, "other")))
    if any(any_symbolic(value.shape) for value in (condition, x, y)):
        if condition.shape != x.shape:
            x = broadcast_to_shape(x, mb.shape(x=condition))
    elif any(value.rank for value in (condition, x, y)):  # coremltools fails to broadcast scalars to a scalar
        condition, x, y = _utils.pymil_broadcast_tensors([condition, x, y])
    context.add(mb.select(cond=condition, a=x, b=y, name=node.name))
