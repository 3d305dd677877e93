"""Converters of the fills: tensors whose values follow from a shape and a number.

coremltools takes the dtype of a fill from its number, which Python and the
export write as they like; here it is the dtype of torch's result at every
target, and the number is converted to it before the fill, never after.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from coremltools.converters.mil.mil import Builder as mb
from coremltools.converters.mil.mil import Var, types

from .arguments import as_dtype, broadcast_to_shape, constant, mil_dtype, operand, require_contiguous
from .registry import converter


def _shape(node: Any, given: Any) -> Any:
    """The result's shape: ints where torch knows them, else a MIL vector from `given`, a size list or a like tensor."""
    shape = node.meta["val"].shape
    if all(isinstance(size, int) for size in shape):
        return tuple(shape)
    if isinstance(given, Var):
        return mb.shape(x=given)
    return mb.concat(values=[as_dtype(size, "int32") for size in given], axis=0)


def _fill(context: Any, node: Any, value: Any, given: Any) -> None:
    """Record `value` (a number or a 0-d MIL value) in the dtype and shape of the result; `given` as in `_shape`."""
    dtype = mil_dtype(node)
    known = not isinstance(value, Var) or value.can_be_folded_to_const()
    number = constant(value.val if isinstance(value, Var) else value, dtype) if known else as_dtype(value, dtype)
    if not node.meta["val"].shape:
        result = mb.const(val=number, name=node.name) if known else number
    elif known:
        result = mb.fill(shape=_shape(node, given), value=number, name=node.name)
    else:
        result = broadcast_to_shape(number, _shape(node, given), name=node.name)
    context.add(result, node.name)


@converter("full")
def full(context: Any, node: Any) -> None:
    """full(SymInt[] size, Scalar fill_value, *, ScalarType? dtype=None, ...) -> Tensor"""
    _fill(context, node, operand(context, node, "fill_value", 1), operand(context, node, "size", 0))


@converter("zeros", "empty", "empty.memory_format", "empty_permuted")
def zeros(context: Any, node: Any) -> None:
    """zeros(SymInt[] size, *, ScalarType? dtype=None, ...) -> Tensor; an empty tensor holds zeros too"""
    _fill(context, node, 0, operand(context, node, "size", 0))


@converter("dim_order_ops::_empty_dim_order", "dim_order_ops._empty_dim_order")
def _empty_dim_order(context: Any, node: Any) -> None:
    """_empty_dim_order(int[] size, *, ScalarType? dtype=None, ..., int[]? dim_order=None) -> Tensor

    Raises:
        NotImplementedError: the dim order is not the contiguous one, which is the only one Core ML has.
    """
    require_contiguous(node)
    zeros(context, node)


@converter("ones")
def ones(context: Any, node: Any) -> None:
    """ones(SymInt[] size, *, ScalarType? dtype=None, ...) -> Tensor"""
    _fill(context, node, 1, operand(context, node, "size", 0))


@converter("full_like")
def full_like(context: Any, node: Any) -> None:
    """full_like(Tensor self, Scalar fill_value, *, ScalarType? dtype=None, ...) -> Tensor"""
    _fill(context, node, operand(context, node, "fill_value", 1), operand(context, node, "self", 0))


@converter("zeros_like", "empty_like")
def zeros_like(context: Any, node: Any) -> None:
    """zeros_like(Tensor self, *, ScalarType? dtype=None, ...) -> Tensor; an empty tensor holds zeros too"""
    _fill(context, node, 0, operand(context, node, "self", 0))


@converter("ones_like")
def ones_like(context: Any, node: Any) -> None:
    """ones_like(Tensor self, *, ScalarType? dtype=None, ...) -> Tensor"""
    _fill(context, node, 1, operand(context, node, "self", 0))


@converter("new_full")
def new_full(context: Any, node: Any) -> None:
    """new_full(Tensor self, SymInt[] size, Scalar fill_value, *, ScalarType? dtype=None, ...) -> Tensor"""
    _fill(context, node, operand(context, node, "fill_value", 2), operand(context, node, "size", 1))


@converter("new_zeros", "new_empty")
def new_zeros(context: Any, node: Any) -> None:
    """new_zeros(Tensor self, SymInt[] size, *, ScalarType? dtype=None, ...) -> Tensor; empty holds zeros too"""
    _fill(context, node, 0, operand(context, node, "size", 1))


@converter("new_ones")
def new_ones(context: Any, node: Any) -> None:
    """new_ones(Tensor self, SymInt[] size, *, ScalarType? dtype=None, ...) -> Tensor"""
    _fill(context, node, 1, operand(context, node, "size", 1))


@converter("fill")
def fill(context: Any, node: Any) -> None:
    """fill.Scalar(Tensor self, Scalar value) -> Tensor; fill.Tensor(Tensor self, Tensor value) -> Tensor"""
    _fill(context, node, operand(context, node, "value", 1), operand(context, node, "self", 0))


@converter("copy")
def copy(context: Any, node: Any) -> None:
    """copy(Tensor self, Tensor src, bool non_blocking=False) -> Tensor: `src` in the shape and dtype of `self`

    ExecuTorch decomposes fill.Tensor to this op.
    """
    source = as_dtype(operand(context, node, "src", 1), mil_dtype(node))
    target = operand(context, node, "self", 0)
    if source.shape != target.shape:
        source = broadcast_to_shape(source, _shape(node, target))
    context.add(source, node.name)


@converter("scalar_tensor")
def scalar_tensor(context: Any, node: Any) -> None:
    """scalar_tensor(Scalar s, *, ScalarType? dtype=None, ...) -> Tensor of shape ()"""
    _fill(context, node, operand(context, node, "s", 0), ())


@converter("arange", "arange.start", "arange.start_step")
def arange(context: Any, node: Any) -> None:
    """arange.start_step(Scalar start, Scalar end, Scalar step=1, *, ScalarType? dtype=None, ...) -> Tensor

    Also arange(Scalar end, ...) and arange.start(Scalar start, Scalar end, ...). With numbers only it is a constant
    of torch's own values.

    Raises:
        NotImplementedError: an integer range between floats that are known only at run time; torch truncates the
            start and counts the entries in float64, which Core ML does not have.
    """
    if node.kind == "arange":
        start, end, step = 0, operand(context, node, "end", 0), 1
    else:
        start, end = operand(context, node, "start", 0), operand(context, node, "end", 1)
        step = operand(context, node, "step", 2)
        step = 1 if step is None else step
    dtype = mil_dtype(node)
    bounds = [v.val if isinstance(v, Var) and v.can_be_folded_to_const() else v for v in (start, end, step)]
    if not any(isinstance(bound, Var) for bound in bounds):
        values = torch.arange(*(np.asarray(bound).item() for bound in bounds), dtype=node.meta["val"].dtype)
        context.add(mb.const(val=constant(values.numpy(), dtype), name=node.name))
        return
    whole = all(_is_int(bound) for bound in bounds)
    if dtype == "int32" and not whole:
        raise NotImplementedError(
            f"{node.kind} makes integers from a float bound known only at run time, which torch rounds "
            "in float64: give integer bounds or leave the op on the CPU"
        )
    start, end, step = (as_dtype(bound, "int32" if whole else "fp32") for bound in bounds)
    context.add(as_dtype(mb.range_1d(start=start, end=end, step=step), dtype), node.name)


def _is_int(value: Any) -> bool:
    return types.is_int(value.dtype) if isinstance(value, Var) else isinstance(value, (int, np.integer))
