"""Converters of the linear family."""

from __future__ import annotations

from typing import Any

from coremltools.converters.mil.mil import Builder as mb
from coremltools.converters.mil.mil import Var

from .arguments import as_dtype, constant, literal, mil_dtype, operand
from .registry import converter


@converter("addmm", "baddbmm")
def addmm(context: Any, node: Any) -> None:
    """addmm(Tensor self, Tensor mat1, Tensor mat2, *, Scalar beta=1, Scalar alpha=1) -> Tensor

    The factors may be ints or floats, given by position or keyword; with beta 0 `self` is not read, so that its NaN and
    infinities do not show.
    """
    dtype = mil_dtype(node)
    first, left, right = (
        as_dtype(operand(context, node, keyword, position), dtype)
        for position, keyword in enumerate(("self", "mat1", "mat2"))
    )
    product = _times(node, "alpha", 4, mb.matmul(x=left, y=right), dtype)
    beta = literal(node, "beta", 3, default=1)
    if beta == 0:
        shape = [int(size) for size in node.meta["val"].shape]
        context.add(mb.add(x=product, y=mb.fill(shape=shape, value=constant(0, dtype)), name=node.name))
    else:
        context.add(mb.add(x=_times(node, "beta", 3, first, dtype), y=product, name=node.name))


def _times(node: Any, keyword: str, position: int, value: Var, dtype: str) -> Var:
    factor = literal(node, keyword, position, default=1)
    return value if factor == 1 else mb.mul(x=value, y=constant(factor, dtype))
