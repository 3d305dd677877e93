"""Converters of the reduction family: the dtype of the result is torch's, also for bool and integers."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from coremltools.converters.mil.mil import Builder as mb
from coremltools.converters.mil.mil import Var, types

from .arguments import as_dtype, constant, literal, mil_dtype, operand
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


@converter("argmax")
def argmax(context: Any, node: Any) -> None:
    """argmax(Tensor self, int? dim=None, bool keepdim=False) -> Tensor"""
    _index_of(context, node, mb.reduce_argmax)


@converter("argmin")
def argmin(context: Any, node: Any) -> None:
    """argmin(Tensor self, int? dim=None, bool keepdim=False) -> Tensor"""
    _index_of(context, node, mb.reduce_argmin)


def _index_of(context: Any, node: Any, index: Callable[..., Var]) -> None:
    """Over all dimensions the tensor is laid out in one first: MIL's flattening crashes now and then (et#11715)."""
    x, dim = _as_number(operand(context, node, "self", 0)), literal(node, "dim", 1)
    keep_dims = bool(literal(node, "keepdim", 2, default=False))
    if dim is not None and x.rank:
        context.add(index(x=x, axis=dim, keep_dims=keep_dims, name=node.name))
        return
    flat = mb.reshape(x=x, shape=[-1])
    if keep_dims and x.rank > 1:
        found = index(x=flat, axis=0, keep_dims=True)
        context.add(mb.reshape(x=found, shape=[1] * x.rank, name=node.name))
    else:
        context.add(index(x=flat, axis=0, keep_dims=keep_dims and x.rank == 1, name=node.name))


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


@converter("var_mean", "var_mean.dim", "var_mean.correction")
def var_mean(context: Any, node: Any) -> None:
    """var_mean.correction(Tensor self, int[1]? dim=None, *, Scalar? correction=None, bool keepdim=False) -> two Tensors

    The sum of squares about the mean over the count less the correction, 1 where it is left out. The older forms say
    whether it is `unbiased` instead.

    Raises:
        NotImplementedError: over a size that is known only at run time.
    """
    x = as_dtype(operand(context, node, "self", 0), mil_dtype(node, 0))
    plain = isinstance(literal(node, "dim", 1), bool)  # var_mean(Tensor self, bool unbiased)
    axes = (None if plain else _axes(node)) or list(range(x.rank))
    unbiased = literal(node, "unbiased", 1 if plain else 2, default=True)
    correction = literal(node, "correction", default=int(unbiased))
    keep_dims = bool(literal(node, "keepdim", 3, default=False))
    count = math.prod(x.shape[axis] for axis in axes)
    if not isinstance(count, (int, np.integer)):
        raise NotImplementedError("var_mean over a size that is known only at run time")
    kept = mb.reduce_mean(x=x, axes=axes, keep_dims=True)
    total = mb.reduce_sum(x=mb.square(x=mb.sub(x=x, y=kept)), axes=axes, keep_dims=keep_dims)
    with np.errstate(divide="ignore"):
        factor = constant(np.float64(1.0) / max(0, count - correction), _name(x))
    context.add((mb.mul(x=total, y=factor), kept if keep_dims else mb.squeeze(x=kept, axes=axes)), node.name)


@converter("sort", "sort.stable")
def sort(context: Any, node: Any) -> None:
    """sort.stable(Tensor self, *, bool? stable, int dim=-1, bool descending=False) -> (Tensor values, Tensor indices)

    Raises:
        NotImplementedError: a stable sort that is asked for; MIL promises no order among equal values.
    """
    if literal(node, "stable"):
        raise NotImplementedError("a stable sort: MIL's argsort promises no order among equal values")
    dim, descending = literal(node, "dim", 1, default=-1), literal(node, "descending", 2, default=False)
    x = operand(context, node, "self", 0)
    values, indices = _sorted(_as_number(x), dim, ascending=not descending)
    context.add((as_dtype(values, mil_dtype(node, 0)), indices), node.name)


def _sorted(x: Var, axis: int, ascending: bool) -> tuple[Var, Var]:
    indices = mb.argsort(x=x, axis=axis, ascending=ascending)
    return mb.gather_along_axis(x=x, indices=indices, axis=axis), indices


@converter("median", "median.dim")
def median(context: Any, node: Any) -> None:
    """median.dim(Tensor self, int dim, bool keepdim=False) -> (Tensor values, Tensor indices); median(Tensor self)

    Of an even number the lower of the two in the middle; NaN where there is one.

    Raises:
        NotImplementedError: over a size that is known only at run time.
    """
    x, dim = operand(context, node, "self", 0), literal(node, "dim", 1)
    number = _as_number(x) if dim is not None else mb.reshape(x=_as_number(x), shape=[-1])
    axis = 0 if dim is None else dim
    size = number.shape[axis]
    if not isinstance(size, (int, np.integer)):
        raise NotImplementedError("the median over a size that is known only at run time")
    middle = [(size - 1) // 2]
    values, indices = (mb.gather(x=one, indices=middle, axis=axis) for one in _sorted(number, axis, ascending=True))
    if types.is_float(number.dtype):
        strange = mb.reduce_max(x=as_dtype(mb.not_equal(x=number, y=number), "int32"), axes=[axis], keep_dims=True)
        values = mb.select(
            cond=as_dtype(strange, "bool"), a=mb.mul(x=values, y=constant(np.nan, _name(number))), b=values
        )
    if dim is None or not literal(node, "keepdim", 2, default=False):
        values, indices = (mb.squeeze(x=one, axes=[axis]) for one in (values, indices))
    context.add(values if dim is None else (values, indices), node.name)
