"""One exported program as the partitioner sees it: constants, mutable buffers, and the nodes that are constant."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch._subclasses import FakeTensor
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, OutputKind
from torch.fx import Node

from .nodes import asks_for_layout, aten_op, is_getitem, is_view, tensors

# Constants up to this many elements keep their values in an attempt (indices, shapes, scalars); larger ones
# are presented by stand-ins that take no memory.
SMALL = 1024
# Floating-point parameters of more elements than this are presented by stand-ins too.
LISTED = 16

_RANDOM = torch.Tag.nondeterministic_seeded


@dataclass
class MutableBuffer:
    """A buffer that the method updates: the placeholder that reads it and the node that makes its new value."""

    name: str
    placeholder: Node
    update: Node | None


class ProgramView:
    """Read-only facts about a program, worked out once.

    Args:
        program: ATen or edge dialect; its state dict may hold fake tensors.
        small_values: real values of small parameters and buffers by qualified name, for a program
            whose state dict is fake.
        own_constants: whether constants move into the delegates that read them.
    """

    def __init__(
        self, program: ExportedProgram, small_values: dict[str, torch.Tensor], own_constants: bool = True
    ) -> None:
        self.program = program
        self.graph = program.graph_module.graph
        self.own_constants = own_constants
        placeholders = {node.name: node for node in self.graph.nodes if node.op == "placeholder"}
        signature = program.graph_signature
        updates = {
            spec.target: spec.arg.name for spec in signature.output_specs if spec.kind == OutputKind.BUFFER_MUTATION
        }
        nodes = {node.name: node for node in self.graph.nodes}
        self.constants: dict[Node, torch.Tensor | None] = {}
        self.buffers: list[MutableBuffer] = []
        for spec in signature.input_specs:
            node = placeholders[spec.arg.name]
            if spec.kind == InputKind.BUFFER and spec.target in updates:
                self.buffers.append(MutableBuffer(str(spec.target), node, nodes.get(updates[spec.target])))
            elif spec.kind in (InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR):
                value = self._small_value(str(spec.target), small_values)
                self.constants[node] = None if _is_like_any_other(value, spec.kind) else value
        self._laid_out = self._find_laid_out()
        wanted = {spec.arg.name for spec in signature.output_specs if spec.kind == OutputKind.USER_OUTPUT}
        self.user_outputs = {nodes[name] for name in wanted if name in nodes}
        self.outputs: frozenset[Node] = frozenset(self.graph.output_node().all_input_nodes)

    def _find_laid_out(self) -> set[Node]:
        """The nodes whose layout in memory is theirs in the finished program.

        In the edge dialect all are. In the ATen dialect a permuted tensor is a view, of which ExecuTorch makes a
        copy in order; what stays is the layout of inputs, of copies that ask for one, and what ops make of them.
        """
        if self.program.dialect == "EDGE":
            return set(self.graph.nodes)
        found: set[Node] = set()
        for node in self.graph.nodes:
            inherits = not is_view(node) and any(operand in found for operand in node.all_input_nodes)
            if asks_for_layout(node) or inherits or (node.op == "placeholder" and node not in self.constants):
                found.add(node)
        return found

    def is_laid_out(self, node: Node) -> bool:
        """Whether the strides of the node's tensor mean something; else it will be in order."""
        return node in self._laid_out

    def _small_value(self, name: str, small_values: dict[str, torch.Tensor]) -> torch.Tensor | None:
        value = small_values.get(name)
        if value is None:
            value = self.program.constants.get(name)
        if value is None:
            value = self.program.state_dict.get(name)
        return value if is_small_and_real(value) else None

    def is_constant(self, node: Node) -> bool:
        """Whether the placeholder is a parameter, a buffer that never changes, or a lifted tensor."""
        return node in self.constants

    def is_owned(self, node: Node) -> bool:
        """Whether the placeholder is a constant that a delegate takes over."""
        return self.own_constants and node in self.constants

    @staticmethod
    def is_random(node: Node) -> bool:
        """Whether the node's value differs from run to run."""
        return _RANDOM in getattr(aten_op(node), "tags", ())


def _is_like_any_other(value: torch.Tensor | None, kind: InputKind) -> bool:
    """Whether a trained parameter's values stand for nothing in particular, so that all layers are one case."""
    return value is not None and kind == InputKind.PARAMETER and value.is_floating_point() and value.numel() > LISTED


def is_small_and_real(value: object) -> bool:
    """Whether `value` is a tensor of few elements whose values can be read."""
    return (
        isinstance(value, torch.Tensor)
        and not isinstance(value, FakeTensor)
        and type(value) in (torch.Tensor, torch.nn.Parameter)
        and value.numel() <= SMALL
    )


def small_values(program: ExportedProgram) -> dict[str, torch.Tensor]:
    """The real small parameters, buffers and constants of `program`, by qualified name (not copied)."""
    everything = {**program.state_dict, **program.constants}
    return {name: value for name, value in everything.items() if is_small_and_real(value)}


def element_count(node: Node) -> int | None:
    """Number of elements that the node makes, or None where a size is symbolic or it makes no tensor."""
    if is_getitem(node) or len(tensors(node)) != 1:
        return None
    total = 1
    for size in tensors(node)[0].shape:
        if not isinstance(size, int):
            return None
        total *= size
    return total
