"""Converters of functions of two operands, which are converted to the dtype of torch's result first."""

from __future__ import annotations

import math
from typing import Any

from coremltools.converters.mil.mil import Builder as mb
from coremltools.converters.mil.mil import Var

from .arguments import as_dtype, constant, literal, mil_dtype, operand
from .registry import converter


def _operands(context: Any, node: Any) -> tuple[str, Var, Var]:
    """The result's dtype, and `self` and `other` in it."""
    dtype = mil_dtype(node)
    x, y = operand(context, node, "self", 0), operand(context, node, "other", 1)
    return dtype, as_dtype(x, dtype), as_dtype(y, dtype)


@converter("add")
def add(context: Any, node: Any) -> None:
    """add.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor; of bools it is their `or`

    coremltools ignores alpha where it is a keyword (apple/coremltools#2573).
    """
    dtype, x, y = _operands(context, node)
    if dtype == "bool":
        context.add(mb.logical_or(x=x, y=y, name=node.name))
    else:
        context.add(mb.add(x=x, y=_times_alpha(node, y, dtype), name=node.name))


@converter("sub")
def sub(context: Any, node: Any) -> None:
    """sub.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor"""
    dtype, x, y = _operands(context, node)
    context.add(mb.sub(x=x, y=_times_alpha(node, y, dtype), name=node.name))


@converter("rsub")
def rsub(context: Any, node: Any) -> None:
    """rsub.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor, which is other - alpha * self"""
    dtype, x, y = _operands(context, node)
    context.add(mb.sub(x=y, y=_times_alpha(node, x, dtype), name=node.name))


def _times_alpha(node: Any, value: Var, dtype: str) -> Var:
    alpha = literal(node, "alpha", 2, default=1)
    return value if alpha == 1 else mb.mul(x=value, y=constant(alpha, dtype))


@converter("maximum", "max.other")
def maximum(context: Any, node: Any) -> None:
    """maximum(Tensor self, Tensor other) -> Tensor; of bools it is their `or`"""
    dtype, x, y = _operands(context, node)
    larger = mb.logical_or if dtype == "bool" else mb.maximum
    context.add(larger(x=x, y=y, name=node.name))


@converter("minimum", "min.other")
def minimum(context: Any, node: Any) -> None:
    """minimum(Tensor self, Tensor other) -> Tensor; of bools it is their `and`"""
    dtype, x, y = _operands(context, node)
    smaller = mb.logical_and if dtype == "bool" else mb.minimum
    context.add(smaller(x=x, y=y, name=node.name))


@converter("div", "div.scalar_mode")
def div(context: Any, node: Any) -> None:
    """div.Tensor_mode(Tensor self, Tensor other, *, str? rounding_mode) -> Tensor; div.Tensor(self, other) -> Tensor

    Raises:
        ValueError: a rounding mode other than None, "floor" and "trunc".
    """
    dtype, x, y = _operands(context, node)
    mode = literal(node, "rounding_mode", 2)
    if mode is None:
        result = mb.real_div(x=x, y=y, name=node.name)
    elif mode == "floor":
        result = _floor_quotient(x, y, dtype, node.name)
    elif mode == "trunc":
        result = _int_quotient(x, y) if dtype == "int32" else _float_quotient(x, y)
    else:
        raise ValueError(f"{node.kind}: rounding_mode is {mode!r}; torch has None, 'floor' and 'trunc'")
    context.add(result, node.name)


def _floor_quotient(x: Var, y: Var, dtype: str, name: str) -> Var:
    """x / y rounded down. A quotient too small for a float is -1 where the signs differ, as in Python."""
    if dtype == "int32":
        return mb.floor_div(x=x, y=y, name=name)
    zero = constant(0.0, dtype)
    quotient = mb.real_div(x=x, y=y)
    lost = mb.logical_and(x=mb.equal(x=quotient, y=zero), y=mb.not_equal(x=x, y=zero))
    differ = mb.logical_xor(x=mb.less(x=x, y=zero), y=mb.less(x=y, y=zero))
    below = as_dtype(mb.logical_and(x=lost, y=differ), dtype)
    return mb.sub(x=mb.floor(x=quotient), y=below, name=name)


def _int_quotient(x: Var, y: Var) -> Var:
    """x / y rounded toward 0, int32: one more than the floor where that is negative and not exact."""
    floor = mb.floor_div(x=x, y=y)
    inexact = mb.not_equal(x=mb.mul(x=floor, y=y), y=x)
    return mb.add(x=floor, y=as_dtype(mb.logical_and(x=inexact, y=mb.less(x=floor, y=0)), "int32"))


def _float_quotient(x: Var, y: Var) -> Var:
    """x / y rounded toward 0, float."""
    quotient = mb.real_div(x=x, y=y)
    return mb.mul(x=mb.sign(x=quotient), y=mb.floor(x=mb.abs(x=quotient)))


@converter("floor_divide", "floordiv")
def floor_divide(context: Any, node: Any) -> None:
    """floor_divide(Tensor self, Tensor other) -> Tensor; also of two sizes, whose quotient is an int"""
    dtype, x, y = _operands(context, node)
    context.add(_floor_quotient(x, y, dtype, node.name))


