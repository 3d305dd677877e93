"""One value of a function made from chosen others alone: the ops between them, as a function of its own."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

import torch

from ..runtime.in_place import reads
from ..runtime.interpreter import Interpreter, Mode
from ..runtime.ir import Block, Constant, Function, Operation, TensorType

# What two float16 roundings may change in a constant: relative to it, and at the least (float16's smallest number).
_TWO_ROUNDINGS, _SMALLEST = 2.0**-10, 2.0**-24
# How much more than one random draw of such changes the rounding of all constants may cost.
_DRAWS = 4
_OF_STATES = ("read_state", "coreml_update_state")


class Isolation:
    """Takes pieces out of one function, whose ops of control flow count as one op each."""

    def __init__(self, function: Function) -> None:
        self._function = function
        self._makers = {value.name: op for op in function.body.operations for value in op.outputs}
        made = (value for op in function.body.operations for value in op.outputs)
        self._types = {value.name: value for value in (*function.inputs, *made)}

    def makes(self, name: str) -> bool:
        """Whether an op outside nested blocks makes the value."""
        return name in self._makers

    def piece(self, target: str, known: Collection[str]) -> Function:
        """The ops that make `target` from `known` values, with the constants that they read.

        Its inputs are the known values that are read, in the function's order, the function's own inputs and what is
        read from states. `target` itself may be among the known.

        Raises:
            KeyError: `makes(target)` is false.
        """
        found = {id(self._makers[target])}
        inputs: set[str] = set()
        waiting = [self._makers[target]]
        while waiting:
            for name in reads(waiting.pop()):
                op = self._makers.get(name)
                if op is None or (name in known and op.type != "const") or op.type in _OF_STATES:
                    inputs.add(name)
                elif id(op) not in found:
                    found.add(id(op))
                    waiting.append(op)
        body = [op for op in self._function.body.operations if id(op) in found]
        # A name that is no value of the function's is one of a nested block's own.
        parameters = [value for name, value in self._types.items() if name in inputs]
        return Function("piece", self._function.opset, parameters, Block([], body, [target]))


def evaluate(piece: Function, values: Mapping[str, Any], mode: Mode = "exact") -> torch.Tensor:
    """The output of a piece, given the values of its inputs as the interpreter carries them.

    Raises:
        ModelError: an op cannot take its operands.
    """
    given = {value.name: values[value.name] for value in piece.inputs}
    made: torch.Tensor = Interpreter(piece, mode).run(given)[piece.body.outputs[0]]
    return made


def rounding_effect(piece: Function, values: Mapping[str, Any], given: Collection[str]) -> float:
    """The most that two float16 roundings of each float16 constant may change in the output of a piece.

    Every element of the constants is moved by that much, up or down at random (seeded); the greatest difference that
    this makes counts fourfold. 0 where there are no such constants.

    Args:
        given: constants that hold what they should.
    """
    generator = torch.Generator().manual_seed(0)
    before = piece.body.operations
    after = [op if op.outputs and op.outputs[0].name in given else _moved(op, generator) for op in before]
    if all(new is old for new, old in zip(after, before, strict=True)):
        return 0.0
    moved = replace(piece, body=replace(piece.body, operations=after))
    difference = (evaluate(moved, values).double() - evaluate(piece, values).double()).abs()
    return _DRAWS * float(difference.nan_to_num(nan=0.0, posinf=0.0).max()) if difference.numel() else 0.0


def _moved(op: Operation, generator: torch.Generator) -> Operation:
    """The op with its float16 constants moved, or itself where it has none."""
    inputs = {
        operand: [_moved_constant(one, generator) if _is_half(one) else one for one in given]
        for operand, given in op.inputs.items()
    }
    return replace(op, inputs=inputs) if any(_is_half(one) for given in op.inputs.values() for one in given) else op


def _is_half(operand: Any) -> bool:
    return isinstance(operand, Constant) and isinstance(operand.type, TensorType) and operand.type.dtype == "fp16"


def _moved_constant(constant: Any, generator: torch.Generator) -> Constant:
    stored = constant.load().float()
    signs = torch.randint(0, 2, stored.shape, generator=generator) * 2 - 1
    moved = stored + signs * (stored.abs() * _TWO_ROUNDINGS).clamp(min=_SMALLEST) * (stored != 0)
    return Constant(TensorType("fp32", constant.type.shape), lambda: moved)
