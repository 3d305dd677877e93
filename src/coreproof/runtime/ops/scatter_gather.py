"""Reading and writing at indices.

Negative indices count from the end; others outside are an error, also where the
specification leaves their effect undefined.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from ..memory import require_elements


def _in_range(indices: Tensor, size: int, negative: bool = True) -> Tensor:
    """The indices as int64, none negative; `negative`: whether they may count from the end."""
    whole = indices.to(torch.int64)
    if negative:
        whole = torch.where(whole < 0, whole + size, whole)
    if whole.numel() and (int(whole.min()) < 0 or int(whole.max()) >= size):
        raise ValueError(f"an index lies outside the size {size}")
    return whole


def gather(x: Tensor, indices: Tensor, axis: int = 0) -> Tensor:
    """x's entries at indices of an axis; the indices' dimensions take the axis's place"""
    return gather_ios16(x, indices, axis)


def gather_ios16(x: Tensor, indices: Tensor, axis: int = 0, batch_dims: int = 0) -> Tensor:
    """As before, entry by entry of the first `batch_dims` dimensions, which x and the indices share"""
    return gather_ios17(x, indices, axis, batch_dims)


def gather_ios17(
    x: Tensor, indices: Tensor, axis: int = 0, batch_dims: int = 0, validate_indices: bool = False
) -> Tensor:
    """As before; validated indices may not be negative"""
    axis, batch_dims = axis % max(1, x.dim()), batch_dims % indices.dim() if batch_dims < 0 else batch_dims
    shared = _shared(x, indices, batch_dims)
    if axis < batch_dims:
        raise ValueError(f"axis {axis} lies in the {batch_dims} batch dimensions")
    whole = _in_range(indices, x.shape[axis], not validate_indices)
    middle, after = x.shape[batch_dims:axis], x.shape[axis + 1 :]
    require_elements([*x.shape[:axis], *indices.shape[batch_dims:], *after], "gather")
    if batch_dims == 0:
        picked = torch.index_select(x, axis, whole.reshape(-1))
    else:
        entries = math.prod(shared)
        moved = x.movedim(axis, batch_dims).reshape(entries, x.shape[axis], *middle, *after)
        rows = whole.reshape(entries, -1) if entries else whole.reshape(0, math.prod(indices.shape[batch_dims:]))
        picked = moved[torch.arange(entries)[:, None], rows].movedim(1, 1 + len(middle))
    return picked.reshape([*shared, *middle, *indices.shape[batch_dims:], *after])


def _shared(x: Tensor, indices: Tensor, batch_dims: int) -> torch.Size:
    """The sizes of the batch dimensions."""
    if x.shape[:batch_dims] != indices.shape[:batch_dims] or batch_dims > min(x.dim(), indices.dim()):
        raise ValueError(f"{batch_dims} batch dimensions of {list(x.shape)} and {list(indices.shape)} differ")
    return x.shape[:batch_dims]


def gather_along_axis(x: Tensor, indices: Tensor, axis: int = 0) -> Tensor:
    """x's entries at indices of an axis, position by position in the others"""
    return gather_along_axis_ios17(x, indices, axis)


def gather_along_axis_ios17(x: Tensor, indices: Tensor, axis: int = 0, validate_indices: bool = False) -> Tensor:
    """As before; validated indices may not be negative"""
    return torch.gather(x, axis, _in_range(indices, x.shape[axis], not validate_indices))


def gather_nd(x: Tensor, indices: Tensor) -> Tensor:
    """x[i0, i1, ...] for each row of the indices' last dimension"""
    return gather_nd_ios17(x, indices)


def gather_nd_ios16(x: Tensor, indices: Tensor, batch_dims: int = 0) -> Tensor:
    """As before, entry by entry of the first `batch_dims` dimensions"""
    return gather_nd_ios17(x, indices, batch_dims)


def gather_nd_ios17(x: Tensor, indices: Tensor, batch_dims: int = 0, validate_indices: bool = False) -> Tensor:
    """As before; validated indices may not be negative"""
    shared = _shared(x, indices, batch_dims)
    require_elements([*indices.shape[:-1], *x.shape[batch_dims + indices.shape[-1] :]], "gather_nd")
    positions = _positions(indices, x.shape[batch_dims:], not validate_indices)
    between = indices.dim() - 1 - batch_dims
    entries = [
        torch.arange(size).reshape([-1 if i == axis else 1 for i in range(batch_dims + between)])
        for axis, size in enumerate(shared)
    ]
    return x[tuple(entries) + positions]


def _positions(indices: Tensor, shape: torch.Size, negative: bool = True) -> tuple[Tensor, ...]:
    if indices.shape[-1] > len(shape):
        raise ValueError(f"rows of {indices.shape[-1]} indices for shape {list(shape)}")
    return tuple(_in_range(indices[..., axis], shape[axis], negative) for axis in range(indices.shape[-1]))


_COMBINE: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "add": torch.add,
    "sub": torch.sub,
    "mul": torch.mul,
    "div": torch.div,
    "max": torch.maximum,
    "min": torch.minimum,
    "update": lambda old, new: new,
}


