"""A constant with several readers, one of which takes it from a list (`cat`, `stack`, the indices of `index_put`).

When the readers land in different partitions, ExecuTorch duplicates the
constant, and looks for it among a reader's direct operands only
(`duplicate_constant_node` in exir/backend/canonical_partitioners).
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch.export import ExportedProgram
from torch.fx import Node
from torch.utils._pytree import tree_leaves

from .edit import Edit, constants
from .memory import Memory

aten = torch.ops.aten


def separate_list_readers(program: ExportedProgram, *, keep: frozenset = frozenset()) -> ExportedProgram:
    """Let each reader that takes a shared constant from a list read an `aten.clone` of it.

    Exact: a clone is the same value. Mutable buffers are left alone, they are state and not constants.
    """
    memory = Memory(program.graph)
    unshared = [(reader, operand) for reader, operand in _list_reads(program, memory) if reader.target not in keep]
    if not unshared:
        return program
    edit = Edit(program)
    clones: dict[tuple[Node, Node], Node] = {}
    for reader, operand in unshared:
        new_reader, new_operand = edit.copy_of[reader], edit.copy_of[operand]
        constant = memory.whole[operand]
        if (reader, constant) not in clones:
            with edit.at(new_reader):
                clones[reader, constant] = edit.call(aten.clone.default, new_operand)
        new_reader.replace_input_with(new_operand, clones[reader, constant])
    return edit.finish()


def _list_reads(program: ExportedProgram, memory: Memory) -> Iterator[tuple[Node, Node]]:
    """(reader, operand) for each list operand that is a constant which other ops read too."""
    mutable = set(program.graph_signature.buffers_to_mutate.values())
    shared = {
        node: set[Node]()
        for node, spec in constants(program).items()
        if node not in memory.written and spec.target not in mutable
    }
    reads: dict[tuple[Node, Node], Node] = {}
    for node in program.graph.nodes:
        listed = {leaf for arg in _lists(node) for leaf in tree_leaves(arg) if isinstance(leaf, Node)}
        for operand in node.all_input_nodes:
            constant = memory.whole[operand]
            # An op that may hand on the constant itself is no reader: those that read its result are.
            if constant in shared and memory.whole[node] is not constant:
                shared[constant].add(node)
                if operand in listed:
                    reads[node, operand] = constant
    return (read for read, constant in reads.items() if len(shared[constant]) > 1)


def _lists(node: Node) -> list:
    return [arg for arg in (*node.args, *node.kwargs.values()) if isinstance(arg, (list, tuple))]
