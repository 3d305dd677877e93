"""Converters of the tensor_transformation family."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
from coremltools.converters.mil.frontend.torch import ops
from coremltools.converters.mil.mil import Builder as mb
from coremltools.converters.mil.mil import Var

from .arguments import as_dtype, constant, literal, mil_dtype, operand
from .registry import converter


@converter("roll")
def roll(context: Any, node: Any) -> None:
    """roll(Tensor self, SymInt[1] shifts, int[1] dims=[]) -> Tensor; coremltools' converter wants all three"""
    explicit = copy.copy(node)
    explicit.inputs = [node.inputs[0], literal(node, "shifts", 1), literal(node, "dims", 2, default=())]
    ops.roll(context, explicit)


@converter("diagonal", "diagonal_copy")
def diagonal(context: Any, node: Any) -> None:
    """diagonal(Tensor self, int offset=0, int dim1=0, int dim2=1) -> Tensor

    The two dimensions become one, of which every (columns + 1)th entry is taken; coremltools' own conversion gives
    other values (apple/coremltools#2565).

    Raises:
        NotImplementedError: a size is known only at run time.
    """
    x, offset = operand(context, node, "self", 0), literal(node, "offset", 1, default=0)
    first, second = (literal(node, f"dim{n}", n + 1, default=n - 1) % x.rank for n in (1, 2))
    rest = [axis for axis in range(x.rank) if axis not in (first, second)]
    sizes, rows, columns = [x.shape[axis] for axis in rest], x.shape[first], x.shape[second]
    if any(not isinstance(size, (int, np.integer)) for size in x.shape):
        raise NotImplementedError("diagonal of a tensor with sizes that are known only at run time")
    count = node.meta["val"].shape[-1]
    places = [(i + max(0, -offset)) * columns + i + max(0, offset) for i in range(count)]
    laid_out = mb.transpose(x=x, perm=[*rest, first, second])
    flat = mb.reshape(x=laid_out, shape=[*map(int, sizes), int(rows * columns)])
    context.add(mb.gather(x=flat, indices=np.array(places, np.int32), axis=-1, name=node.name))


@converter("pad")
def pad(context: Any, node: Any) -> None:
    """pad(Tensor self, SymInt[] pad, str mode="constant", float? value=None) -> Tensor; other modes are coremltools'"""
    if literal(node, "mode", 2, default="constant") == "constant":
        _constant_pad(context, node, literal(node, "value", 3, default=0))
    else:
        ops.pad(context, node)


@converter("constant_pad_nd")
def constant_pad_nd(context: Any, node: Any) -> None:
    """constant_pad_nd(Tensor self, SymInt[] pad, Scalar value=0) -> Tensor"""
    _constant_pad(context, node, literal(node, "value", 2, default=0))


def _constant_pad(context: Any, node: Any, value: Any) -> None:
    """A negative amount cuts off. The amounts come in pairs, the last dimension first. MIL pads no bool.

    Raises:
        NotImplementedError: an amount that is known only at run time.
    """
    dtype, amounts = mil_dtype(node), operand(context, node, "pad", 1)
    if any(not isinstance(amount, int) for amount in amounts):
        raise NotImplementedError("padding by amounts that are known only at run time")
    padded = "int32" if dtype == "bool" else dtype
    x = as_dtype(operand(context, node, "self", 0), padded)
    pairs = [(0, 0)] * (x.rank - len(amounts) // 2) + list(zip(amounts[-2::-2], amounts[::-2], strict=True))
    if any(min(pair) < 0 for pair in pairs):
        begin = [max(0, -before) for before, _ in pairs]
        end = [min(0, after) for _, after in pairs]
        x = mb.slice_by_index(x=x, begin=begin, end=end, end_mask=[last == 0 for last in end])
    widths = [(max(0, before), max(0, after)) for before, after in pairs]
    if padded == "int32":
        context.add(as_dtype(_padded_integers(x, widths, constant(value, padded)), dtype), node.name)
    else:
        flat = [amount for pair in widths for amount in pair]
        context.add(mb.pad(x=x, pad=flat, mode="constant", constant_val=constant(value, padded), name=node.name))


def _padded_integers(x: Var, widths: list[tuple[int, int]], value: Any) -> Var:
    """`x` with blocks of the value before and after it in each dimension; MIL's pad takes floats only.

    Raises:
        NotImplementedError: a size is known only at run time.
    """
    for axis, pair in enumerate(widths):
        if any(not isinstance(size, (int, np.integer)) for size in x.shape):
            raise NotImplementedError("padding integers of sizes that are known only at run time")
        before, after = (
            [mb.fill(shape=[*x.shape[:axis], width, *x.shape[axis + 1 :]], value=value)] if width else []
            for width in pair
        )
        if before or after:
            x = mb.concat(values=[*before, x, *after], axis=axis)
    return x