@converter("fmod")
def fmod(context: Any, node: Any) -> None:
    """fmod(Tensor self, Tensor other) -> Tensor, with the sign of self

    Raises:
        NotImplementedError: of floats, whose large quotients no float32 holds.
    """
    dtype, x, y = _operands(context, node)
    if dtype != "int32":
        raise NotImplementedError("fmod of floats: the whole part of a large quotient is not exact in float32")
    context.add(mb.sub(x=x, y=mb.mul(x=_int_quotient(x, y), y=y), name=node.name))


@converter("lshift", "__lshift__", "bitwise_left_shift")
def left_shift(context: Any, node: Any) -> None:
    """bitwise_left_shift(Tensor self, Scalar other) -> Tensor, a product with a power of two

    Raises:
        NotImplementedError: a shift known only at run time, or one that int32 does not hold.
    """
    x = as_dtype(operand(context, node, "self", 0), mil_dtype(node))
    context.add(mb.mul(x=x, y=_power_of_two(node), name=node.name))


@converter("rshift", "__rshift__", "bitwise_right_shift")
def right_shift(context: Any, node: Any) -> None:
    """bitwise_right_shift(Tensor self, Scalar other) -> Tensor, a quotient by a power of two, rounded down

    Raises:
        NotImplementedError: as `left_shift`.
    """
    x = as_dtype(operand(context, node, "self", 0), mil_dtype(node))
    context.add(mb.floor_div(x=x, y=_power_of_two(node), name=node.name))


def _power_of_two(node: Any) -> Any:
    shift = literal(node, "other", 1)
    if not isinstance(shift, int) or not 0 <= shift < 31:
        raise NotImplementedError(f"{node.kind} by {shift!r}: only a constant from 0 to 30 is a product in int32")
    return constant(1 << shift, "int32")


@converter("atan2")
def atan2(context: Any, node: Any) -> None:
    """atan2(Tensor self, Tensor other) -> Tensor: the angle of the point (other, self), in every quadrant

    Of the two magnitudes the smaller is divided by the larger, so that nothing overflows; where they are equal (two
    zeros, two infinities) the quotient would be NaN.
    """
    dtype, y, x = _operands(context, node)
    zero, quarter, half, whole = (constant(part * math.pi, dtype) for part in (0.0, 0.25, 0.5, 1.0))
    a, b = mb.abs(x=y), mb.abs(x=x)
    angle = mb.atan(x=mb.real_div(x=mb.minimum(x=a, y=b), y=mb.maximum(x=a, y=b)))
    diagonal = mb.mul(x=as_dtype(mb.not_equal(x=a, y=zero), dtype), y=quarter)
    angle = mb.select(cond=mb.equal(x=a, y=b), a=diagonal, b=angle)
    angle = mb.select(cond=mb.greater(x=a, y=b), a=mb.sub(x=half, y=angle), b=angle)
    angle = mb.select(cond=_is_negative(x, dtype), a=mb.sub(x=whole, y=angle), b=angle)
    context.add(mb.select(cond=_is_negative(y, dtype), a=mb.sub(x=zero, y=angle), b=angle, name=node.name))


def _is_negative(x: Var, dtype: str) -> Var:
    """Whether the sign is set: that of a zero shows in its reciprocal."""
    zero, one = constant(0.0, dtype), constant(1.0, dtype)
    signed = mb.select(cond=mb.equal(x=x, y=zero), a=mb.real_div(x=one, y=x), b=x)
    return mb.less(x=signed, y=zero)


@converter("pow", "pow.tensor_tensor")
def pow_(context: Any, node: Any) -> None:
    """pow.Tensor_Tensor(Tensor self, Tensor exponent) -> Tensor; either may be a Scalar

    Apple's runtime computes 2 ** y as y ** 2 (apple/coremltools#2628, #2742), so that base has an op of its own, and a
    square is a product.
    """
    dtype = mil_dtype(node)
    base, exponent = operand(context, node, "self", 0), operand(context, node, "exponent", 1)
    x, y = as_dtype(base, dtype), as_dtype(exponent, dtype)
    if not isinstance(base, Var) and base == 2 and dtype != "int32":
        result = mb.exp2(x=y, name=node.name)
    elif not isinstance(exponent, Var) and exponent == 2:
        result = mb.mul(x=x, y=x, name=node.name)
    else:
        result = mb.pow(x=x, y=y, name=node.name)
    context.add(result)


@converter("round.decimals")
def round_decimals(context: Any, node: Any) -> None:
    """round.decimals(Tensor self, *, int decimals) -> Tensor"""
    dtype, decimals = mil_dtype(node), literal(node, "decimals", 1, default=0)
    x, scale = as_dtype(operand(context, node, "self", 0), dtype), constant(10.0 ** abs(decimals), dtype)
    if decimals < 0:
        context.add(mb.mul(x=mb.round(x=mb.real_div(x=x, y=scale)), y=scale, name=node.name))
    else:
        context.add(mb.real_div(x=mb.round(x=mb.mul(x=x, y=scale)), y=scale, name=node.name))
