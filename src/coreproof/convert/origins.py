"""Which torch node each MIL op comes from, and MIL values named after their nodes.

coremltools hands each node's `debug_handle`, an int, to the ops that it makes of it, and its passes hand that on. For
the length of one conversion it is the node's number; ExecuTorch's own handles, which nodes share, are put back.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from coremltools.converters.mil.mil import Block, Program
from coremltools.converters.mil.mil.scope import ScopeSource
from torch.export import ExportedProgram
from torch.fx import Node

_KEY = "debug_handle"


class Origins:
    """The nodes of a program that is being converted, found again in what they became."""

    def __init__(self, program: ExportedProgram) -> None:
        self._nodes = list(program.graph.nodes)
        self._handles = [node.meta.get(_KEY) for node in self._nodes]

    @contextmanager
    def numbered(self) -> Iterator[None]:
        """Every node's debug handle is its number in the body."""
        for number, node in enumerate(self._nodes):
            node.meta[_KEY] = number
        try:
            yield
        finally:
            for node, handle in zip(self._nodes, self._handles, strict=True):
                node.meta[_KEY] = handle

    def node(self, op: Any) -> Node | None:
        """The node that a MIL op was made of; None where it is of the function itself."""
        number = _handle(op)
        return None if number is None else self._nodes[number]

    def name_results(self, mil: Program) -> None:
        """Name what converters left unnamed (`linear_0`) after its node, before any pass ran: passes go by op names."""
        for function in mil.functions.values():
            self._name_results(function)

    def restore_handles(self, mil: Program) -> None:
        """Give every op the handle that its node had."""
        for function in mil.functions.values():
            self._restore(function)

    def _name_results(self, block: Block) -> None:
        owners = {var.name: op for op in block.operations for var in op.outputs}
        unnamed: dict[str, list[Any]] = {}
        for op in block.operations:
            node = self.node(op)
            if node is None or op.op_type == "const" or len(op.outputs) != 1:
                continue
            (var,) = op.outputs
            leaves = var in block.outputs or any(self.node(user) is not node for user in var.child_ops)
            if leaves and not op.name.startswith(node.name):
                unnamed.setdefault(node.name, []).append(op)
        for name, ops in unnamed.items():
            if len(ops) == 1 and owners.get(name, ops[0]) is ops[0]:
                ops[0].name = name
                ops[0].outputs[0].name = name

    def _restore(self, block: Block) -> None:
        for op in block.operations:
            number = _handle(op)
            op.scopes[ScopeSource.EXIR_DEBUG_HANDLE] = [None if number is None else self._handles[number]]
            for inner in op.blocks:
                self._restore(inner)


def _handle(op: Any) -> int | None:
    return next(iter(op.scopes.get(ScopeSource.EXIR_DEBUG_HANDLE, ())), None)
