"""Converters of the scatter_gather family: reads and writes at places that other tensors name.

coremltools 9.0 takes index tensors of one shape without a whole slice, or one
entry each with one, and a scatter or gather whose index has the data's size in
every other dimension. The converters here take every form whose result has a
shape that follows from the shapes of its operands, and refuse the others.

Bool data goes through int32, because MIL scatters and gathers no bool. A
negative index is wrapped here for scatters, which leave it undefined from
iOS 17 on; for gathers coremltools has a pass that does it.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from coremltools.converters.mil._deployment_compatibility import AvailableTarget
from coremltools.converters.mil.frontend.torch import ops as torch_frontend_ops
from coremltools.converters.mil.mil import Builder as mb
from coremltools.converters.mil.mil import Var, types
from coremltools.converters.mil.mil.block import is_current_opset_version_compatible_with
from coremltools.converters.mil.mil.types.symbolic import is_symbolic

from .arguments import as_dtype, broadcast_to_shape, literal, mil_dtype, operand
from .registry import converter

_MAX_RANK = 5  # apple/coremltools#1723


def _work_dtype(dtype: str) -> str:
    return "int32" if dtype == "bool" else dtype


def _size(x: Var, axis: int) -> Any:
    """The size of a dimension: an int, or a MIL vector of one entry where it is symbolic."""
    size = x.shape[axis]
    return mb.slice_by_index(x=mb.shape(x=x), begin=[axis], end=[axis + 1]) if is_symbolic(size) else int(size)


def _vector(sizes: Sequence[Any]) -> Any:
    """Entries as `_size` makes them, as a tuple of ints or one MIL vector."""
    if all(isinstance(size, int) for size in sizes):
        return tuple(sizes)
    return mb.concat(values=[np.array([size], np.int32) if isinstance(size, int) else size for size in sizes], axis=0)


def _of_rank(x: Var, rank: int) -> Var:
    return mb.expand_dims(x=x, axes=list(range(rank - x.rank))) if x.rank < rank else x


def _broadcast(x: Var, sizes: Sequence[Any]) -> Var:
    """`x` (of as many dimensions as `sizes`) with its dimensions of size 1 repeated to `sizes`.

    A symbolic dimension is never 1 (torch.export makes another program for that), so it has its size already.
    """
    grows = any(old == 1 and not (isinstance(new, int) and new == 1) for old, new in zip(x.shape, sizes, strict=True))
    return broadcast_to_shape(x, _vector(sizes)) if grows else x


class _Places:
    """The places that a list of index tensors names in `x`, as torch's advanced indexing does.

    Attributes:
        axes: the indexed dimensions of `x`.
        rest: the other ones.
        indices: an int32 value for each of `axes`; all have one shape, of rank 1 at least.
        sizes: that shape, entries as `_size` makes them.
        position: where its dimensions stand among `rest` in the indexed view: first, unless `axes` are neighbours.
        single: torch has no dimension in that place, because every index is 0-d; here there is one of size 1.
    """

    def __init__(self, x: Var, indices: dict[int, Var]) -> None:
        self.axes = sorted(indices)
        self.rest = [axis for axis in range(x.rank) if axis not in indices]
        rank = max(index.rank for index in indices.values())
        self.single = rank == 0
        aligned = [_of_rank(indices[axis], max(rank, 1)) for axis in self.axes]
        self.sizes = [
            next((_size(index, d) for index in aligned if index.shape[d] != 1), 1) for d in range(max(rank, 1))
        ]
        self.indices = [_broadcast(index, self.sizes) for index in aligned]
        neighbours = self.axes[-1] - self.axes[0] == len(self.axes) - 1
        self.position = self.axes[0] if neighbours else 0

    def along_last(self) -> Var:
        """The coordinates of each place as the last dimension, for `gather_nd` and `scatter_nd`."""
        return mb.stack(values=self.indices, axis=len(self.sizes))

    def places_first(self) -> list[int]:
        """The permutation that puts the places' dimensions of the indexed view before its others."""
        before, end = list(range(self.position)), self.position + len(self.sizes)
        return [*range(self.position, end), *before, *range(end, len(self.rest) + len(self.sizes))]


def _record(context: Any, node: Any, x: Var, *steps: Callable[..., Var] | None) -> None:
    """Record what `steps`, each an op of one operand `x` or nothing, make of `x`; the last op has the node's name."""
    *first, last = (step for step in steps if step)
    for step in first:
        x = step(x=x)
    context.add(last(x=x, name=node.name), node.name)


def _cast_back(work: str, dtype: str) -> Callable[..., Var] | None:
    return partial(mb.cast, dtype=dtype) if work != dtype else None


