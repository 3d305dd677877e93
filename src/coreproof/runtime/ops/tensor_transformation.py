"""Ops that rearrange values."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from ..memory import require_elements
from .convert import Bools, Ints, Tensors


def _axis(axis: int, rank: int) -> int:
    if not -rank <= axis < rank:
        raise ValueError(f"axis {axis} for rank {rank}")
    return axis % rank


def depth_to_space(x: Tensor, block_size: int) -> Tensor:
    """[n, C, H, W] to [n, C / b**2, H * b, W * b]; the blocks' positions are the slowest part of the channels"""
    n, channels, height, width = x.shape
    b = block_size
    blocks = x.reshape(n, b, b, channels // (b * b), height, width)
    return blocks.permute(0, 3, 4, 1, 5, 2).reshape(n, channels // (b * b), height * b, width * b)


def space_to_depth(x: Tensor, block_size: int) -> Tensor:
    """[n, C, H, W] to [n, C * b**2, H / b, W / b]; the reverse of depth_to_space"""
    n, channels, height, width = x.shape
    b = block_size
    blocks = x.reshape(n, channels, height // b, b, width // b, b)
    return blocks.permute(0, 3, 5, 1, 2, 4).reshape(n, channels * b * b, height // b, width // b)


def batch_to_space(x: Tensor, block_shape: Ints, crops: Tensor) -> Tensor:
    """[n, C, H, W] to [n / prod(block), C, H * b0, W * b1], then cropped"""
    n, channels, height, width = x.shape
    b0, b1 = block_shape
    blocks = x.reshape(b0, b1, n // (b0 * b1), channels, height, width)
    whole = blocks.permute(2, 3, 4, 0, 5, 1).reshape(n // (b0 * b1), channels, height * b0, width * b1)
    (top, bottom), (left, right) = crops.tolist()
    return whole.narrow(2, top, height * b0 - top - bottom).narrow(3, left, width * b1 - left - right)


def space_to_batch(x: Tensor, block_shape: Ints, paddings: Tensor) -> Tensor:
    """[n, C, H, W], padded with zeros, to [n * prod(block), C, H / b0, W / b1]"""
    (top, bottom), (left, right) = paddings.tolist()
    require_elements([*x.shape[:2], x.shape[2] + top + bottom, x.shape[3] + left + right], "space_to_batch")
    padded = F.pad(x, [left, right, top, bottom])
    n, channels, height, width = padded.shape
    b0, b1 = block_shape
    blocks = padded.reshape(n, channels, height // b0, b0, width // b1, b1)
    return blocks.permute(3, 5, 0, 1, 2, 4).reshape(n * b0 * b1, channels, height // b0, width // b1)


def pixel_shuffle(x: Tensor, upscale_factor: int) -> Tensor:
    """[n, C * f**2, H, W] to [n, C, H * f, W * f]"""
    return F.pixel_shuffle(x, upscale_factor)


def pixel_unshuffle_ios16(x: Tensor, downscale_factor: int) -> Tensor:
    """[n, C, H * f, W * f] to [n, C * f**2, H, W]"""
    return F.pixel_unshuffle(x, downscale_factor)


def expand_dims(x: Tensor, axes: Ints) -> Tensor:
    """Sizes of 1 at axes of the result"""
    rank = x.dim() + len(axes)
    for axis in sorted(_axis(axis, rank) for axis in axes):
        x = x.unsqueeze(axis)
    return x


def squeeze(x: Tensor, axes: Ints | None = None) -> Tensor:
    """Without those of the axes whose sizes are 1; none given: all such"""
    return x.squeeze() if axes is None else x.squeeze([_axis(axis, x.dim()) for axis in axes])


def reshape(x: Tensor, shape: Ints) -> Tensor:
    """The same values in another shape; 0 keeps x's size there, -1 takes what is left"""
    if 0 in shape and (x.numel() or len(shape) == x.dim()):
        if len(shape) != x.dim():
            raise ValueError(f"shape {shape} has zeros and another rank than x, {list(x.shape)}")
        shape = [have if want == 0 else want for have, want in zip(x.shape, shape, strict=True)]
    return x.reshape(shape)


def reshape_ios17(x: Tensor, shape: Ints) -> Tensor:
    """As before; zeros match x's sizes counted from the right, and are 1 beyond them"""
    if 0 in shape and (x.numel() or len(shape) == x.dim()):
        padded = [1] * max(0, len(shape) - x.dim()) + list(x.shape)[max(0, x.dim() - len(shape)) :]
        shape = [have if want == 0 else want for have, want in zip(padded, shape, strict=True)]
    return x.reshape(shape)


def reshape_like_ios16(x: Tensor, ref_tensors: Tensors, begins: Tensors, ends: Tensors, end_masks: Tensors) -> Tensor:
    """x in the shape that parts of the shapes of the reference tensors make together"""
    shape: list[int] = []
    for ref, begin, end, mask in zip(ref_tensors, begins, ends, end_masks, strict=True):
        shape += ref.shape[int(begin) : None if bool(mask) else int(end)]
    return x.reshape(shape)


def reverse(x: Tensor, axes: Ints | None = None) -> Tensor:
    """The order of axes reversed; none given: all"""
    return torch.flip(x, list(range(x.dim())) if axes is None else axes)


def reverse_sequence(x: Tensor, lengths: Tensor, seq_axis: int = 0, batch_axis: int = 0) -> Tensor:
    """For each entry of the batch axis, the first `length` entries of the sequence axis in reverse"""
    moved = x.movedim((batch_axis, seq_axis), (0, 1)).clone()
    if bool((lengths < 0).any() or (lengths > x.shape[seq_axis]).any()):
        raise ValueError(f"lengths {lengths.tolist()} for a sequence of {x.shape[seq_axis]}")
    for entry, length in zip(moved, lengths.tolist(), strict=True):
        entry[: int(length)] = entry[: int(length)].flip(0)
    return moved.movedim((0, 1), (batch_axis, seq_axis))


def slice_by_index(
    x: Tensor,
    begin: Ints,
    end: Ints,
    stride: Ints | None = None,
    begin_mask: Bools | None = None,
    end_mask: Bools | None = None,
    squeeze_mask: Bools | None = None,
) -> Tensor:
    """x[begin : end : stride] in each dimension; a mask ignores begin or end, or takes the one entry at begin"""
    where = _where(x, begin, end, stride, begin_mask, end_mask, squeeze_mask)
    return _taken(x, where)


def slice_update_ios18(
    x: Tensor,
    update: Tensor,
    begin: Ints,
    end: Ints,
    stride: Ints | None = None,
    begin_mask: Bools | None = None,
    end_mask: Bools | None = None,
    squeeze_mask: Bools | None = None,
    *,
    in_place: bool = False,
) -> Tensor:
    """x with the update in place of what slice_by_index takes"""
    where = _where(x, begin, end, stride, begin_mask, end_mask, squeeze_mask)
    forward, turned = _forward(x, where)
    changed = x if in_place else x.clone(memory_format=torch.contiguous_format)
    part = changed[forward]
    if update.dim() and update.shape != part.shape:
        raise ValueError(f"the update has shape {list(update.shape)}; expected {list(part.shape)}")
    part.copy_(update.flip(turned) if turned and update.dim() else update)
    return changed


def _where(
    x: Tensor,
    begin: Ints,
    end: Ints,
    stride: Ints | None,
    begin_mask: Bools | None,
    end_mask: Bools | None,
    squeeze_mask: Bools | None,
) -> list[slice | int]:
    rank = x.dim()
    steps = stride or [1] * rank
    no = [False] * rank
    masks = (begin_mask or no, end_mask or no, squeeze_mask or no)
    if any(len(one) != rank for one in (begin, end, steps, *masks)) or 0 in steps:
        raise ValueError(f"begin {begin}, end {end} and stride {steps} for shape {list(x.shape)}")
    where: list[slice | int] = []
    for axis in range(rank):
        if masks[2][axis]:
            index = 0 if masks[0][axis] else begin[axis]
            if not -x.shape[axis] <= index < x.shape[axis]:
                raise ValueError(f"begin {index} lies outside axis {axis} of size {x.shape[axis]}")
            where.append(index)
        else:
            first = None if masks[0][axis] else begin[axis]
            last = None if masks[1][axis] else end[axis]
            where.append(slice(first, last, steps[axis]))
    return where


def _taken(x: Tensor, where: list[slice | int]) -> Tensor:
    forward, turned = _forward(x, where)
    return x[forward].flip(turned) if turned else x[forward]


def _forward(x: Tensor, where: list[slice | int]) -> tuple[tuple[slice | int, ...], list[int]]:
    """The same places with positive steps, as torch has no others, and the axes of x[places] to turn round."""
    forward: list[slice | int] = []
    turned = []
    kept = 0
    for size, one in zip(x.shape, where, strict=True):
        if isinstance(one, slice) and one.step < 0:
            wanted = range(size)[one]
            forward.append(slice(wanted[-1], wanted[0] + 1, -one.step) if len(wanted) else slice(0, 0))
            turned.append(kept)
        else:
            forward.append(one)
        kept += isinstance(one, slice)
    return tuple(forward), turned


def slice_by_size(x: Tensor, begin: Ints, size: Ints) -> Tensor:
    """`size` entries from `begin` on in each dimension; -1: up to the end"""
    if len(begin) != x.dim() or len(size) != x.dim():
        raise ValueError(f"begin {begin} and size {size} for shape {list(x.shape)}")
    where = []
    for have, first, count in zip(x.shape, begin, size, strict=True):
        first = first + have if first < 0 else first
        last = have if count == -1 else first + count
        if not 0 <= first <= last <= have:
            raise ValueError(f"begin {begin} and size {size} reach beyond shape {list(x.shape)}")
        where.append(slice(first, last))
    return x[tuple(where)]


def sliding_windows(x: Tensor, axis: int, size: int, stride: int = 1) -> Tensor:
    """Windows of an axis: its size becomes the number of windows, their size a new axis after it"""
    axis = _axis(axis, x.dim())
    windows = x.unfold(axis, size, stride).movedim(-1, axis + 1)
    require_elements(windows.shape, "sliding_windows")
    return windows


def transpose(x: Tensor, perm: Ints) -> Tensor:
    """The axes in another order"""
    return x.permute(perm)
