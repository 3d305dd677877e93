"""Where a delegate begins to be wrong: its edge program beside it, each torch op given the delegate's own values."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import OutputKind
from torch.fx import Node

from ..errors import CoreproofError
from ..partition.nodes import maker, op_name, source_line
from ..runtime.pte.delegates import CoreMLDelegate
from .compare import EXACT, ROUNDING, is_within, metrics
from .delegates import Recording, rounds
from .growth import growth
from .isolate import Isolation, rounding_effect
from .lowered_graph import ProgramRun
from .matching import Matching
from .record import Check, FirstWrong
from .repro import Case, Variable, reproduction, weights

_OPERANDS = "of the same operands"


def first_wrong_op(recording: Recording, check: Check) -> FirstWrong | None:
    """The first op of the delegate that is wrong by itself, in the cases that leave a doubt; None: there is none."""
    try:
        delegate = recording.load("exact")
        for case, calls in recording.runs.items():
            of_case = [one for one in check.outputs if one.case == case]
            wrong_for_sure = any(one.outcome == "mismatch" for one in of_case)
            if not wrong_for_sure and all(one.settled for one in of_case):
                continue
            delegate.reset()
            beside = _Beside(recording, delegate, shapes=wrong_for_sure)
            for number, (inputs, _) in enumerate(calls):
                for wrong in beside.compare(inputs):
                    found = wrong.first_wrong(recording.name, beside.case(wrong))
                    grown = growth(recording, delegate, [given for given, _ in calls[: number + 1]])
                    return replace(found, growth=grown)
    except CoreproofError:
        return None
    return None


@dataclass(frozen=True)
class _Wrong:
    """A node whose MIL value differs from what torch makes of the same operands.

    Attributes:
        of: what was compared: `of the same operands`, or which output or state holds the value.
    """

    node: Node
    value: str
    mil_op: str
    expected: torch.Tensor
    got: torch.Tensor
    of: str = _OPERANDS

    def first_wrong(self, delegate: str, case: Case | None) -> FirstWrong:
        own = metrics(self.got, self.expected) if self.got.shape == self.expected.shape else None
        node = maker(self.node)
        op = op_name(node) if node.op == "call_function" else ""
        source, evidence = source_line(node), self._evidence()
        title = f"{op or node.name}{f' at {source}' if source else ''}: {evidence}."
        make = None if case is None else lambda: reproduction(case, title)
        return FirstWrong(delegate, self.mil_op, self.value, node.name, op, source, evidence, own, script=make)

    def _evidence(self) -> str:
        made = f"MIL {self.mil_op} {self.value!r}"
        if self.got.shape != self.expected.shape:
            return f"{self.of} torch makes shape {list(self.expected.shape)}, {made} {list(self.got.shape)}"
        error = (self.got.double() - self.expected.double()).abs().nan_to_num(nan=float("inf"))
        at = int(error.flatten().argmax())
        place = [int(i) for i in torch.unravel_index(torch.tensor(at), self.expected.shape)]
        want, have = self.expected.flatten()[at].item(), self.got.flatten()[at].item()
        types = "" if self.got.dtype == self.expected.dtype else f" ({_name(self.expected)} as {_name(self.got)})"
        return f"{self.of} torch makes {want:.9g} at {place}, {made} {have:.9g}{types}"


class _Beside(ProgramRun):
    """The edge program; wherever the delegate has a value for a node, the nodes after it are given that one.

    Args:
        shapes: whether a value of another shape is wrong (some passes keep the name of a value that they transpose).
    """

    def __init__(self, recording: Recording, delegate: CoreMLDelegate, shapes: bool) -> None:
        super().__init__(recording.edge, floats=torch.float32, zeros=recording.zeros)
        self._program, self._finished, self._shapes = recording.edge, delegate, shapes
        self._rounds = rounds(delegate.function)
        self._matching = Matching(delegate.function, recording.edge)
        self._isolation = Isolation(delegate.function)
        self._known = _constants(recording.edge)
        self._exact_constants: set[str] = set()
        self._constants_of: dict[str, Node] = {}
        self._start()

    def _start(self, values: dict[str, Any] | None = None) -> None:
        self._values = values or {}
        self._made: dict[str, Any] = {}
        self._given: dict[str, Node] = {}
        self._found: list[_Wrong] = []

    def compare(self, inputs: list[Any]) -> Iterator[_Wrong]:
        """The wrong ops of one call, and the outputs and states that hold another node's value, in the nodes' order."""
        self._start(self._finished.values(inputs))
        self.run(inputs)
        order = {node: number for number, node in enumerate(self._program.graph.nodes)}
        yield from sorted([*self._found, *self._wired_wrongly()], key=lambda wrong: order[wrong.node])

    def replaced(self, node: Node, made: Any) -> Any:
        """Called by the run with each node's result."""
        self._made[node.name] = given = self._constant(node, made) if node in self._known else self._value(node, made)
        return given

    def _constant(self, node: Node, made: Any) -> Any:
        """The delegate's own constant, where it is torch's to one rounding."""
        name, got = self._matching.made_for(node, {})
        if name and node.op == "placeholder":
            self._constants_of[name] = node
        if not name or not isinstance(made, torch.Tensor) or got.shape != made.shape or got.dtype not in ROUNDING:
            return made
        near = (got.float() - made).abs() <= made.abs() * ROUNDING[got.dtype] + torch.finfo(got.dtype).smallest_normal
        if not bool((near | (got == made)).all()):
            return made
        self._exact_constants.add(name)
        return got.to(made.dtype)

    def _value(self, node: Node, made: Any) -> Any:
        if node.op != "call_function" or not isinstance(made, torch.Tensor):
            return made
        name, got = self._matching.made_for(node, self._values)
        if not name:
            name, got = self._matching.alike(made, self._values)
        if not isinstance(got, torch.Tensor):
            return made
        if got.shape != made.shape:
            if self._shapes and sorted(got.shape) != sorted(made.shape) and got.numel() + made.numel() > 2:
                self._add(node, name, made, got)
            return made
        if not self._is_right(name, got, made):
            self._add(node, name, made, got)
        self._given[name] = node
        same_kind = got.is_floating_point() == made.is_floating_point()
        return got.to(made.dtype) if same_kind or torch.bool in (got.dtype, made.dtype) else made

    def _add(self, node: Node, name: str, expected: torch.Tensor, got: torch.Tensor) -> None:
        self._found.append(_Wrong(node, name, self._matching.makers.get(name, ""), expected, got))

    def _is_right(self, name: str, got: torch.Tensor, expected: torch.Tensor) -> bool:
        if not expected.is_floating_point() or not got.is_floating_point():
            return torch.equal(got.double(), expected.double())
        if is_within(got, expected, EXACT):
            return True
        if not self._rounds or not self._isolation.makes(name):
            return False
        piece = self._isolation.piece(name, self._given)
        return is_within(got, expected, EXACT, rounding_effect(piece, self._values, self._exact_constants))

    def case(self, wrong: _Wrong) -> Case | None:
        """The wrong op by itself; None where the op is right, and an output or a state takes the wrong value."""
        if wrong.of != _OPERANDS or not self._isolation.makes(wrong.value) or wrong.got.shape != wrong.expected.shape:
            return None
        nodes = {node.name: node for node in self._program.graph.nodes}
        arguments = zip(self._finished.inputs, self._program.graph_signature.user_inputs, strict=True)
        given = {name: nodes[str(argument)] for name, argument in arguments} | self._given
        given = {name: node for name, node in given.items() if node is not wrong.node}
        piece = self._isolation.piece(wrong.value, given)
        chain, leaves = _chain(wrong.node, {*given.values()})
        held = {value.name: self._values[value.name] for value in piece.inputs} | weights(piece)
        variables = [self._variable(name, value, given, leaves) for name, value in held.items()]
        rest = [node for node in leaves if node not in {one.node for one in variables}]
        tensors = {node: made for node in rest if isinstance(made := self._made[node.name], torch.Tensor)}
        variables += [Variable(None, node, None, made) for node, made in tensors.items()]
        fixed = {node: self._made[node.name] for node in rest if node not in tensors}
        return Case(piece, self._program, chain, tuple(variables), fixed)

    def _variable(self, name: str, value: torch.Tensor, given: dict[str, Node], leaves: list[Node]) -> Variable:
        node = given.get(name) or self._constants_of.get(name)
        made = self._made[node.name] if node is not None and node in leaves else None
        if not isinstance(made, torch.Tensor) or made.shape != value.shape:
            return Variable(name, None, value, None)
        return Variable(name, node, value, made)

    def _wired_wrongly(self) -> Iterator[_Wrong]:
        """Outputs and new states of the call that just ran that are not what their nodes made."""
        nodes = {node.name: node for node in self._program.graph.nodes}
        names = iter(self._finished.outputs)
        states = self._finished.states
        for spec in self._program.graph_signature.output_specs:
            if spec.kind == OutputKind.USER_OUTPUT:
                value = next(names)
                got, of, mil_op = self._values.get(value), f"as output {value!r}", self._matching.makers.get(value, "")
            else:
                value = _state_name(spec.target)
                got, of, mil_op = states.get(value), f"as the new value of {spec.target!r}", "write_state"
            expected = self._made.get(getattr(spec.arg, "name", ""))
            if isinstance(got, torch.Tensor) and isinstance(expected, torch.Tensor) and _differs(got, expected):
                yield _Wrong(nodes[spec.arg.name], value, mil_op, expected, got, of)


def _differs(got: torch.Tensor, expected: torch.Tensor) -> bool:
    if got.numel() == expected.numel() == 1:
        got = got.reshape(expected.shape)
    if got.shape != expected.shape:
        return True
    same_kind = got.is_floating_point() == expected.is_floating_point()
    return not is_within(got, expected, EXACT) if same_kind else not torch.equal(got.double(), expected.double())


def _chain(node: Node, given: set[Node]) -> tuple[list[Node], list[Node]]:
    """The nodes that make a node's value from given nodes and placeholders, in order, and the latter."""
    found, leaves, waiting = {node}, [], [node]
    while waiting:
        for operand in waiting.pop().all_input_nodes:
            if operand in given or operand.op != "call_function":
                leaves.append(operand)
            elif operand not in found:
                found.add(operand)
                waiting.append(operand)
    return [one for one in node.graph.nodes if one in found], list(dict.fromkeys(leaves))


def _state_name(target: str | None) -> str:
    """What coremltools calls the state of a buffer."""
    return (target or "").replace(".", "_")


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


def _name(tensor: torch.Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")
