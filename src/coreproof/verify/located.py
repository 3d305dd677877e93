"""Where a delegate begins to be wrong: its edge program beside it, each torch op given the delegate's own values."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.fx import Node

from ..errors import CoreproofError
from ..partition.nodes import is_getitem, op_name, source_line, tensors
from ..runtime.ir import Constant, Function
from .compare import EXACT, greatest_difference, is_within, metrics
from .delegates import Recording, rounds
from .lowered_graph import ProgramRun
from .record import Check, FirstWrong

# What the rounding of a constant that was computed from the model's may change: two float16 roundings, of each value
# where the constant is a factor, of the greatest one where it is a weight of a sum.
_STORED = 2.0**-10
# The same where ops that the delegate has no values of come before: their own rounding is in it.
_MIXED = 2.0**-8
# What coremltools appends to a node's name: where it rounds, a number, and to copies in another type.
_SUFFIX = re.compile(r"(_cast_fp16|_cast_fp32|_promoted|_to_fp16|_\d+)$")
_COPY = re.compile(r"_promoted|_to_fp16")


def first_wrong_op(recording: Recording, check: Check) -> FirstWrong | None:
    """The first op of the delegate that is wrong by itself, in the cases that leave a doubt; None: there is none."""
    doubted = {one.case for one in check.outputs if one.outcome == "mismatch" or not one.settled}
    try:
        delegate = recording.load("exact")
        for case, calls in recording.runs.items():
            if case not in doubted:
                continue
            delegate.reset()
            beside = _Beside(recording, delegate.function)
            for inputs, _ in calls:
                for wrong in beside.compare(inputs, delegate.values(inputs)):
                    return wrong.first_wrong(recording.name)
    except CoreproofError:
        return None
    return None


@dataclass(frozen=True)
class _Wrong:
    """An op whose MIL value differs from what torch makes of the same operands."""

    node: Node
    value: str
    mil_op: str
    expected: torch.Tensor
    got: torch.Tensor

    def first_wrong(self, delegate: str) -> FirstWrong:
        node = self.node
        return FirstWrong(
            delegate, self.mil_op, self.value, node.name, op_name(node), source_line(node), self._evidence(), self._own
        )

    @property
    def _own(self) -> Any:
        return metrics(self.got, self.expected)

    def _evidence(self) -> str:
        error = (self.got.double() - self.expected.double()).abs().nan_to_num(nan=float("inf"))
        at = int(error.flatten().argmax())
        place = [int(i) for i in torch.unravel_index(torch.tensor(at), self.expected.shape)]
        want, have = self.expected.flatten()[at].item(), self.got.flatten()[at].item()
        types = "" if self.got.dtype == self.expected.dtype else f" ({_name(self.expected)} as {_name(self.got)})"
        return (
            f"of the same operands torch makes {want:.9g} at {place}, MIL {self.mil_op} {self.value!r} "
            f"{have:.9g}{types}"
        )


class _Beside(ProgramRun):
    """The edge program; wherever the delegate has a value for a node, the nodes after it are given that one."""

    def __init__(self, recording: Recording, function: Function) -> None:
        self._rounds = rounds(function)
        stored = torch.float16 if self._rounds else None
        super().__init__(recording.edge, floats=torch.float32, constants=stored, zeros=recording.zeros)
        self._makers = {value.name: op.type for op in function.body.walk() for value in op.outputs}
        self._constants_made = {
            op.outputs[0].name: given
            for op in function.body.walk()
            if op.type == "const" and isinstance(given := op.inputs["val"][0], Constant)
        }
        self._names = _values_of_nodes([*self._makers], recording.edge)
        self._unnamed = {*self._makers}.difference(*self._names.values())
        self._known, self._weighted = _constants(recording.edge), _weighted(recording.edge)
        self._mixed: set[Node] = set()
        self._values: dict[str, Any] = {}
        self._found: list[_Wrong] = []

    def compare(self, inputs: list[Any], values: dict[str, Any]) -> Iterator[_Wrong]:
        """The wrong ops of one call, in order."""
        self._values, self._found, self._mixed = values, [], set()
        self.run(inputs)
        return iter(self._found)

    def replaced(self, node: Node, made: Any) -> Any:
        """Called by the run with each node's result."""
        if node.op != "call_function" or node in self._known:
            return made
        name, got = self._made_for(node)
        if not name:
            name, got = self._alike(made)
        mixed = any(operand in self._mixed for operand in node.all_input_nodes)
        if not isinstance(made, torch.Tensor) or not isinstance(got, torch.Tensor) or got.shape != made.shape:
            if mixed or self._rounds_inside(node):
                self._mixed.add(node)
            return made
        if not self._is_right(got, made, mixed, node in self._weighted):
            self._found.append(_Wrong(node, name, self._makers.get(name, ""), made, got))
        same_kind = got.is_floating_point() == made.is_floating_point()
        return got.to(made.dtype) if same_kind or torch.bool in (got.dtype, made.dtype) else made

    def _made_for(self, node: Node) -> tuple[str, Any]:
        """The delegate's value for the node, a constant perhaps, and its name; None where there is no such value."""
        # Of a node that makes a tuple, the first value may have the node's own name.
        nodes = [node, node.args[0]] if is_getitem(node) and node.args[1] == 0 else [node]
        for name in (name for one in nodes for name in self._names.get(one.name, ())):
            if name in self._values:
                return name, self._values[name]
            if name in self._constants_made:
                return name, self._constants_made[name].load()
        return "", None

    def _alike(self, made: Any) -> tuple[str, Any]:
        """The value without a node's name that is nearest to the result, where one is near: most converters of
        coremltools name their results, a few (`linear`) do not."""
        if not isinstance(made, torch.Tensor) or not made.is_floating_point():
            return "", None
        alike = [
            (greatest_difference(value, made), name)
            for name, value in self._values.items()
            if name in self._unnamed
            and isinstance(value, torch.Tensor)
            and value.is_floating_point()
            and value.shape == made.shape
        ]
        name = min(alike)[1] if alike else ""
        return (name, self._values[name]) if name and is_within(self._values[name], made, _MIXED) else ("", None)

    def _rounds_inside(self, node: Node) -> bool:
        """Whether a constant goes into the node that coremltools may have rounded otherwise."""
        numbers = any(isinstance(one, float) for one in node.args)
        return node in self._weighted or numbers or any(one in self._known for one in node.all_input_nodes)

    def _is_right(self, got: torch.Tensor, expected: torch.Tensor, mixed: bool, weighted: bool) -> bool:
        if not expected.is_floating_point() or not got.is_floating_point():
            return torch.equal(got.double(), expected.double())
        if not self._rounds:
            return is_within(got, expected, EXACT)
        if mixed or weighted:
            return is_within(got, expected, _MIXED if mixed else _STORED)
        size = torch.where(torch.isfinite(expected), expected.abs(), 0.0)
        bound = EXACT * float(size.max() if size.numel() else 0.0) + _STORED * size
        near = (got - expected).abs() <= bound
        return bool((near | (got == expected) | (got.isnan() & expected.isnan())).all())


