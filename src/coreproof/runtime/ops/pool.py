"""Pooling in one, two and three dimensions."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from ..memory import require_elements
from .convert import Ints
from .windows import for_torch, window_padding

_AVERAGE = {1: F.avg_pool1d, 2: F.avg_pool2d, 3: F.avg_pool3d}
_MAX = {1: F.max_pool1d, 2: F.max_pool2d, 3: F.max_pool3d}


def avg_pool(
    x: Tensor,
    kernel_sizes: Ints,
    pad_type: str,
    strides: Ints | None = None,
    pad: Ints | None = None,
    exclude_padding_from_average: bool = False,
    ceil_mode: bool = False,
) -> Tensor:
    """The mean of each window; padding counts as zeros, or not at all"""
    window = _Windows(x, kernel_sizes, strides, pad_type, pad, ceil_mode)
    ones = torch.ones((1, 1, *x.shape[2:]), dtype=x.dtype)
    if not exclude_padding_from_average:
        ones = F.pad(ones, for_torch(window.padding), value=1.0)
    more = window.beyond if not exclude_padding_from_average else window.ends
    return window.sums(F.pad(x, for_torch(window.ends))) / window.sums(F.pad(ones, for_torch(more)))


def l2_pool(
    x: Tensor,
    kernel_sizes: Ints,
    pad_type: str,
    strides: Ints | None = None,
    pad: Ints | None = None,
    ceil_mode: bool = False,
) -> Tensor:
    """The square root of the sum of squares of each window"""
    window = _Windows(x, kernel_sizes, strides, pad_type, pad, ceil_mode)
    return window.sums(F.pad(x, for_torch(window.ends)).square()).sqrt()


def max_pool(
    x: Tensor,
    kernel_sizes: Ints,
    pad_type: str,
    strides: Ints | None = None,
    pad: Ints | None = None,
    ceil_mode: bool = False,
) -> Tensor:
    """The greatest value of each window; padding never counts"""
    window = _Windows(x, kernel_sizes, strides, pad_type, pad, ceil_mode)
    padded = F.pad(x, for_torch(window.ends), value=float("-inf"))
    return _MAX[len(kernel_sizes)](padded, kernel_sizes, window.strides)


class _Windows:
    """Where the windows of one call lie.

    Attributes:
        padding: before and after each dimension, as declared.
        beyond: what `ceil_mode` adds after each dimension to complete a last window; it never counts.
        ends: both together.
    """

    def __init__(
        self, x: Tensor, kernel: Ints, strides: Ints | None, pad_type: str, pad: Ints | None, ceil_mode: bool
    ) -> None:
        rank = x.dim() - 2
        if rank not in _MAX or len(kernel) != rank:
            raise ValueError(f"x has shape {list(x.shape)} and kernel_sizes {kernel}; expected rank 3 to 5")
        self.kernel, self.strides = kernel, strides or [1] * rank
        self.padding = window_padding(pad_type, x.shape[2:], kernel, self.strides, [1] * rank, pad)
        self.beyond = [(0, 0)] * rank
        if ceil_mode:
            self.beyond = [
                (0, _to_complete(x.shape[2 + i], kernel[i], self.strides[i], self.padding[i])) for i in range(rank)
            ]
        self.ends = [(a, b + more) for (a, b), (_, more) in zip(self.padding, self.beyond, strict=True)]
        require_elements([*x.shape[:2], *(s + a + b for s, (a, b) in zip(x.shape[2:], self.ends, strict=True))], "pool")

    def sums(self, padded: Tensor) -> Tensor:
        """The sum of each window."""
        return _AVERAGE[len(self.kernel)](padded, self.kernel, self.strides) * math.prod(self.kernel)


def _to_complete(size: int, kernel: int, stride: int, padding: tuple[int, int]) -> int:
    """How much a last window that starts within x or the padding before it reaches beyond the end."""
    length = size + sum(padding)
    count = -(-(length - kernel) // stride) + 1
    if (count - 1) * stride >= size + padding[0]:
        count -= 1
    return max(0, (count - 1) * stride + kernel - length)
