"""A value that updates a buffer is no other output.

ExecuTorch asserts, or drops an output, when the node that updates a buffer also
updates another one or is a user output (`_get_new_signature` and
`_unsafe_adjust_original_program` in exir/lowered_backend_module.py), and
functionalisation itself fails where two buffers are given one value.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import OutputKind
from torch.fx import Node

from .edit import Edit
from .memory import Memory, same_type

aten = torch.ops.aten

_MUTATIONS = (OutputKind.BUFFER_MUTATION, OutputKind.USER_INPUT_MUTATION, OutputKind.PARAMETER_MUTATION)


@dataclass(frozen=True)
class _Slot:
    """A place where a value leaves the program: operand `value` of `reader` (the output node, or a `copy_`)."""

    reader: Node
    index: int
    value: Node


def separate_updates(program: ExportedProgram, *, keep: frozenset = frozenset()) -> ExportedProgram:
    """Give a new buffer value that is also an input, another buffer's new value or a user output its own `aten.clone`.

    Exact: a clone is the same value, and it is read just where the update or the return reads. An op that reads the
    buffer later reads the clone's value, which is the one it read before.
    """
    slots = [slot for slot in _shared_slots(program) if slot.reader.target not in keep]
    if not slots:
        return program
    edit = Edit(program)
    for slot in slots:
        reader = edit.copy_of[slot.reader]
        value = edit.copy_of[slot.value]
        with edit.at(reader, source=reader if reader.op != "output" else value):
            clone = edit.call(aten.clone.default, value)
        if reader.op == "output":
            returned = list(reader.args[0])
            returned[slot.index] = clone
            reader.args = (tuple(returned),)
        else:
            reader.update_arg(slot.index, clone)
    return edit.finish()


def _shared_slots(program: ExportedProgram) -> list[_Slot]:
    """The slots that need a value of their own: all but the first holder of each new value of a buffer."""
    mutated = [spec.kind in _MUTATIONS for spec in program.graph_signature.output_specs]
    memory = Memory(program.graph)
    if not any(mutated) and not any(base.op == "placeholder" for base in memory.written):
        return []
    # What each memory holds at this point of the graph, and the whole-tensor `copy_` that put it there.
    held: dict[Node, Node] = {}
    setter: dict[Node, _Slot | None] = {}

    def value_of(node: Node) -> Node:
        whole = memory.whole[node]
        return held.get(whole, whole)

    for node, target in memory.writes:
        base = memory.base[target]
        setter.pop(base, None)  # so that the order of the entries is the order of the last writes
        source = node.args[1] if node.target is aten.copy_.default else None
        if isinstance(source, Node) and memory.whole[target] is base and same_type(source, target):
            held[base], setter[base] = value_of(source), _Slot(node, 1, source)
        else:
            held[base], setter[base] = node, None

    shared: list[_Slot] = []
    updates: set[Node] = set()
    for base, slot in setter.items():
        if base.op != "placeholder":
            continue
        if slot is not None and (held[base].op == "placeholder" or held[base] in updates):
            shared.append(slot)
        else:
            updates.add(held[base])
    for slot in sorted(_returned(program), key=lambda slot: not mutated[slot.index]):
        value = value_of(slot.value)
        if mutated[slot.index]:
            if value.op == "placeholder" or value in updates:
                shared.append(slot)
            updates.add(value)
        elif value in updates or memory.whole[slot.value] in setter:
            shared.append(slot)
    return shared


def _returned(program: ExportedProgram) -> list[_Slot]:
    output = program.graph.output_node()
    returned = enumerate(output.args[0])
    return [_Slot(output, index, node) for index, node in returned if isinstance(node, Node)]
