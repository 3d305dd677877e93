"""Where a delegate begins to be wrong: its edge program beside it, each torch op given the delegate's own values."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.fx import Node

from ..errors import CoreproofError
from ..partition.nodes import is_getitem, op_name, source_line, tensors
from ..runtime.ir import Constant, Function
from .compare import EXACT, is_within, metrics
from .delegates import Recording, rounds
from .lowered_graph import ProgramRun
from .record import Check, FirstWrong

# What the rounding of a constant that was computed from the model's may change: two float16 roundings, of each value
# where the constant is a factor, of the greatest one where it is a weight of a sum.
_STORED = 2.0**-10
# What coremltools appends to a node's name: where it rounds, and to copies in another type, which say as much.
_SUFFIXES = ("", "_cast_fp16", "_cast_fp32", "_promoted", "_to_fp16", "_promoted_to_fp16")


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
        self._weighted = _weighted(recording.edge)
        self._values: dict[str, Any] = {}
        self._found: list[_Wrong] = []

    def compare(self, inputs: list[Any], values: dict[str, Any]) -> Iterator[_Wrong]:
        """The wrong ops of one call, in order."""
        self._values, self._found = values, []
        self.run(inputs)
        return iter(self._found)

    def replaced(self, node: Node, made: Any) -> Any:
        """Called by the run with each node's result."""
        if not isinstance(made, torch.Tensor) or node.op != "call_function":
            return made
        name, got = self._made_for(node)
        if not isinstance(got, torch.Tensor) or got.shape != made.shape:
            return made
        if not self._is_right(node, got, made):
            self._found.append(_Wrong(node, name, self._makers.get(name, ""), made, got))
        same_kind = got.is_floating_point() == made.is_floating_point()
        return got.to(made.dtype) if same_kind or torch.bool in (got.dtype, made.dtype) else made

    def _made_for(self, node: Node) -> tuple[str, Any]:
        """The delegate's value for the node, a constant perhaps, and its name; None where there is no such value."""
        for name in (node.name + suffix for suffix in _SUFFIXES):
            if name in self._values:
                return name, self._values[name]
            if name in self._constants_made:
                return name, self._constants_made[name].load()
        return "", None

    def _is_right(self, node: Node, got: torch.Tensor, expected: torch.Tensor) -> bool:
        if not expected.is_floating_point() or not got.is_floating_point():
            return torch.equal(got.double(), expected.double())
        if not self._rounds:
            return is_within(got, expected, EXACT)
        if node in self._weighted:
            return is_within(got, expected, _STORED)
        size = torch.where(torch.isfinite(expected), expected.abs(), 0.0)
        bound = EXACT * float(size.max() if size.numel() else 0.0) + _STORED * size
        near = (got - expected).abs() <= bound
        return bool((near | (got == expected) | (got.isnan() & expected.isnan())).all())


def _weighted(program: ExportedProgram) -> set[Node]:
    """The nodes that add up products with constants, or have a factor of their own inside (attention's scale)."""
    signature = program.graph_signature
    user = set(signature.user_inputs)
    constants = {node for node in program.graph.nodes if node.op == "placeholder" and node.name not in user}
    found: set[Node] = set()
    for node in program.graph.nodes:
        if node.op == "call_function" and (
            "attention" in op_name(node)
            or (not is_getitem(node) and any(i in constants and tensors(i)[0].dim() for i in node.all_input_nodes))
            or (is_getitem(node) and node.args[0] in found)
        ):
            found.add(node)
    return found


def _name(tensor: torch.Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")