def _transposed(x: Var, perm: list[int]) -> Var:
    return mb.transpose(x=x, perm=perm) if perm != sorted(perm) else x


def _inverse(perm: list[int]) -> list[int]:
    return [perm.index(axis) for axis in range(len(perm))]


def _known_mask(index: Var) -> bool:
    return types.is_bool(index.dtype) and index.can_be_folded_to_const()


def _by_axis(context: Any, node: Any) -> dict[int, Var] | None:
    """The index tensors by the dimension that they index, a constant bool mask as the places where it is true.

    None means that there is no place at all.

    Raises:
        NotImplementedError: the number of places depends on data.
    """
    by_axis: dict[int, Var] = {}
    axis = 0
    for index in operand(context, node, "indices", 1):
        if index is None:
            axis += 1
        elif types.is_bool(index.dtype):
            if not _known_mask(index) or not index.rank:
                raise NotImplementedError(
                    f"{node.kind} is indexed by a bool mask of shape {index.shape}, so that its shape "
                    "depends on data: use torch.where, a mask with one value for all places, or leave the op on the CPU"
                )
            places = np.nonzero(index.val)
            if not places[0].size:
                return None
            by_axis.update({axis + d: mb.const(val=place.astype(np.int32)) for d, place in enumerate(places)})
            axis += index.rank
        elif 0 in index.shape:
            return None
        else:
            by_axis[axis] = as_dtype(index, "int32")
            axis += 1
    return by_axis


def _wrapped(index: Var, size: Any) -> Var:
    """`index` with `size` added where it is negative."""
    if index.can_be_folded_to_const():
        if np.all(np.asarray(index.val) >= 0):
            return index
        if isinstance(size, int):
            return mb.const(val=np.where(index.val < 0, index.val + size, index.val).astype(np.int32))
    return mb.select(cond=mb.greater_equal(x=index, y=0), a=index, b=mb.add(x=index, y=size))


@converter("index_put", "_unsafe_index_put")
def index_put(context: Any, node: Any) -> None:
    """index_put(Tensor self, Tensor?[] indices, Tensor values, bool accumulate=False) -> Tensor

    Raises:
        NotImplementedError: the number of places depends on data and `values` has a value for each.
    """
    dtype = mil_dtype(node)
    work = _work_dtype(dtype)
    name = {"name": node.name} if work == dtype else {}
    x = as_dtype(operand(context, node, "self", 0), work)
    values = as_dtype(as_dtype(operand(context, node, "values", 2), dtype), work)
    accumulate = bool(literal(node, "accumulate", 3, default=False))
    indices = operand(context, node, "indices", 1)
    given = [axis for axis, index in enumerate(indices) if index is not None]
    mask = indices[given[0]] if len(given) == 1 else None
    if mask is not None and types.is_bool(mask.dtype) and not _known_mask(mask):
        result = _put_masked(node, x, mask, given[0], values, accumulate, **name)
    else:
        by_axis = _by_axis(context, node)
        if by_axis is None:
            result = mb.identity(x=x, **name)
        elif not by_axis:
            raise NotImplementedError(f"{node.kind} has no index: write the values with copy_ instead")
        else:
            result = _put_at(node, x, by_axis, values, accumulate, **name)
    context.add(as_dtype(result, dtype, name=node.name), node.name)


def _put_masked(node: Any, x: Var, mask: Var, axis: int, values: Var, accumulate: bool, **name: str) -> Var:
    """`x` with `values` where `mask`, which covers the dimensions from `axis` on, is true.

    In the indexed view the masked dimensions are one, of a length known at run time: `values` must not depend on it.
    """
    if not mask.rank:
        raise NotImplementedError(f"{node.kind} is indexed by a 0-d bool: use torch.where")
    values = _of_rank(values, x.rank - mask.rank + 1)
    if values.shape[axis] != 1:
        raise NotImplementedError(
            f"{node.kind} puts {values.shape[axis]} values at the places of a bool mask, whose number is "
            "known at run time only: put one value at all of them, use torch.where, or leave the op on the CPU"
        )
    if mask.rank > 1:
        values = mb.expand_dims(x=values, axes=list(range(axis + 1, axis + mask.rank)))
    trailing = x.rank - axis - mask.rank
    if trailing:
        mask = mb.expand_dims(x=mask, axes=list(range(mask.rank, mask.rank + trailing)))
    return mb.select(cond=mask, a=mb.add(x=x, y=values) if accumulate else values, b=x, **name)


