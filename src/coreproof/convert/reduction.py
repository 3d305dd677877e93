"""Converters of the reduction family: the dtype of the result is torch's, also for bool and integers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from coremltools.converters.mil.mil import Builder as mb
from coremltools.converters.mil.mil import Var, types

from .arguments import as_dtype, literal, mil_dtype, operand
from .registry import converter


def _axes(node: Any) -> list[int] | None:
    """The `dim` argument as MIL axes; None means all of them."""
    dims = literal(node, "dim", 1, default=())
    return list(dims if isinstance(dims, tuple) else (dims,)) or None


def _reduce(context: Any, node: Any, reduction: Callable[..., Var], x: Var, dtype: str) -> None:
    """Record `reduction` of `x` over `dim`, converted to `dtype`."""
    result = reduction(x=x, axes=_axes(node), keep_dims=bool(literal(node, "keepdim", 2, default=False)))
    context.add(as_dtype(result, dtype), node.name)


def _as_number(x: Var) -> Var:
    """`x`, or int32 where it is bool: MIL reduces no bool."""
    return as_dtype(x, "int32") if types.is_bool(x.dtype) else x


@converter("amax", "max")
def amax(context: Any, node: Any) -> None:
    """amax(Tensor self, int[1] dim=[], bool keepdim=False) -> Tensor; max(Tensor self) -> Tensor"""
    _reduce(context, node, mb.reduce_max, _as_number(operand(context, node, "self", 0)), mil_dtype(node))


@converter("amin", "min")
def amin(context: Any, node: Any) -> None:
    """amin(Tensor self, int[1] dim=[], bool keepdim=False) -> Tensor; min(Tensor self) -> Tensor"""
    _reduce(context, node, mb.reduce_min, _as_number(operand(context, node, "self", 0)), mil_dtype(node))


@converter("max.dim")
def max_dim(context: Any, node: Any) -> None:
    """max.dim(Tensor self, int dim, bool keepdim=False) -> (Tensor values, Tensor indices)"""
    _values_and_indices(context, node, mb.reduce_max, mb.reduce_argmax)


@converter("min.dim")
def min_dim(context: Any, node: Any) -> None:
    """min.dim(Tensor self, int dim, bool keepdim=False) -> (Tensor values, Tensor indices)"""
    _values_and_indices(context, node, mb.reduce_min, mb.reduce_argmin)


def _values_and_indices(context: Any, node: Any, reduction: Callable[..., Var], index: Callable[..., Var]) -> None:
    """Record the extreme over `dim` and where it is; of equal bools the first, as torch does.

    MIL promises no order among equal entries (the docstring of `reduce_argmax`), and in a bool tensor nearly all are
    equal, so the index is counted: the entries before the first hit.
    """
    x = operand(context, node, "self", 0)
    axis, keep_dims = literal(node, "dim", 1), bool(literal(node, "keepdim", 2, default=False))
    number = _as_number(x)
    if number is x:
        values = reduction(x=x, axes=[axis], keep_dims=keep_dims)
        context.add((values, index(x=x, axis=axis, keep_dims=keep_dims)), node.name)
        return
    values = reduction(x=number, axes=[axis], keep_dims=True)
    hits = mb.cumsum(x=as_dtype(mb.equal(x=number, y=values), "int32"), axis=axis)
    before = as_dtype(mb.equal(x=hits, y=0), "int32")
    indices = mb.reduce_sum(x=before, axes=[axis], keep_dims=keep_dims)
    if not keep_dims:
        values = mb.squeeze(x=values, axes=[axis])
    context.add((as_dtype(values, "bool"), indices), node.name)


@converter("any", "any.dim", "any.dims")
def any_(context: Any, node: Any) -> None:
    """any.dims(Tensor self, int[]? dim=None, bool keepdim=False) -> Tensor, bool"""
    _reduce(context, node, mb.reduce_max, _is_nonzero(operand(context, node, "self", 0)), mil_dtype(node))


@converter("all", "all.dim", "all.dims")
def all_(context: Any, node: Any) -> None:
    """all.dims(Tensor self, int[]? dim=None, bool keepdim=False) -> Tensor, bool"""
    _reduce(context, node, mb.reduce_min, _is_nonzero(operand(context, node, "self", 0)), mil_dtype(node))


def _is_nonzero(x: Var) -> Var:
    """1 where `x` is not 0, as int32; coremltools' cast to int32 makes 0 of 0.5."""
    return as_dtype(x if types.is_bool(x.dtype) else mb.not_equal(x=x, y=as_dtype(0, _name(x))), "int32")


def _name(x: Var) -> str:
    return types.builtin_to_string(x.dtype)


@converter("sum", "sum.dim_intlist")
def sum_(context: Any, node: Any) -> None:
    """sum.dim_IntList(Tensor self, int[1]? dim, bool keepdim=False, *, ScalarType? dtype=None) -> Tensor

    The sum of bools or of any integers is an int64, added up as int32.
    """
    dtype = mil_dtype(node)
    _reduce(context, node, mb.reduce_sum, as_dtype(operand(context, node, "self", 0), dtype), dtype)


@converter("mean", "mean.dim")
def mean(context: Any, node: Any) -> None:
    """mean.dim(Tensor self, int[1]? dim, bool keepdim=False, *, ScalarType? dtype=None) -> Tensor"""
    dtype = mil_dtype(node)
    _reduce(context, node, mb.reduce_mean, as_dtype(operand(context, node, "self", 0), dtype), dtype)
