"""Step 3 of a verdict: run what was emitted in the reference runtime, and hold it against torch on probes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind
from torch.fx import Interpreter as FxInterpreter
from torch.fx import Node

from ..errors import ModelError
from ..runtime.interpreter import Interpreter
from ..runtime.ir import Program, TensorType
from .nodes import has_undefined_values
from .probes import Operand, probes

# Values that the converted op may be off by, relative to the expected value and to the greatest one. Both sides
# compute in float32 (2**-24 = 6e-8 an operation), composed differently: sums of thousands of terms stay below 1e-5.
RTOL, ATOL = 1e-4, 1e-5
# Where the two differ by more, torch in float64 says how much of it is torch's own rounding.
_OWN_ROUNDING = 16
_MANY = 2**21  # elements; operands of more are probed less often


class Unproven(Exception):
    """Nothing could be shown; the message says why."""


class RandomValues(Unproven):
    """Torch gives other values each time."""


def wrong_values(
    program: ExportedProgram, emitted: Program, may_be_random: bool = False, any_of_equals: bool = False
) -> str:
    """How the MIL program of one node differs from torch, in one sentence, or "" where it agrees on every probe.

    Args:
        program: the node as a program of its own; user inputs are probed, constants are what they are.
        emitted: its conversion, before any pass but the frontend's own.
        may_be_random: torch marks the op as one that draws random numbers with some arguments.
        any_of_equals: an index that the op returns may be that of any of several equal values.

    Raises:
        Unproven: torch takes no probe, or the conversion has other inputs.
        RandomValues: the op does draw random numbers.
    """
    case = _Case(program, emitted)
    tried = False
    for probe, expected in probes(case.operands, case.eager, case.size > _MANY):
        if (
            may_be_random
            and not tried
            and any(_differs(*two) for two in zip(expected, case.eager(probe.values), strict=True))
        ):
            raise RandomValues("its values are random")
        tried = True
        found = case.difference(probe.values, expected, any_of_equals and not probe.distinct)
        if found:
            return f"on {probe.kind}, {found}"
    if not tried:
        raise Unproven("torch takes none of the probes")
    return ""


class _Case:
    """One node both ways: as torch runs it and as the runtime runs its conversion."""

    def __init__(self, program: ExportedProgram, emitted: Program) -> None:
        self._module = _Defined(program.graph_module)
        self._constants = []
        self.operands = []
        placeholders = [node for node in program.graph.nodes if node.op == "placeholder"]
        for node, spec in zip(placeholders, program.graph_signature.input_specs, strict=True):
            if spec.kind == InputKind.USER_INPUT:
                self.operands.append(_operand(node))
            else:
                self._constants.append(program.constants[str(spec.target)])
        self.size = sum(operand.count for operand in self.operands) + sum(c.numel() for c in self._constants)
        function = emitted.functions[emitted.default]
        self._interpreter = Interpreter(function, "exact")
        self._inputs = function.inputs
        if len(self._inputs) != len(self.operands):
            raise Unproven(f"its conversion has {len(self._inputs)} inputs, the node {len(self.operands)}")

    def eager(self, values: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """What torch makes of the values; raises what torch raises."""
        return _tensors(self._module.run(*self._constants, *values))

    def is_random(self, values: Sequence[torch.Tensor], once: list[torch.Tensor]) -> bool:
        """Whether torch gives something else the second time."""
        return any(_differs(*two) is not None for two in zip(once, self.eager(values), strict=True))

    def difference(self, values: Sequence[torch.Tensor], expected: list[torch.Tensor], no_indices: bool) -> str:
        """The first difference, or ""; `no_indices`: integers are not compared."""
        try:
            got = self._converted(values)
        except ModelError as error:
            return f"the conversion fails: {error}"
        for number, (one, other) in enumerate(zip(expected, got, strict=True)):
            if one.shape != other.shape:
                return f"torch gives shape {list(one.shape)}, the conversion {list(other.shape)}"
            if no_indices and one.dtype == torch.int64:
                continue
            where = _differs(one, other)
            if where is not None and not self._is_torchs_own_rounding(values, number, other):
                return self._sentence(values, one, other, where)
        return ""

    def _converted(self, values: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        data = {}
        for declared, value in zip(self._inputs, values, strict=True):
            assert isinstance(declared.type, TensorType)
            data[declared.name] = value.to(declared.type.element.carrier).reshape(_shape(declared.type, value))
        return _tensors(tuple(self._interpreter.run(data).values()))

    def _is_torchs_own_rounding(self, values: Sequence[torch.Tensor], number: int, got: torch.Tensor) -> bool:
        """Whether torch in float64 is as far from torch in float32 as the conversion is."""
        try:
            wide = self._module.run(*_widened(self._constants), *_widened(values))
            exact, own = _tensors(wide)[number].double(), self.eager(values)[number].double()
        except Exception:  # noqa: BLE001  an op without a float64 form
            return False
        error, allowed = (got.double() - exact).abs(), _OWN_ROUNDING * (own - exact).abs().max()
        return bool(torch.isfinite(exact).all()) and bool(error.max() <= allowed)

    def _sentence(
        self, values: Sequence[torch.Tensor], expected: torch.Tensor, got: torch.Tensor, where: tuple[int, ...]
    ) -> str:
        given = [
            f"{operand.name} = {_number(value[where] if value.dim() else value)}"
            for operand, value in zip(self.operands, values, strict=True)
            if value.shape == expected.shape or value.numel() == 1
        ]
        at = f"at {list(where)}" + (f" ({', '.join(given)})" if given else "")
        return f"{at} torch gives {_number(expected[where])}, the conversion {_number(got[where])}"


class _Defined(FxInterpreter):
    """Runs a graph in which what torch leaves undefined is 0, as it is in our conversions."""

    def run_node(self, n: Node) -> Any:
        result = super().run_node(n)
        return torch.zeros_like(result) if has_undefined_values(n) else result


def _operand(node: Node) -> Operand:
    value = node.meta["val"]
    if not isinstance(value, torch.Tensor):
        raise Unproven("it reads a size")
    return Operand(node.name, value.dtype, tuple(_concrete(size) for size in value.shape))


def _concrete(size: Any) -> int:
    """An open size as the example inputs had it."""
    if isinstance(size, int):
        return size
    return int(size.node.hint if size.node.has_hint() else 4)


def _tensors(result: Any) -> list[torch.Tensor]:
    values = result if isinstance(result, (tuple, list)) else (result,)
    return [value if isinstance(value, torch.Tensor) else torch.tensor(value) for value in values if value is not None]


def _shape(declared: TensorType, value: torch.Tensor) -> tuple[int, ...]:
    """Core ML's arrays have at least one dimension."""
    return (1,) if declared.shape == (1,) and value.dim() == 0 else tuple(value.shape)