def _combined(data: Tensor, positions: Tensor, updates: Tensor, mode: str, in_place: bool) -> Tensor:
    """data (flat) with updates at positions, one after another where a position repeats."""
    if mode not in _COMBINE:
        raise ValueError(f"unknown mode {mode!r}; expected {', '.join(_COMBINE)}")
    result, updates = data if in_place else data.clone(), updates.to(data.dtype)
    if mode in ("add", "sub"):
        return result.index_add_(0, positions, updates, alpha=1 if mode == "add" else -1)
    if mode in ("max", "min", "mul"):
        reduce = {"max": "amax", "min": "amin", "mul": "prod"}[mode]
        return result.scatter_reduce_(0, positions, updates, reduce)
    order = torch.argsort(positions, stable=True)
    positions, updates = positions[order], updates[order]
    last = torch.cat([positions[1:] != positions[:-1], torch.ones(min(1, positions.numel()), dtype=torch.bool)])
    if mode == "update":  # the last of equal positions stays
        result[positions[last]] = updates[last]
        return result
    for position, update in zip(positions.tolist(), updates, strict=True):
        result[position] = torch.div(
            result[position], update, rounding_mode=None if data.dtype.is_floating_point else "trunc"
        )
    return result


def scatter(
    data: Tensor, indices: Tensor, updates: Tensor, axis: int = 0, mode: str = "add", *, in_place: bool = False
) -> Tensor:
    """data with updates at indices of an axis; the indices' dimensions stand in the axis's place in the updates"""
    return scatter_ios17(data, indices, updates, axis, mode, in_place=in_place)


def scatter_ios17(
    data: Tensor,
    indices: Tensor,
    updates: Tensor,
    axis: int = 0,
    mode: str = "add",
    validate_indices: bool = False,
    *,
    in_place: bool = False,
) -> Tensor:
    """As before; validated indices may not be negative"""
    axis = axis % max(1, data.dim())
    whole = _in_range(indices, data.shape[axis], not validate_indices).reshape(-1)
    _require_shape(updates, [*data.shape[:axis], *indices.shape, *data.shape[axis + 1 :]])
    moved = data.movedim(axis, 0)
    flat = updates.reshape(*data.shape[:axis], whole.numel(), *data.shape[axis + 1 :]).movedim(axis, 0)
    inner = math.prod(moved.shape[1:])
    positions = (whole[:, None] * inner + torch.arange(inner)).reshape(-1)
    return (
        _combined(moved.reshape(-1), positions, flat.reshape(-1), mode, in_place).reshape(moved.shape).movedim(0, axis)
    )


def _require_shape(updates: Tensor, expected: list[int]) -> None:
    if list(updates.shape) != expected:
        raise ValueError(f"updates have shape {list(updates.shape)}; expected {expected}")


def scatter_along_axis(
    data: Tensor, indices: Tensor, updates: Tensor, axis: int = 0, mode: str = "add", *, in_place: bool = False
) -> Tensor:
    """data with updates at indices of an axis, position by position in the others"""
    return scatter_along_axis_ios17(data, indices, updates, axis, mode, in_place=in_place)


def scatter_along_axis_ios17(
    data: Tensor,
    indices: Tensor,
    updates: Tensor,
    axis: int = 0,
    mode: str = "add",
    validate_indices: bool = False,
    *,
    in_place: bool = False,
) -> Tensor:
    """As before; validated indices may not be negative"""
    axis = axis % max(1, data.dim())
    whole = _in_range(indices, data.shape[axis], not validate_indices)
    _require_shape(whole, [*data.shape[:axis], whole.shape[axis], *data.shape[axis + 1 :]])
    _require_shape(updates, list(whole.shape))
    grid = list(torch.meshgrid(*(torch.arange(s) for s in whole.shape), indexing="ij"))
    grid[axis] = whole
    return _combined(data.reshape(-1), _flat(grid, data.shape), updates.reshape(-1), mode, in_place).reshape(data.shape)


def scatter_nd(data: Tensor, indices: Tensor, updates: Tensor, mode: str = "add", *, in_place: bool = False) -> Tensor:
    """data with updates at [i0, i1, ...] for each row of the indices' last dimension"""
    return scatter_nd_ios17(data, indices, updates, mode, in_place=in_place)


def scatter_nd_ios17(
    data: Tensor,
    indices: Tensor,
    updates: Tensor,
    mode: str = "add",
    validate_indices: bool = False,
    *,
    in_place: bool = False,
) -> Tensor:
    """As before; validated indices may not be negative"""
    depth = indices.shape[-1]
    rows = _positions(indices, data.shape, not validate_indices)
    _require_shape(updates, [*indices.shape[:-1], *data.shape[depth:]])
    inner = math.prod(data.shape[depth:])
    starts = _flat(list(rows), data.shape[:depth]) * inner
    positions = (starts[:, None] + torch.arange(inner)).reshape(-1)
    return _combined(data.reshape(-1), positions, updates.reshape(-1), mode, in_place).reshape(data.shape)


def _flat(positions: list[Tensor], shape: torch.Size) -> Tensor:
    total = torch.zeros_like(positions[0])
    for position, size in zip(positions, shape, strict=True):
        total = total * size + position
    return total.reshape(-1)
