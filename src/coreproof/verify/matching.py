"""Which values of a finished delegate stand for which nodes of its edge program: by name, else by what they hold."""

from __future__ import annotations

import re
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.fx import Node

from ..partition.nodes import is_getitem
from ..runtime.ir import Constant, Function
from .compare import greatest_difference, is_within
from .origin import INVERSED

# How far the value without a node's name may be from a result that it stands for: 8 float16 roundings of the greatest.
_ALIKE = 2.0**-8
# What coremltools appends to a node's name: where it rounds, a number, and to copies in another type.
_SUFFIX = re.compile(r"(_cast_fp16|_cast_fp32|_promoted|_to_fp16|_\d+)$")
_COPY = re.compile(r"_promoted|_to_fp16")


class Matching:
    """The values of one function that stand for nodes of one program.

    Attributes:
        makers: type of the op that makes each value.
    """

    def __init__(self, function: Function, program: ExportedProgram) -> None:
        operations = function.body.operations
        self.makers = {value.name: op.type for op in operations for value in op.outputs}
        self._constants = {
            op.outputs[0].name: given
            for op in operations
            if op.type == "const" and isinstance(given := op.inputs["val"][0], Constant)
        }
        self._names = _values_of_nodes([*self.makers], program)
        self._unnamed = {*self.makers}.difference(*self._names.values())

    def made_for(self, node: Node, values: dict[str, Any]) -> tuple[str, Any]:
        """The name of the node's value, and the value, a constant perhaps; ("", None) where none has its name."""
        # Of a node that makes a tuple, the first value may have the node's own name.
        nodes = [node, node.args[0]] if is_getitem(node) and node.args[1] == 0 else [node]
        for name in (name for one in nodes for name in self._names.get(one.name, ())):
            if name in values:
                return name, values[name]
            if name in self._constants:
                return name, self._constants[name].load()
        return "", None

    def alike(self, made: Any, values: dict[str, Any]) -> tuple[str, Any]:
        """The value without a node's name that is nearest to a node's result, where one is near.

        Most converters of coremltools name their results; a few (`linear`) do not.
        """
        if not isinstance(made, torch.Tensor) or not made.is_floating_point():
            return "", None
        near = [
            (greatest_difference(value, made), name)
            for name, value in values.items()
            if name in self._unnamed
            and isinstance(value, torch.Tensor)
            and value.is_floating_point()
            and value.shape == made.shape
        ]
        name = min(near)[1] if near else ""
        return (name, values[name]) if name and is_within(values[name], made, _ALIKE) else ("", None)


def _values_of_nodes(values: list[str], program: ExportedProgram) -> dict[str, list[str]]:
    """For each node the names of the values that stand for it: its own name first, copies in another type last."""
    nodes = {node.name for node in program.graph.nodes}
    found: dict[str, list[str]] = {}
    for value in values:
        name = value.removeprefix(INVERSED)
        while name not in nodes and (suffix := _SUFFIX.search(name)):
            name = name[: suffix.start()]
        if name in nodes:
            found.setdefault(name, []).append(value)
    return {
        node: sorted(names, key=lambda value: (value not in nodes, bool(_COPY.search(value))))
        for node, names in found.items()
    }
