"""Ops that make, join, cut, order and pad tensors."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from ..memory import require_elements
from .convert import Ints, Tensors


def argsort(x: Tensor, axis: int = -1, ascending: bool = False) -> Tensor:
    """The indices that order an axis; equal values keep their order"""
    return torch.argsort(x, dim=axis, descending=not ascending, stable=True)


def band_part(x: Tensor, lower: int = -1, upper: int = -1) -> Tensor:
    """x with zeros outside `lower` diagonals below and `upper` above the main one; -1 keeps all"""
    low = x if lower < 0 else torch.triu(x, -lower)
    return low if upper < 0 else torch.tril(low, upper)


def concat(values: Tensors, axis: int, interleave: bool = False) -> Tensor:
    """The values one after another along an axis, or entry by entry in turn"""
    if values[0].dim() == 0:
        return torch.stack(values)
    if not interleave:
        return torch.cat(values, axis)
    axis = axis % values[0].dim()
    return torch.stack(values, axis + 1).flatten(axis, axis + 1)


def cumsum(x: Tensor, axis: int = 0, exclusive: bool = False, reverse: bool = False) -> Tensor:
    """Running sums along an axis; exclusive: without the entry itself; reverse: from the end"""
    x = x.flip(axis) if reverse else x
    total = torch.cumsum(x, axis)
    if exclusive:  # not total - x, which is nan where x is infinite
        first = total.new_zeros([1 if i == axis % x.dim() else size for i, size in enumerate(x.shape)])
        total = torch.cat([first, total], axis).narrow(axis, 0, x.shape[axis])
    return total.flip(axis) if reverse else total


def fill(shape: Ints, value: Tensor | None = None) -> Tensor:
    """A tensor full of a value"""
    require_elements(shape, "fill")
    value = torch.zeros(()) if value is None else value
    return value.reshape(()).expand(shape).clone()


def fill_like_ios16(ref_tensor: Tensor, value: Tensor | None = None) -> Tensor:
    """A tensor of the reference's shape full of a value"""
    return fill(list(ref_tensor.shape), value)


def flatten2d(x: Tensor, axis: int = 1) -> Tensor:
    """Two dimensions: those before the axis, and the rest"""
    axis = axis if axis >= 0 else axis + x.dim()
    return x.reshape(math.prod(x.shape[:axis]), math.prod(x.shape[axis:]))


def identity(x: object) -> object:
    """x"""
    return x


def non_zero(x: Tensor) -> Tensor:
    """The positions of the values that are not zero, one row each"""
    return torch.nonzero(x)


def one_hot(
    indices: Tensor,
    one_hot_vector_size: int,
    axis: int = -1,
    on_value: Tensor | None = None,
    off_value: Tensor | None = None,
) -> Tensor:
    """`on_value` at the index along a new axis, `off_value` elsewhere; an index outside has no place"""
    require_elements([*indices.shape, one_hot_vector_size], "one_hot")
    on = torch.ones((), dtype=torch.int32) if on_value is None else on_value
    off = torch.zeros((), dtype=on.dtype) if off_value is None else off_value
    whole = indices.to(torch.int64)
    found = torch.where(whole < 0, whole + one_hot_vector_size, whole)[..., None] == torch.arange(one_hot_vector_size)
    rank = indices.dim() + 1
    return torch.where(found, on.reshape(()), off.reshape(()).to(on.dtype)).movedim(-1, axis % rank)


_PAD_MODES = {"reflect": "reflect", "replicate": "replicate"}


def pad(x: Tensor, pad: Ints, mode: str = "constant", constant_val: Tensor | None = None) -> Tensor:
    """The last dimensions longer by pad[2i] before and pad[2i + 1] after"""
    count = len(pad) // 2
    if len(pad) % 2 or count > x.dim() or any(amount < 0 for amount in pad):
        raise ValueError(f"pad {pad} for shape {list(x.shape)}")
    pairs = [(pad[2 * i], pad[2 * i + 1]) for i in range(count)]
    sizes = [s + a + b for s, (a, b) in zip(x.shape[x.dim() - count :], pairs, strict=True)]
    require_elements([*x.shape[: x.dim() - count], *sizes], "pad")
    amounts = [amount for pair in reversed(pairs) for amount in pair]
    if mode == "constant":
        value = 0 if constant_val is None else constant_val.item()
        return F.pad(x.to(torch.uint8) if x.dtype == torch.bool else x, amounts, value=value).to(x.dtype)
    if mode not in _PAD_MODES:
        raise ValueError(f"unknown mode {mode!r}; expected constant, reflect or replicate")
    for axis, (before, after) in enumerate(pairs, x.dim() - count):
        x = _reached(x, axis, before, after, mode) if before or after else x
    return x


