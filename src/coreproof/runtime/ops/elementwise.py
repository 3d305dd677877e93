"""Element by element: arithmetic, comparisons, logic and functions of one or two operands, with broadcasting."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from ..dtypes import element_type
from ..memory import require_elements

_MANY = 2**24  # elements; torch takes longer for the broadcast shape than for a small sum


def _together(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Both operands in one dtype: that of the dimensioned one, else the wider.

    Raises:
        ModelError: what they broadcast to does not fit.
    """
    if x.numel() * y.numel() > _MANY:
        require_elements(torch.broadcast_shapes(x.shape, y.shape), "broadcasting")
    if x.dtype == y.dtype:
        return x, y
    wider = torch.promote_types(x.dtype, y.dtype)
    return x.to(wider), y.to(wider)


def add(x: Tensor, y: Tensor) -> Tensor:
    """x + y"""
    return torch.add(*_together(x, y))


def sub(x: Tensor, y: Tensor) -> Tensor:
    """x - y"""
    return torch.sub(*_together(x, y))


def mul(x: Tensor, y: Tensor) -> Tensor:
    """x * y"""
    return torch.mul(*_together(x, y))


def maximum(x: Tensor, y: Tensor) -> Tensor:
    """max(x, y)"""
    return torch.maximum(*_together(x, y))


def minimum(x: Tensor, y: Tensor) -> Tensor:
    """min(x, y)"""
    return torch.minimum(*_together(x, y))


def real_div(x: Tensor, y: Tensor) -> Tensor:
    """x / y; of integers, rounded towards zero"""
    x, y = _together(x, y)
    if x.dtype.is_floating_point:
        return x / y
    return _by_nonzero(x, y, "trunc")


def floor_div(x: Tensor, y: Tensor) -> Tensor:
    """floor(x / y)"""
    x, y = _together(x, y)
    if x.dtype.is_floating_point:
        return torch.floor(x / y)
    return _by_nonzero(x, y, "floor")


def _by_nonzero(x: Tensor, y: Tensor, rounding: str) -> Tensor:
    """An integer quotient; where the divisor is zero, which the specification leaves open, it is zero.

    A divisor of -1 negates instead: the processor traps on the least integer divided by it.
    """
    zero, minus = y == 0, y == -1
    quotient = torch.div(x, torch.where(zero | minus, 1, y), rounding_mode=rounding)
    return torch.where(zero, 0, torch.where(minus, -x, quotient)).to(x.dtype)


def mod(x: Tensor, y: Tensor) -> Tensor:
    """x - floor(x / y) * y, with the sign of y"""
    x, y = _together(x, y)
    if x.dtype.is_floating_point:
        return torch.remainder(x, y)
    return x - _by_nonzero(x, y, "floor") * y


def pow(x: Tensor, y: Tensor) -> Tensor:
    """x ** y"""
    x, y = _together(x, y)
    if x.dtype.is_floating_point or not bool((y < 0).any()):
        return torch.pow(x, y)
    return torch.pow(x.double(), y.double()).trunc().to(x.dtype)


def equal(x: Tensor, y: Tensor) -> Tensor:
    """x == y"""
    return torch.eq(*_together(x, y))


def not_equal(x: Tensor, y: Tensor) -> Tensor:
    """x != y"""
    return torch.ne(*_together(x, y))


def greater(x: Tensor, y: Tensor) -> Tensor:
    """x > y"""
    return torch.gt(*_together(x, y))


def greater_equal(x: Tensor, y: Tensor) -> Tensor:
    """x >= y"""
    return torch.ge(*_together(x, y))


def less(x: Tensor, y: Tensor) -> Tensor:
    """x < y"""
    return torch.lt(*_together(x, y))


def less_equal(x: Tensor, y: Tensor) -> Tensor:
    """x <= y"""
    return torch.le(*_together(x, y))


def logical_and(x: Tensor, y: Tensor) -> Tensor:
    """x and y"""
    return torch.logical_and(x, y)


def logical_or(x: Tensor, y: Tensor) -> Tensor:
    """x or y"""
    return torch.logical_or(x, y)


def logical_xor(x: Tensor, y: Tensor) -> Tensor:
    """x != y, of bools"""
    return torch.logical_xor(x, y)


def logical_not(x: Tensor) -> Tensor:
    """not x"""
    return torch.logical_not(x)


