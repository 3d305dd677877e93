"""A wrong op by itself: the MIL ops between known values beside the torch nodes, made as small as the fault allows."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch.export import ExportedProgram
from torch.fx import Node

from ..errors import CoreproofError
from ..runtime.ir import Block, Constant, Function, Operation, TensorType, Type, Value
from .compare import greatest_difference
from .isolate import evaluate
from .lowered_graph import run_nodes
from .script import script, shows

# The share of the error that a smaller case must keep.
_KEPT = 0.5


@dataclass(frozen=True)
class Variable:
    """A tensor that goes into the case: an input or a weight, as MIL and as torch have it (None: one does not read it).

    Attributes:
        value: name of the MIL value, or constant.
        node: the torch node.
    """

    value: str | None = None
    node: Node | None = None
    in_mil: torch.Tensor | None = None
    in_torch: torch.Tensor | None = None

    @property
    def shape(self) -> torch.Size:
        held = self.in_mil if self.in_mil is not None else self.in_torch
        assert held is not None, "a variable is MIL's or torch's"
        return held.shape

    def cut(self, dim: int, start: int, size: int) -> Variable:
        """The variable with only these positions of one dimension."""
        return replace(
            self,
            in_mil=None if self.in_mil is None else self.in_mil.narrow(dim, start, size),
            in_torch=None if self.in_torch is None else self.in_torch.narrow(dim, start, size),
        )


@dataclass(frozen=True)
class Case:
    """MIL ops and torch nodes that should make the same value of the same variables.

    Attributes:
        piece: the MIL ops.
        program: holds the torch nodes.
        nodes: those that make the value, in order.
        fixed: values of other nodes that they read, and that are no tensors.
    """

    piece: Function
    program: ExportedProgram
    nodes: Sequence[Node]
    variables: tuple[Variable, ...]
    fixed: Mapping[Node, object]

    def got(self) -> torch.Tensor:
        """MIL's value, in exact mode. Raises ModelError: the variables do not fit together."""
        return evaluate(self.sized(), {one.value: one.in_mil for one in self.variables if one.value is not None})

    def expected(self) -> torch.Tensor:
        """Torch's value. Raises whatever an op raises: the variables do not fit together."""
        known = {one.node: one.in_torch for one in self.variables if one.node is not None}
        made: torch.Tensor = run_nodes(self.program, self.nodes, {**self.fixed, **known})
        return made

    def error(self) -> float:
        """The greatest difference; 0 where the variables do not fit together, or the two differ in shape."""
        try:
            got, expected = self.got(), self.expected()
        except (CoreproofError, RuntimeError, ValueError, IndexError, TypeError, AssertionError):
            return 0.0
        return greatest_difference(got, expected) if got.shape == expected.shape and got.numel() else 0.0

    def sized(self) -> Function:
        """The piece with the constants that are variables, and no declared sizes."""
        held = {one.value: one.in_mil for one in self.variables if one.in_mil is not None}
        operations = [_with_constant(op, held) for op in self.piece.body.operations]
        inputs = [Value(value.name, _unsized(value.type)) for value in self.piece.inputs]
        return replace(self.piece, inputs=inputs, body=Block([], operations, self.piece.body.outputs))


def weights(piece: Function) -> dict[str, torch.Tensor]:
    """The float constants of a piece that have dimensions, as they are stored."""
    constants = ((op.outputs[0].name, op.inputs["val"][0]) for op in piece.body.operations if op.type == "const")
    return {
        name: given.load()
        for name, given in constants
        if isinstance(given, Constant)
        and isinstance(given.type, TensorType)
        and given.type.element.is_float
        and given.type.shape
    }


def smallest(case: Case) -> Case:
    """The case with dimensions cut, one or all those of one size at a time, as long as half of the error is left.

    Its script must show that: coremltools refuses sizes which the runtime would take.
    """
    least = _KEPT * case.error()
    if not least:
        return case
    smaller = True
    while smaller:
        smaller = False
        for other in _cut(case):
            if other.error() >= least and shows(_text(other, "")):
                case, smaller = other, True
                break
    return case


def reproduction(case: Case, title: str) -> str:
    """The script that shows the fault of the case, made as small as it allows."""
    return _text(smallest(case), title)


def _text(small: Case, title: str) -> str:
    values = {one.value: one.in_mil for one in small.variables if one.value is not None}
    expected, error = small.expected(), small.error()
    if not math.isfinite(error):
        error = float(expected.double().abs().nan_to_num(nan=0.0, posinf=0.0).max())
    return script(small.sized(), values, expected, _KEPT * error, title)


def _cut(case: Case) -> Iterator[Case]:
    """Smaller cases: the smallest first, of the greatest dimensions first."""
    sizes = sorted({size for one in case.variables for size in one.shape if size > 1}, reverse=True)
    for size in sizes:
        places = [(i, d) for i, one in enumerate(case.variables) for d, s in enumerate(one.shape) if s == size]
        groups = [places] if len(places) == 1 else [places, *([place] for place in places)]
        for kept in dict.fromkeys((1, size // 2)):
            for start in dict.fromkeys((0, size - kept)):
                yield from (_with_cut(case, group, start, kept) for group in groups)


def _with_cut(case: Case, places: list[tuple[int, int]], start: int, size: int) -> Case:
    variables = list(case.variables)
    for number, dim in places:
        variables[number] = variables[number].cut(dim, start, size)
    return replace(case, variables=tuple(variables))


def _with_constant(op: Operation, held: Mapping[str | None, torch.Tensor]) -> Operation:
    outputs = [Value(value.name, _unsized(value.type)) for value in op.outputs]
    value = held.get(op.outputs[0].name) if op.type == "const" else None
    if value is None:
        return replace(op, outputs=outputs)
    given = op.inputs["val"][0]
    assert isinstance(given, Constant), "a const has its value in place"
    return replace(op, outputs=outputs, inputs={"val": [Constant(_unsized(given.type), lambda: value)]})


def _unsized(declared: Type) -> Type:
    return TensorType(declared.dtype, None) if isinstance(declared, TensorType) else declared
