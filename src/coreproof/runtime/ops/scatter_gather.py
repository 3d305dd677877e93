"""Reading and writing at indices. Negative indices count from the end; others outside are an error."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from ..memory import require_elements


def _in_range(indices: Tensor, size: int) -> Tensor:
    """The indices as int64, none negative."""
    whole = indices.to(torch.int64)
    whole = torch.where(whole < 0, whole + size, whole)
    if whole.numel() and (int(whole.min()) < 0 or int(whole.max()) >= size):
        raise ValueError(f"an index lies outside the size {size}")
    return whole


def gather(x: Tensor, indices: Tensor, axis: int = 0) -> Tensor:
    """x's entries at indices of an axis; the indices' dimensions take the axis's place"""
    return gather_ios16(x, indices, axis)


def gather_ios16(x: Tensor, indices: Tensor, axis: int = 0, batch_dims: int = 0) -> Tensor:
    """As before, entry by entry of the first `batch_dims` dimensions, which x and the indices share"""
    axis = axis % max(1, x.dim())
    batch_dims = batch_dims % indices.dim() if batch_dims < 0 else batch_dims
    whole = _in_range(indices, x.shape[axis])
    require_elements([*x.shape[:axis], *indices.shape[batch_dims:], *x.shape[axis + 1 :]], "gather")
    if batch_dims == 0:
        picked = torch.index_select(x, axis, whole.reshape(-1))
        return picked.reshape(*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :])
    entries = zip(x.flatten(0, batch_dims - 1), whole.flatten(0, batch_dims - 1), strict=True)
    results = torch.stack([gather_ios16(one, index, axis - batch_dims) for one, index in entries])
    return results.reshape(*x.shape[:batch_dims], *results.shape[1:])


def gather_ios17(
    x: Tensor, indices: Tensor, axis: int = 0, batch_dims: int = 0, validate_indices: bool = True
) -> Tensor:
    """As before; whether Core ML checks the indices changes no value that is defined"""
    return gather_ios16(x, indices, axis, batch_dims)


def gather_along_axis(x: Tensor, indices: Tensor, axis: int = 0) -> Tensor:
    """x's entries at indices of an axis, position by position in the others"""
    return torch.gather(x, axis, _in_range(indices, x.shape[axis]))


def gather_along_axis_ios17(x: Tensor, indices: Tensor, axis: int = 0, validate_indices: bool = True) -> Tensor:
    """As before"""
    return gather_along_axis(x, indices, axis)


def gather_nd(x: Tensor, indices: Tensor) -> Tensor:
    """x[i0, i1, ...] for each row of the indices' last dimension"""
    return gather_nd_ios16(x, indices)


def gather_nd_ios16(x: Tensor, indices: Tensor, batch_dims: int = 0) -> Tensor:
    """As before, entry by entry of the first `batch_dims` dimensions"""
    if batch_dims == 0:
        return x[_positions(indices, x.shape)]
    entries = zip(x.flatten(0, batch_dims - 1), indices.flatten(0, batch_dims - 1), strict=True)
    results = torch.stack([gather_nd_ios16(one, index) for one, index in entries])
    return results.reshape(*x.shape[:batch_dims], *results.shape[1:])


def gather_nd_ios17(x: Tensor, indices: Tensor, batch_dims: int = 0, validate_indices: bool = True) -> Tensor:
    """As before"""
    return gather_nd_ios16(x, indices, batch_dims)


def _positions(indices: Tensor, shape: torch.Size) -> tuple[Tensor, ...]:
    if indices.shape[-1] > len(shape):
        raise ValueError(f"rows of {indices.shape[-1]} indices for shape {list(shape)}")
    return tuple(_in_range(indices[..., axis], shape[axis]) for axis in range(indices.shape[-1]))


_COMBINE: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "add": torch.add,
    "sub": torch.sub,
    "mul": torch.mul,
    "div": torch.div,
    "max": torch.maximum,
    "min": torch.minimum,
    "update": lambda old, new: new,
}


def _combined(data: Tensor, positions: Tensor, updates: Tensor, mode: str) -> Tensor:
    """data (flat) with updates at positions, one after another where a position repeats."""
    if mode not in _COMBINE:
        raise ValueError(f"unknown mode {mode!r}; expected {', '.join(_COMBINE)}")
    result, updates = data.clone(), updates.to(data.dtype)
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


def scatter(data: Tensor, indices: Tensor, updates: Tensor, axis: int = 0, mode: str = "add") -> Tensor:
    """data with updates at indices of an axis; the indices' dimensions stand in the axis's place in the updates"""
    axis = axis % data.dim()
    whole = _in_range(indices, data.shape[axis]).reshape(-1)
    moved = data.movedim(axis, 0)
    flat = updates.reshape(*data.shape[:axis], -1, *data.shape[axis + 1 :]).movedim(axis, 0)
    inner = moved[0].numel() if data.shape[axis] else 0
    positions = (whole[:, None] * inner + torch.arange(inner)).reshape(-1)
    return _combined(moved.reshape(-1), positions, flat.reshape(-1), mode).reshape(moved.shape).movedim(0, axis)


def scatter_ios17(
    data: Tensor, indices: Tensor, updates: Tensor, axis: int = 0, mode: str = "add", validate_indices: bool = True
) -> Tensor:
    """As before"""
    return scatter(data, indices, updates, axis, mode)


def scatter_along_axis(data: Tensor, indices: Tensor, updates: Tensor, axis: int = 0, mode: str = "add") -> Tensor:
    """data with updates at indices of an axis, position by position in the others"""
    axis = axis % data.dim()
    whole = _in_range(indices, data.shape[axis])
    grid = list(torch.meshgrid(*(torch.arange(s) for s in whole.shape), indexing="ij"))
    grid[axis] = whole
    return _combined(data.reshape(-1), _flat(grid, data.shape), updates.reshape(-1), mode).reshape(data.shape)


def scatter_along_axis_ios17(
    data: Tensor, indices: Tensor, updates: Tensor, axis: int = 0, mode: str = "add", validate_indices: bool = True
) -> Tensor:
    """As before"""
    return scatter_along_axis(data, indices, updates, axis, mode)


def scatter_nd(data: Tensor, indices: Tensor, updates: Tensor, mode: str = "add") -> Tensor:
    """data with updates at [i0, i1, ...] for each row of the indices' last dimension"""
    depth = indices.shape[-1]
    rows = _positions(indices, data.shape)
    inner = 1
    for size in data.shape[depth:]:
        inner *= size
    starts = _flat(list(rows), data.shape[:depth]) * inner
    positions = (starts[:, None] + torch.arange(inner)).reshape(-1)
    return _combined(data.reshape(-1), positions, updates.reshape(-1), mode).reshape(data.shape)


def scatter_nd_ios17(
    data: Tensor, indices: Tensor, updates: Tensor, mode: str = "add", validate_indices: bool = True
) -> Tensor:
    """As before"""
    return scatter_nd(data, indices, updates, mode)


def _flat(positions: list[Tensor], shape: torch.Size) -> Tensor:
    total = torch.zeros_like(positions[0])
    for position, size in zip(positions, shape, strict=True):
        total = total * size + position
    return total.reshape(-1)