def select(cond: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """a where cond holds, else b"""
    return torch.where(cond.bool(), *_together(a, b))


def _float(function: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """A function of floats; an integer operand, which the oldest opsets took, gives an integer result."""
    if x.dtype.is_floating_point:
        return function(x)
    return function(x.float()).to(x.dtype)


def abs(x: Tensor) -> Tensor:
    """|x|"""
    return torch.abs(x)


def acos(x: Tensor) -> Tensor:
    """arc cosine"""
    return _float(torch.acos, x)


def asin(x: Tensor) -> Tensor:
    """arc sine"""
    return _float(torch.asin, x)


def atan(x: Tensor) -> Tensor:
    """arc tangent"""
    return _float(torch.atan, x)


def atanh(x: Tensor) -> Tensor:
    """inverse hyperbolic tangent"""
    return _float(torch.atanh, x)


def ceil(x: Tensor) -> Tensor:
    """least integer not below x"""
    return torch.ceil(x)


def clip(x: Tensor, alpha: Tensor, beta: Tensor) -> Tensor:
    """min(max(x, alpha), beta)"""
    return torch.clamp(x, alpha.to(x.dtype), beta.to(x.dtype))


def cos(x: Tensor) -> Tensor:
    """cosine"""
    return _float(torch.cos, x)


def cosh(x: Tensor) -> Tensor:
    """hyperbolic cosine"""
    return _float(torch.cosh, x)


def erf(x: Tensor) -> Tensor:
    """error function"""
    return _float(torch.erf, x)


def exp(x: Tensor) -> Tensor:
    """e ** x"""
    return _float(torch.exp, x)


def exp2(x: Tensor) -> Tensor:
    """2 ** x"""
    return _float(torch.exp2, x)


def floor(x: Tensor) -> Tensor:
    """greatest integer not above x"""
    return torch.floor(x)


def inverse(x: Tensor, epsilon: float = 1e-4) -> Tensor:
    """1 / (x + epsilon)"""
    return 1 / (x + epsilon)


def log(x: Tensor, epsilon: float = 1e-45) -> Tensor:
    """log(x + epsilon)"""
    return torch.log(x + epsilon)


def round(x: Tensor) -> Tensor:
    """nearest integer, halves to even"""
    return torch.round(x)


def rsqrt(x: Tensor, epsilon: float = 1e-12) -> Tensor:
    """1 / sqrt(x + epsilon)"""
    return torch.rsqrt(x + epsilon)


def sign(x: Tensor) -> Tensor:
    """-1, 0 or 1"""
    return torch.sign(x)


def sin(x: Tensor) -> Tensor:
    """sine"""
    return _float(torch.sin, x)


def sinh(x: Tensor) -> Tensor:
    """hyperbolic sine"""
    return _float(torch.sinh, x)


def sqrt(x: Tensor) -> Tensor:
    """square root"""
    return _float(torch.sqrt, x)


def square(x: Tensor) -> Tensor:
    """x * x"""
    return x * x


def tan(x: Tensor) -> Tensor:
    """tangent"""
    return _float(torch.tan, x)


def tanh(x: Tensor) -> Tensor:
    """hyperbolic tangent"""
    return _float(torch.tanh, x)


def threshold(x: Tensor, alpha: Tensor) -> Tensor:
    """max(x, alpha)"""
    return torch.maximum(x, alpha.to(x.dtype))


def cast(x: Tensor, dtype: str) -> Tensor:
    """x in another element type; floats are cut towards zero, integers wrap"""
    element = element_type(dtype)
    if element.carrier is None:
        raise ValueError(f"cannot cast to {dtype}")
    if element.carrier == torch.bool:
        return x != 0
    if not element.is_integer:
        return x.to(element.carrier)
    if x.dtype.is_floating_point:
        # What lies outside the type is undefined in the specification; the nearest value is taken, NaN as zero.
        low, high = element.limits
        whole = torch.nan_to_num(x.double().trunc(), nan=0.0, posinf=high, neginf=low).clamp(low, high)
        return whole.to(torch.int64).to(element.carrier)
    return _wrapped(x, element.bits, element.signed).to(element.carrier)


def _wrapped(x: Tensor, bits: int, signed: bool) -> Tensor:
    """Integers reduced to the range of a type, as its low bits read."""
    if bits >= 64:
        return x
    low = x.to(torch.int64) & ((1 << bits) - 1)
    return torch.where(low >= 1 << (bits - 1), low - (1 << bits), low) if signed else low