def _widened(values: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    return [value.double() if value.dtype == torch.float32 else value for value in values]


def _differs(expected: torch.Tensor, got: torch.Tensor) -> tuple[int, ...] | None:
    """The first place where the difference exceeds the tolerance, or None.

    Integers that int32 does not hold are Core ML's declared narrowing. What is NaN or infinite on both sides agrees:
    0 * inf is NaN, and how often a sum meets it is a matter of its order.
    """
    if not expected.numel():
        return None
    if not expected.dtype.is_floating_point:
        wrong = expected.to(torch.int64) != got.to(torch.int64)
        if expected.dtype == torch.int64:
            limits = torch.iinfo(torch.int32)
            wrong &= (expected >= limits.min) & (expected <= limits.max)
        return _first(wrong)
    one, other = expected.double(), got.to(expected.dtype).double()
    finite = torch.isfinite(one)
    greatest = float(one[finite].abs().max()) if bool(finite.any()) else 0.0
    same = (one == other) | ~(finite | torch.isfinite(other))
    rounding = 4 * torch.finfo(expected.dtype).eps if expected.dtype.itemsize < 4 else 0.0  # torch's own, in halves
    near = (one - other).abs() <= max(RTOL, rounding) * one.abs() + max(ATOL, rounding) * greatest
    return _first(~same & ~(near & finite))


def _first(wrong: torch.Tensor) -> tuple[int, ...] | None:
    places = wrong.nonzero()
    return tuple(int(i) for i in places[0]) if len(places) else None


def _number(value: torch.Tensor) -> str:
    single = value.reshape(-1)[0].item()
    return f"{single:.6g}" if isinstance(single, float) else str(single)