def _reached(x: Tensor, axis: int, before: int, after: int, mode: str) -> Tensor:
    """One axis extended by its mirrored or its outermost entries."""
    size = x.shape[axis]
    if (mode == "reflect" and max(before, after) >= size) or not size:
        raise ValueError(f"cannot pad axis {axis} of size {size} by {before} and {after} with mode {mode}")
    positions = torch.arange(-before, size + after)
    if mode == "replicate":
        positions = positions.clamp(0, size - 1)
    else:
        positions = positions.abs()
        positions = torch.where(positions >= size, 2 * (size - 1) - positions, positions)
    return x.index_select(axis, positions)


def range_1d(end: Tensor, start: Tensor, step: Tensor) -> Tensor:
    """start, start + step, ... up to end, which is left out"""
    first, last, by = (one.reshape(()).item() for one in (start, end, step))
    if by == 0 or any(value != value or value in (float("inf"), float("-inf")) for value in (first, last, by)):
        raise ValueError(f"range from {first} to {last} by {by}")
    # The count is rounded as the values are: 0.3 / 0.1 is 3 in float32, and a little more than 3 in float64.
    steps = ((end - start) / step).ceil().item() if start.dtype.is_floating_point else -((first - last) // by)
    count = max(0, int(steps))
    require_elements([count], "range_1d")
    return start.reshape(()) + torch.arange(count, dtype=start.dtype) * step.reshape(())


def shape(x: Tensor) -> Tensor:
    """The sizes of x"""
    return torch.tensor(list(x.shape), dtype=torch.int32)


def split(x: Tensor, axis: int, num_splits: int | None = None, split_sizes: Ints | None = None) -> list[Tensor]:
    """x cut along an axis, into equal parts or parts of the sizes given"""
    axis = axis % x.dim()
    if split_sizes is None:
        if not num_splits or x.shape[axis] % num_splits:
            raise ValueError(f"axis {axis} of shape {list(x.shape)} in {num_splits} equal parts")
        split_sizes = [x.shape[axis] // num_splits] * num_splits
    return list(torch.split(x, split_sizes, axis))


def stack(values: Tensors, axis: int) -> Tensor:
    """The values side by side along a new axis"""
    return torch.stack(values, axis)


def tile(x: Tensor, reps: Ints) -> Tensor:
    """x repeated along each axis"""
    if len(reps) != x.dim() or any(count < 1 for count in reps):
        raise ValueError(f"reps {reps} for shape {list(x.shape)}")
    require_elements([s * count for s, count in zip(x.shape, reps, strict=True)], "tile")
    return x.repeat(reps)


def topk(x: Tensor, k: int = 1, axis: int = -1, ascending: bool = False) -> list[Tensor]:
    """The k greatest (or least) values of an axis in order, and their indices; the first of equals comes first"""
    return topk_ios16(x, k, axis, ascending)


def topk_ios16(
    x: Tensor, k: int = 1, axis: int = -1, ascending: bool = False, sort: bool = True, return_indices: bool = True
) -> list[Tensor]:
    """As before; unsorted ones are sorted all the same"""
    size = x.shape[axis]
    k = size if k == -1 else k
    if not 0 <= k <= size:
        raise ValueError(f"k is {k}; axis {axis} has {size} entries")
    values, indices = torch.sort(x, dim=axis, descending=not ascending, stable=True)
    found = [values.narrow(axis, 0, k), indices.narrow(axis, 0, k)]
    return found if return_indices else found[:1]


def topk_ios17(
    x: Tensor,
    k: int = 1,
    axis: int = -1,
    ascending: bool = False,
    sort: bool = True,
    return_indices: bool = True,
    output_indices_dtype: str = "int32",
) -> list[Tensor]:
    """As before, with an index type"""
    return topk_ios16(x, k, axis, ascending, sort, return_indices)
