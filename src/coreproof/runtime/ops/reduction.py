"""Reductions over axes; no axes means all."""

from __future__ import annotations

import torch
from torch import Tensor

from .convert import Ints


def _axes(x: Tensor, axes: Ints | None) -> Ints:
    return list(range(x.dim())) if axes is None else axes


def _one_by_one(x: Tensor, axes: Ints | None, keep_dims: bool, reduce: str) -> Tensor:
    """A reduction that torch has for one dimension only."""
    chosen = sorted({axis % max(1, x.dim()) for axis in _axes(x, axes)}, reverse=True)
    for axis in chosen:
        x = getattr(torch, reduce)(x, axis, keepdim=keep_dims)
    return x


def reduce_argmax(x: Tensor, axis: int = -1, keep_dims: bool = False) -> Tensor:
    """The index of the greatest value along an axis, the first of equals"""
    return _first(x == torch.amax(x, axis, keepdim=True), axis, keep_dims)


def reduce_argmin(x: Tensor, axis: int = -1, keep_dims: bool = False) -> Tensor:
    """The index of the least value along an axis, the first of equals"""
    return _first(x == torch.amin(x, axis, keepdim=True), axis, keep_dims)


def reduce_argmax_ios17(x: Tensor, axis: int = -1, keep_dims: bool = False, output_dtype: str = "int32") -> Tensor:
    """As before, with an index type"""
    return reduce_argmax(x, axis, keep_dims)


def reduce_argmin_ios17(x: Tensor, axis: int = -1, keep_dims: bool = False, output_dtype: str = "int32") -> Tensor:
    """As before, with an index type"""
    return reduce_argmin(x, axis, keep_dims)


def _first(found: Tensor, axis: int, keep_dims: bool) -> Tensor:
    return torch.argmax(found.to(torch.int8), axis, keepdim=keep_dims)


def reduce_l1_norm(x: Tensor, axes: Ints | None = None, keep_dims: bool = False) -> Tensor:
    """sum(|x|)"""
    return torch.sum(torch.abs(x), _axes(x, axes), keepdim=keep_dims)


def reduce_l2_norm(x: Tensor, axes: Ints | None = None, keep_dims: bool = False) -> Tensor:
    """sqrt(sum(x ** 2))"""
    total = torch.sum(x * x, _axes(x, axes), keepdim=keep_dims)
    return torch.sqrt(total) if total.dtype.is_floating_point else torch.sqrt(total.double()).to(torch.int64)


def reduce_log_sum(x: Tensor, axes: Ints | None = None, keep_dims: bool = False) -> Tensor:
    """log(sum(x))"""
    total = torch.sum(x, _axes(x, axes), keepdim=keep_dims)
    return torch.log(total) if total.dtype.is_floating_point else torch.log(total.double()).to(torch.int64)


def reduce_log_sum_exp(x: Tensor, axes: Ints | None = None, keep_dims: bool = False) -> Tensor:
    """log(sum(exp(x)))"""
    floats = x if x.dtype.is_floating_point else x.double()
    result = torch.logsumexp(floats, _axes(x, axes), keepdim=keep_dims)
    return result if x.dtype.is_floating_point else result.to(torch.int64)


def reduce_max(x: Tensor, axes: Ints | None = None, keep_dims: bool = False) -> Tensor:
    """max(x)"""
    return torch.amax(x, _axes(x, axes), keepdim=keep_dims)


def reduce_mean(x: Tensor, axes: Ints | None = None, keep_dims: bool = False) -> Tensor:
    """sum(x) / count; of integers, rounded down"""
    if x.dtype.is_floating_point:
        return torch.mean(x, _axes(x, axes), keepdim=keep_dims)
    return torch.mean(x.double(), _axes(x, axes), keepdim=keep_dims).floor().to(torch.int64)


def reduce_min(x: Tensor, axes: Ints | None = None, keep_dims: bool = False) -> Tensor:
    """min(x)"""
    return torch.amin(x, _axes(x, axes), keepdim=keep_dims)


def reduce_prod(x: Tensor, axes: Ints | None = None, keep_dims: bool = False) -> Tensor:
    """The product of the values"""
    return _one_by_one(x, axes, keep_dims, "prod")


def reduce_sum(x: Tensor, axes: Ints | None = None, keep_dims: bool = False) -> Tensor:
    """The sum of the values"""
    return torch.sum(x, _axes(x, axes), keepdim=keep_dims)


def reduce_sum_square(x: Tensor, axes: Ints | None = None, keep_dims: bool = False) -> Tensor:
    """sum(x ** 2)"""
    return torch.sum(x * x, _axes(x, axes), keepdim=keep_dims)
