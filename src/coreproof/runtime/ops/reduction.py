"""Reductions over axes; no axes means all."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from .convert import Ints


def _over(function: Callable[..., Tensor], x: Tensor, axes: Ints | None, keep_dims: bool) -> Tensor:
    """A reduction of torch's over axes: none given means all, an empty list means each value by itself."""
    chosen = list(range(x.dim())) if axes is None else axes
    if not chosen:  # torch takes an empty list for all axes
        return function(x[..., None], [-1], keepdim=False)
    return function(x, chosen, keepdim=keep_dims)


def _prod(x: Tensor, axes: Ints, keepdim: bool) -> Tensor:
    """torch.prod, which takes one axis only, over several."""
    for axis in sorted({axis % x.dim() for axis in axes}, reverse=True):
        x = torch.prod(x, axis, keepdim=keepdim)
    return x


def reduce_argmax(x: Tensor, axis: int = -1, keep_dims: bool = False) -> Tensor:
    """The index of the greatest value along an axis, the first of equals"""
    return torch.argmax(x, axis, keepdim=keep_dims)


def reduce_argmin(x: Tensor, axis: int = -1, keep_dims: bool = False) -> Tensor:
    """The index of the least value along an axis, the first of equals"""
    return torch.argmin(x, axis, keepdim=keep_dims)


def reduce_argmax_ios17(x: Tensor, axis: int = -1, keep_dims: bool = False, output_dtype: str = "int32") -> Tensor:
    """As before, with an index type"""
    return reduce_argmax(x, axis, keep_dims)


def reduce_argmin_ios17(x: Tensor, axis: int = -1, keep_dims: bool = False, output_dtype: str = "int32") -> Tensor:
    """As before, with an index type"""
    return reduce_argmin(x, axis, keep_dims)


def reduce_l1_norm(x: Tensor, axes: Ints | None = None, keep_dims: bool = False) -> Tensor:
    """sum(|x|)"""
    return _over(torch.sum, torch.abs(x), axes, keep_dims)


def reduce_l2_norm(x: Tensor, axes: Ints | None = None, keep_dims: bool = False) -> Tensor:
    """sqrt(sum(x ** 2))"""
    total = _over(torch.sum, x * x, axes, keep_dims)
    return torch.sqrt(total) if total.dtype.is_floating_point else torch.sqrt(total.double()).to(torch.int64)


def reduce_log_sum(x: Tensor, axes: Ints | None = None, keep_dims: bool = False) -> Tensor:
    """log(sum(x))"""
    total = _over(torch.sum, x, axes, keep_dims)
    return torch.log(total) if total.dtype.is_floating_point else torch.log(total.double()).to(torch.int64)


def reduce_log_sum_exp(x: Tensor, axes: Ints | None = None, keep_dims: bool = False) -> Tensor:
    """log(sum(exp(x)))"""
    floats = x if x.dtype.is_floating_point else x.double()
    result = _over(torch.logsumexp, floats, axes, keep_dims)
    return result if x.dtype.is_floating_point else result.to(torch.int64)


def reduce_max(x: Tensor, axes: Ints | None = None, keep_dims: bool = False) -> Tensor:
    """max(x)"""
    return _over(torch.amax, x, axes, keep_dims)


def reduce_mean(x: Tensor, axes: Ints | None = None, keep_dims: bool = False) -> Tensor:
    """sum(x) / count; of integers, cut towards zero"""
    if x.dtype.is_floating_point:
        return _over(torch.mean, x, axes, keep_dims)
    return _over(torch.mean, x.double(), axes, keep_dims).to(torch.int64)


def reduce_min(x: Tensor, axes: Ints | None = None, keep_dims: bool = False) -> Tensor:
    """min(x)"""
    return _over(torch.amin, x, axes, keep_dims)


def reduce_prod(x: Tensor, axes: Ints | None = None, keep_dims: bool = False) -> Tensor:
    """The product of the values"""
    return _over(_prod, x, axes, keep_dims)


def reduce_sum(x: Tensor, axes: Ints | None = None, keep_dims: bool = False) -> Tensor:
    """The sum of the values"""
    return _over(torch.sum, x, axes, keep_dims)


def reduce_sum_square(x: Tensor, axes: Ints | None = None, keep_dims: bool = False) -> Tensor:
    """sum(x ** 2)"""
    return _over(torch.sum, x * x, axes, keep_dims)