def _put_at(node: Any, x: Var, by_axis: dict[int, Var], values: Var, accumulate: bool, **name: str) -> Var:
    """`x` with `values` at places whose number is known from the shapes of the index tensors."""
    places = _Places(x, {axis: _wrapped(index, _size(x, axis)) for axis, index in by_axis.items()})
    rest, position, block = places.rest, places.position, len(places.sizes)
    if len(rest) + block > _MAX_RANK:
        raise NotImplementedError(
            f"{node.kind} puts values of rank {len(rest) + block}, and Core ML has at most rank "
            f"{_MAX_RANK}: flatten the index tensors"
        )
    if places.single:
        values = mb.expand_dims(x=_of_rank(values, len(rest)), axes=[position])
    else:
        values = _of_rank(values, len(rest) + block)
    one = all(isinstance(size, int) and size == 1 for size in places.sizes)
    if one and rest and not accumulate and is_current_opset_version_compatible_with(AvailableTarget.iOS18):
        return _put_slice(x, places, values, **name)
    sizes = [_size(x, axis) for axis in rest]
    sizes[position:position] = places.sizes
    values = _broadcast(values, sizes)
    mode = "add" if accumulate else "update"
    if len(places.axes) == block == 1:
        return mb.scatter(data=x, indices=places.indices[0], updates=values, axis=places.axes[0], mode=mode, **name)
    perm = places.axes + rest
    moved = perm != sorted(perm)
    result = mb.scatter_nd(
        data=_transposed(x, perm),
        indices=places.along_last(),
        updates=_transposed(values, places.places_first()),
        mode=mode,
        **({} if moved else name),
    )
    return mb.transpose(x=result, perm=_inverse(perm), **name) if moved else result


def _put_slice(x: Var, places: _Places, values: Var, **name: str) -> Var:
    """The update of a cache at one place: a `slice_update`, which unlike a scatter may stay on the Neural Engine."""
    block = len(places.sizes)
    values = mb.squeeze(x=values, axes=list(range(places.position, places.position + block)))
    values = mb.expand_dims(x=values, axes=places.axes)
    values = _broadcast(values, [1 if axis in places.axes else _size(x, axis) for axis in range(x.rank)])
    begin: list[Any] = [0] * x.rank
    for axis, index in zip(places.axes, places.indices, strict=True):
        begin[axis] = mb.reshape(x=index, shape=[1]) if block > 1 else index
    end = [b if isinstance(b, int) else mb.add(x=b, y=1) for b in begin]
    whole = [axis in places.rest for axis in range(x.rank)]
    return mb.slice_update(
        x=x,
        update=values,
        begin=_vector(begin),
        end=_vector(end),
        stride=[1] * x.rank,
        begin_mask=whole,
        end_mask=whole,
        squeeze_mask=[False] * x.rank,
        **name,
    )


@converter("index", "_unsafe_index")
def index(context: Any, node: Any) -> None:
    """index.Tensor(Tensor self, Tensor?[] indices) -> Tensor

    Raises:
        NotImplementedError: the shape of the result depends on data, or it has no elements.
    """
    dtype = mil_dtype(node)
    work = _work_dtype(dtype)
    x = as_dtype(operand(context, node, "self", 0), work)
    by_axis = _by_axis(context, node)
    if not by_axis:
        raise NotImplementedError(f"{node.kind} names no place: Core ML has no tensor without elements")
    places = _Places(x, by_axis)
    back = _inverse(places.places_first())
    if len(by_axis) == 1:
        read, back = partial(mb.gather, indices=places.indices[0], axis=places.axes[0]), sorted(back)
    else:
        x = _transposed(x, places.axes + places.rest)
        read = partial(mb.gather_nd, indices=places.along_last())
    _record(
        context,
        node,
        x,
        read,
        partial(mb.transpose, perm=back) if back != sorted(back) else None,
        partial(mb.squeeze, axes=[places.position]) if places.single else None,
        _cast_back(work, dtype),
    )


@converter("index_select")
def index_select(context: Any, node: Any) -> None:
    """index_select(Tensor self, int dim, Tensor index) -> Tensor; a 0-d index keeps the dimension, of size 1"""
    dtype = mil_dtype(node)
    work = _work_dtype(dtype)
    x = as_dtype(operand(context, node, "self", 0), work)
    indices = _of_rank(as_dtype(operand(context, node, "index", 2), "int32"), 1)
    read = partial(mb.gather, indices=indices, axis=literal(node, "dim", 1))
    _record(context, node, x, read, _cast_back(work, dtype))


