"""Casts of constants of small integers, which Core ML cannot hold as int8 or uint8 tensors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import InputSpec
from torch.fx import Node
from torch.utils._pytree import tree_leaves

from .edit import Edit, constants
from .memory import CASTS, Memory, is_tensor

aten = torch.ops.aten

_SMALL = (torch.int8, torch.uint8)
# Nothing moves: not worth repeating on the cast constant.
_SAME = {*CASTS, aten.alias, aten.detach, aten.detach_, aten.lift_fresh, aten.lift_fresh_copy}
# These repeat elements: applied at run time, so that the constant stays as small as it was.
_LARGER = {aten.broadcast_to, aten.expand, aten.expand_as, aten.repeat, aten.tile}
# Ops whose result is elements of their first operand, each perhaps elsewhere; other tensors they read are indices.
_MOVES = _SAME | _LARGER
_MOVES |= {aten.clone, aten.contiguous, aten.embedding, aten.flatten, aten.flip, aten.gather, aten.index}
_MOVES |= {aten.index_select, aten.matrix_H, aten.mH, aten.movedim, aten.moveaxis, aten.mT, aten.narrow, aten.numpy_T}
_MOVES |= {aten.permute, aten.ravel, aten.reshape, aten.roll, aten.select, aten.slice, aten.squeeze, aten.swapaxes}
_MOVES |= {aten.swapdims, aten.t, aten.take_along_dim, aten.transpose, aten.unflatten, aten.unsqueeze}
_MOVES |= {aten._unsafe_view, aten.view, aten.view_as}


@dataclass(frozen=True)
class _Chain:
    """A constant, the ops that move its elements, and the cast at the end."""

    constant: Node
    moves: tuple[Node, ...]
    cast: Node


def fold_casts(program: ExportedProgram, *, keep: frozenset = frozenset()) -> ExportedProgram:
    """Cast an int8 or uint8 constant now, where the program casts it after moving its elements about.

    Exact: a cast works on each element alone, so it may come before any op that only moves elements
    (`table[rows].float()` is `table.float()[rows]`). Ops on known operands are computed now as well; those that read
    a run-time value, or that repeat elements, are applied to the new constant. Mutable buffers are left alone, and
    so are constants that an op outside ATen reads, which is how quantized weights are stored.
    """
    small = {node: spec for node, spec in constants(program).items() if node.meta["val"].dtype in _SMALL}
    if not small:
        return program
    memory = Memory(program.graph)
    mutable = set(program.graph_signature.buffers_to_mutate.values())
    fixed = [node for node, spec in small.items() if node not in memory.written and spec.target not in mutable]
    chains = [
        chain
        for chain in _chains(program, fixed, memory)
        if keep.isdisjoint(node.target for node in (*chain.moves, chain.cast))
    ]
    if not chains:
        return program
    edit = Edit(program)
    made: dict[tuple[Node, torch.dtype], Node] = {}
    for chain in chains:
        _fold(edit, chain, small[chain.constant], made, memory)
    read_before = {node for chain in chains for node in (chain.constant, *chain.moves)}
    for node in reversed(program.graph.nodes):
        if node in read_before:
            _erase_if_unread(edit, edit.copy_of[node])
    return edit.finish()


def _chains(program: ExportedProgram, fixed: list[Node], memory: Memory) -> list[_Chain]:
    """Every chain from a constant in `fixed` that no op outside ATen reads."""
    paths: dict[Any, tuple[Node, tuple[Node, ...]]] = {node: (node, ()) for node in fixed}
    chains: list[_Chain] = []
    quantized: set[Node] = set()
    for node in program.graph.nodes:
        if getattr(node.target, "namespace", "aten") != "aten":
            quantized |= {paths[operand][0] for operand in node.all_input_nodes if operand in paths}
        source = node.args[0] if node.args else None
        if not isinstance(source, Node) or source not in paths or not is_tensor(node):
            continue
        constant, moves = paths[source]
        packet = getattr(node.target, "overloadpacket", None)
        same = node.meta["val"].dtype == source.meta["val"].dtype
        if packet in CASTS and not same and _keeps_layout(node):
            chains.append(_Chain(constant, moves, node))
        elif packet in _MOVES and same and memory.base[node] not in memory.written:
            paths[node] = (constant, (*moves, node))
    return [chain for chain in chains if chain.constant not in quantized]


def _keeps_layout(cast: Node) -> bool:
    formats = [arg for arg in (*cast.args, *cast.kwargs.values()) if isinstance(arg, torch.memory_format)]
    return all(layout in (torch.preserve_format, torch.contiguous_format) for layout in formats)


def _fold(edit: Edit, chain: _Chain, spec: InputSpec, made: dict, memory: Memory) -> None:
    known = [move for move in chain.moves if move.target.overloadpacket not in _SAME]
    late: list[Node] = []
    while known and not all(map(_is_known, known)):
        late.insert(0, known.pop())
    dtype = chain.cast.meta["val"].dtype
    key = (known[-1] if known else chain.constant, dtype)
    if key not in made:
        tensor = edit.tensor(spec)
        for move in known:
            tensor = move.target(tensor, *move.args[1:], **move.kwargs)
        name = f"{chain.constant.name}_{str(dtype).removeprefix('torch.')}"
        made[key] = edit.add_constant(name, tensor.to(dtype, memory_format=torch.contiguous_format))
    cast, result = edit.copy_of[chain.cast], made[key]
    for move in late:
        with edit.at(cast, source=edit.copy_of[move]):
            # The copy's operands, not the original's: another chain may have replaced them.
            copied = edit.copy_of[move]
            result = edit.call(move.target, result, *copied.args[1:], **copied.kwargs)
    # The cast made new memory: what writes to it, or returns it, must not get the constant's.
    if chain.cast in memory.written or any(user.op == "output" for user in chain.cast.users):
        with edit.at(cast):
            result = edit.call(aten.clone.default, result)
    edit.replace(cast, result)


def _is_known(move: Node) -> bool:
    """Whether the op can be computed now: its other operands are no nodes, and it does not repeat elements."""
    operands = tree_leaves((move.args[1:], move.kwargs))
    return move.target.overloadpacket not in _LARGER and not any(isinstance(operand, Node) for operand in operands)


def _erase_if_unread(edit: Edit, node: Node) -> None:
    # torch.export asserts the dtype of what is cast, and that is known of a constant.
    for user in list(node.users):
        if user.target is aten._assert_tensor_metadata.default:
            edit.graph.erase_node(user)
    if node.users:
        return
    if node.op == "placeholder":
        edit.drop_constant(node)
    else:
        edit.graph.erase_node(node)
