"""Matrix products."""

from __future__ import annotations

import string

import torch
import torch.nn.functional as F
from torch import Tensor

from .convert import Tensors


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x @ weight.T + bias"""
    if x.dtype.is_floating_point:
        return F.linear(x, weight, bias)
    product = torch.matmul(x.to(torch.int64), weight.to(torch.int64).transpose(-1, -2))
    return product if bias is None else product + bias


def matmul(x: Tensor, y: Tensor, transpose_x: bool = False, transpose_y: bool = False) -> Tensor:
    """x @ y over the last two dimensions, with broadcasting; a 1-d operand is a row left, a column right"""
    if transpose_x and x.dim() > 1:
        x = x.transpose(-1, -2)
    if transpose_y and y.dim() > 1:
        y = y.transpose(-1, -2)
    if x.dtype.is_floating_point:
        return torch.matmul(x, y)
    return torch.matmul(x.to(torch.int64), y.to(torch.int64))


def einsum(values: Tensors, equation: str) -> Tensor:
    """The sum of products that the equation names"""
    allowed = set(string.ascii_letters) | set(",->. ")
    if set(equation) - allowed or equation.count("->") != 1:
        raise ValueError(f"equation {equation!r}; expected letters, commas and one arrow")
    return torch.einsum(equation, *values)
