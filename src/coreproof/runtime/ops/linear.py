"""Matrix products."""

from __future__ import annotations

import string

import torch
import torch.nn.functional as F
from torch import Tensor

from ..memory import require_elements
from .convert import Tensors

_MANY = 2**24  # elements; below it no product of two matrices is large


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x @ weight.T + bias"""
    require_elements([*x.shape[:-1], weight.shape[0]], "linear")
    if x.dtype.is_floating_point:
        return F.linear(x, weight.to(x.dtype), None if bias is None else bias.to(x.dtype))
    product = torch.matmul(x.to(torch.int64), weight.to(torch.int64).transpose(-1, -2))
    return product if bias is None else product + bias


def matmul(x: Tensor, y: Tensor, transpose_x: bool = False, transpose_y: bool = False) -> Tensor:
    """x @ y over the last two dimensions, with broadcasting; a 1-d operand is a row left, a column right"""
    if transpose_x and x.dim() > 1:
        x = x.transpose(-1, -2)
    if transpose_y and y.dim() > 1:
        y = y.transpose(-1, -2)
    if x.dim() > 1 and y.dim() > 1 and not 0 < x.numel() * y.numel() < _MANY:
        batch = torch.broadcast_shapes(x.shape[:-2], y.shape[:-2])
        require_elements([*batch, x.shape[-2], y.shape[-1]], "matmul")
    wide = torch.promote_types(torch.promote_types(x.dtype, y.dtype), torch.float32 if _float(x, y) else torch.int64)
    return torch.matmul(x.to(wide), y.to(wide))


def _float(x: Tensor, y: Tensor) -> bool:
    return x.dtype.is_floating_point or y.dtype.is_floating_point


def einsum(values: Tensors, equation: str) -> Tensor:
    """The sum of products that the equation names"""
    allowed = set(string.ascii_letters) | set(",->. ")
    if set(equation) - allowed or equation.count("->") != 1:
        raise ValueError(f"equation {equation!r}; expected letters, commas and one arrow")
    terms, result = equation.replace(" ", "").split("->")
    sizes: dict[str, int] = {}
    for term, value in zip(terms.split(","), values, strict=True):
        if "." not in term and len(term) != value.dim():
            raise ValueError(f"equation {equation!r} for a value of shape {list(value.shape)}")
        for letter, size in zip(term, value.shape, strict=False):
            sizes[letter] = max(size, sizes.get(letter, 0))
    if "." not in equation.replace("->", ""):
        require_elements([sizes.get(letter, 1) for letter in result], "einsum")
    return torch.einsum(equation, *values)
