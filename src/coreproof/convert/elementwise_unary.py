"""Converters of functions of one operand: of integers too, without an epsilon, and exact where a difference cancels.

MIL's `log`, `rsqrt` and `inverse` add an epsilon to their operand unless told
otherwise (1e-45, 1e-12 and 1e-4), which torch does not: log(0) would be -103.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from coremltools.converters.mil.mil import Builder as mb
from coremltools.converters.mil.mil import Var, types

from .arguments import as_dtype, constant, literal, mil_dtype, operand
from .registry import converter

_LARGE = 4096.0  # from here on sqrt(x * x + 1) is x in float32


def like(value: float, x: Var) -> Any:
    """A number in the dtype of `x`."""
    return constant(value, types.builtin_to_string(x.dtype))


def log(x: Var, **name: str) -> Var:
    """The natural logarithm, -inf at 0; a keyword `name` names the op."""
    return mb.log(x=x, epsilon=like(0.0, x), **name)


def log1p(x: Var, **name: str) -> Var:
    """log(1 + x) that keeps a tiny x: with u = 1 + x rounded, x * log(u) / (u - 1) corrects the rounding of u.

    The formula is W. Kahan's, as in N. Higham, Accuracy and Stability of Numerical Algorithms, section 1.14.1.
    """
    one = like(1.0, x)
    u = mb.add(x=x, y=one)
    rounded = mb.sub(x=u, y=one)
    near = mb.mul(x=x, y=mb.real_div(x=log(u), y=rounded))
    near = mb.select(cond=mb.equal(x=rounded, y=like(0.0, x)), a=x, b=near)
    return mb.select(cond=mb.greater_equal(x=mb.abs(x=x), y=one), a=log(u), b=near, **name)


def _expm1(x: Var, **name: str) -> Var:
    """exp(x) - 1 = tanh(x / 2) (exp(x) + 1), which keeps a tiny x."""
    return mb.mul(x=mb.tanh(x=mb.mul(x=x, y=like(0.5, x))), y=mb.add(x=mb.exp(x=x), y=like(1.0, x)), **name)


def _acosh(x: Var, **name: str) -> Var:
    """With t = x - 1, log1p(t + sqrt(t) sqrt(t + 2)): exact near 1, and nothing is squared."""
    t = mb.sub(x=x, y=like(1.0, x))
    return log1p(mb.add(x=t, y=mb.mul(x=mb.sqrt(x=t), y=mb.sqrt(x=mb.add(x=t, y=like(2.0, x))))), **name)


def _asinh(x: Var, **name: str) -> Var:
    """Of a = |x|, log1p(a + a² / (1 + sqrt(a² + 1))), or log(2 a) where a is large; with the sign of x."""
    a, one = mb.abs(x=x), like(1.0, x)
    square = mb.mul(x=a, y=a)
    root = mb.sqrt(x=mb.add(x=square, y=one))
    near = log1p(mb.add(x=a, y=mb.real_div(x=square, y=mb.add(x=one, y=root))))
    far = mb.add(x=log(a), y=like(math.log(2.0), x))
    return mb.mul(x=mb.sign(x=x), y=mb.select(cond=mb.greater(x=a, y=like(_LARGE, x)), a=far, b=near), **name)


def _log_sigmoid(x: Var, **name: str) -> Var:
    """min(x, 0) - log1p(exp(-|x|)): no exponential overflows."""
    tail = log1p(mb.exp(x=mb.sub(x=like(0.0, x), y=mb.abs(x=x))))
    return mb.sub(x=mb.minimum(x=x, y=like(0.0, x)), y=tail, **name)


def _truncated(x: Var, **name: str) -> Var:
    """The whole part: rounded towards 0; of an integer itself."""
    if types.is_int(x.dtype):
        return mb.identity(x=x, **name)
    return mb.mul(x=mb.sign(x=x), y=mb.floor(x=mb.abs(x=x)), **name)


def _scaled_log(base: float) -> Callable[..., Var]:
    return lambda x, **name: mb.mul(x=log(x), y=like(1 / math.log(base), x), **name)


# torch op: its function of one MIL value of torch's result dtype.
_FUNCTIONS: dict[str, Callable[..., Var]] = {
    "acos": lambda x, **name: mb.acos(x=x, **name),
    "acosh": _acosh,
    "asin": lambda x, **name: mb.asin(x=x, **name),
    "asinh": _asinh,
    "atan": lambda x, **name: mb.atan(x=x, **name),
    "cos": lambda x, **name: mb.cos(x=x, **name),
    "cosh": lambda x, **name: mb.cosh(x=x, **name),
    "erf": lambda x, **name: mb.erf(x=x, **name),
    "exp": lambda x, **name: mb.exp(x=x, **name),
    "exp2": lambda x, **name: mb.exp2(x=x, **name),
    "expm1": _expm1,
    "log": log,
    "log10": _scaled_log(10.0),
    "log1p": log1p,
    "log_sigmoid": _log_sigmoid,
    "log2": _scaled_log(2.0),
    "reciprocal": lambda x, **name: mb.real_div(x=like(1.0, x), y=x, **name),
    "rsqrt": lambda x, **name: mb.rsqrt(x=x, epsilon=like(0.0, x), **name),
    "sigmoid": lambda x, **name: mb.sigmoid(x=x, **name),
    "sin": lambda x, **name: mb.sin(x=x, **name),
    "sinh": lambda x, **name: mb.sinh(x=x, **name),
    "sqrt": lambda x, **name: mb.sqrt(x=x, **name),
    "tan": lambda x, **name: mb.tan(x=x, **name),
    "trunc": _truncated,
    "tanh": lambda x, **name: mb.tanh(x=x, **name),
}


def _convert(name: str, function: Callable[..., Var]) -> None:
    def convert(context: Any, node: Any) -> None:
        x = as_dtype(operand(context, node, "self", 0), mil_dtype(node))
        context.add(function(x, name=node.name))

    convert.__doc__ = f"{name}(Tensor self) -> Tensor; of integers and bools a float"
    convert.__qualname__ = name
    converter(name)(convert)


for _name, _function in _FUNCTIONS.items():
    _convert(_name, _function)


@converter("log_softmax", "_log_softmax")
def log_softmax(context: Any, node: Any) -> None:
    """log_softmax.int(Tensor self, int dim, ScalarType? dtype=None) -> Tensor; _log_softmax has half_to_float

    The logarithm of a softmax would be that of 0 far below the greatest value, in float16 already 17 below it.
    """
    x = as_dtype(operand(context, node, "self", 0), mil_dtype(node))
    if not x.rank:
        context.add(mb.sub(x=x, y=x, name=node.name))  # of one value it is 0, and NaN of one that is not finite
        return
    axes = [literal(node, "dim", 1)]
    shifted = mb.sub(x=x, y=mb.reduce_max(x=x, axes=axes, keep_dims=True))
    total = mb.reduce_sum(x=mb.exp(x=shifted), axes=axes, keep_dims=True)
    context.add(mb.sub(x=shifted, y=log(total), name=node.name))