def _cut(x: Var, index: Var, but: int | None = None) -> Var:
    """The first entries of `x` in each dimension, as many as `index` has, except in the dimension `but`."""
    axes = [axis for axis in range(x.rank) if axis != but]
    if all(x.shape[axis] == index.shape[axis] for axis in axes):
        return x
    size = [_size(index, axis) if axis in axes else -1 for axis in range(x.rank)]
    return mb.slice_by_size(x=x, begin=[0] * x.rank, size=_vector(size))


@converter("gather")
def gather(context: Any, node: Any) -> None:
    """gather(Tensor self, int dim, Tensor index, *, bool sparse_grad=False) -> Tensor"""
    dtype = mil_dtype(node)
    work = _work_dtype(dtype)
    x = _of_rank(as_dtype(operand(context, node, "self", 0), work), 1)
    indices = as_dtype(operand(context, node, "index", 2), "int32")
    axis = literal(node, "dim", 1) % x.rank
    places = _of_rank(indices, 1)
    read = partial(mb.gather_along_axis, indices=places, axis=axis)
    scalar = None if indices.rank else partial(mb.squeeze, axes=[0])
    _record(context, node, _cut(x, places, but=axis), read, scalar, _cast_back(work, dtype))


_MODES = {None: "update", "add": "add", "multiply": "mul"}


@converter("scatter", "scatter.src", "scatter.value", "scatter.reduce", "scatter.value_reduce")
def scatter(context: Any, node: Any) -> None:
    """scatter.src(Tensor self, int dim, Tensor index, Tensor src) -> Tensor; .value, .reduce, .value_reduce alike"""
    keyword = "value" if "value" in node.kind else "src"
    _scatter(context, node, keyword, _MODES[literal(node, "reduce", 4)])


@converter("scatter_add")
def scatter_add(context: Any, node: Any) -> None:
    """scatter_add(Tensor self, int dim, Tensor index, Tensor src) -> Tensor"""
    _scatter(context, node, "src", "add")


def _scatter(context: Any, node: Any, keyword: str, mode: str) -> None:
    dtype = mil_dtype(node)
    work = _work_dtype(dtype)
    x = as_dtype(operand(context, node, "self", 0), work)
    data = _of_rank(x, 1)
    indices = _of_rank(as_dtype(operand(context, node, "index", 2), "int32"), 1)
    axis = literal(node, "dim", 1) % data.rank
    source = as_dtype(as_dtype(operand(context, node, keyword, 3), dtype), work)
    if source.rank:
        source = _cut(source, indices)
    else:
        source = broadcast_to_shape(source, _vector([_size(indices, d) for d in range(indices.rank)]))
    others = [d for d in range(data.rank) if d != axis]
    if all(data.shape[d] == indices.shape[d] for d in others):
        write, places = partial(mb.scatter_along_axis, axis=axis), indices
    elif any(is_symbolic(size) for size in indices.shape):
        raise NotImplementedError(
            f"{node.kind} has an index of shape {indices.shape} into data of shape {data.shape}: a "
            "symbolic size must be the same in both"
        )
    else:
        grid = np.indices(indices.shape, np.int32)
        places = mb.stack(values=[indices if d == axis else grid[d] for d in range(data.rank)], axis=data.rank)
        write = mb.scatter_nd

    def step(x: Var, **name: str) -> Var:
        return write(data=x, indices=places, updates=source, mode=mode, **name)

    scalar = None if x.rank else partial(mb.squeeze, axes=[0])
    _record(context, node, data, step, scalar, _cast_back(work, dtype))


@converter("select_scatter")
def select_scatter(context: Any, node: Any) -> None:
    """select_scatter(Tensor self, Tensor src, int dim, SymInt index) -> Tensor"""
    _through_int32(context, node, torch_frontend_ops.select_scatter)


@converter("slice_scatter")
def slice_scatter(context: Any, node: Any) -> None:
    """slice_scatter(Tensor self, Tensor src, int dim=0, SymInt? start=None, SymInt? end=None, SymInt step=1)"""
    _through_int32(context, node, torch_frontend_ops.slice_scatter)


def _through_int32(context: Any, node: Any, convert: Any) -> None:
    """Run a converter of coremltools that takes no bool data; bool `self` and `src` reach it as int32."""
    if mil_dtype(node) != "bool":
        convert(context, node)
        return
    stand_in = copy.copy(node)
    stand_in.name = f"{node.name}_int32"
    stand_in.inputs = list(node.inputs)
    for place in (0, 1):
        stand_in.inputs[place] = f"{stand_in.name}_{place}"
        context.add(as_dtype(context[node.inputs[place]], "int32"), stand_in.inputs[place])
    convert(context, stand_in)
    context.add(as_dtype(context[stand_in.name], "bool", name=node.name), node.name)