def _values_of_nodes(values: list[str], program: ExportedProgram) -> dict[str, list[str]]:
    """For each node the names of the values that stand for it: its own name first, copies in another type last."""
    nodes = {node.name for node in program.graph.nodes}
    found: dict[str, list[str]] = {}
    for value in values:
        name = value
        while name not in nodes and (suffix := _SUFFIX.search(name)):
            name = name[: suffix.start()]
        if name in nodes:
            found.setdefault(name, []).append(value)
    return {
        node: sorted(names, key=lambda value: (value not in nodes, bool(_COPY.search(value))))
        for node, names in found.items()
    }


def _constants(program: ExportedProgram) -> set[Node]:
    """The nodes that are known before the program runs: its constants, and what is computed from them alone."""
    signature = program.graph_signature
    mutable = set(signature.buffers_to_mutate.values())
    given = {*signature.user_inputs, *(n for n, buffer in signature.inputs_to_buffers.items() if buffer in mutable)}
    found: set[Node] = set()
    for node in program.graph.nodes:
        alone = node.op == "placeholder" and node.name not in given
        if alone or (node.op == "call_function" and node.all_input_nodes and found.issuperset(node.all_input_nodes)):
            found.add(node)
    return found


def _weighted(program: ExportedProgram) -> set[Node]:
    """The nodes that add up products with constants, or have a factor of their own inside (attention's scale)."""
    constants = _constants(program)
    found: set[Node] = set()
    for node in program.graph.nodes:
        if node.op != "call_function" or node in constants:
            continue
        of_tuple = is_getitem(node) and node.args[0] in found
        sums = any(one in constants and tensors(one)[:1] and tensors(one)[0].dim() for one in node.all_input_nodes)
        if of_tuple or sums or "attention" in op_name(node):
            found.add(node)
    return found


def _name(tensor: torch.Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")
