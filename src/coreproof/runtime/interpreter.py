"""Runs one function: an environment of values and one loop over the operations.

Before the first run each operation becomes a step: the function that does it,
the operands that are known, and the values that nobody reads after it. Every
op computes floats in float32; in the mode `declared` a result of a half type
is then rounded once to it (what a device does), in the mode `exact` it is not.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal, TypeAlias

import torch

from ..errors import CoreproofError, InputError, ModelError
from .dtypes import carried, rounded
from .in_place import reads, updates_in_place
from .ir import Block, Constant, Function, ListType, Operation, StateType, TensorType, Value
from .memory import require_room
from .ops import Context, OpFunction, find_op
from .ops.convert import converter_of
from .states import State

Mode = Literal["declared", "exact"]

# What an op function raises on operands that it cannot take; anything else is a bug and surfaces as itself.
_OPERAND_ERRORS = (
    RuntimeError,
    ValueError,
    IndexError,
    TypeError,
    OverflowError,
    NotImplementedError,
    ZeroDivisionError,
)


class _Stop(Exception):
    """The op after which the caller wants to stop has run."""


# An operand of a step: its name, the values that it reads, whether it takes several, and how they become the argument.
_Operand: TypeAlias = tuple[str, list[str], bool, Callable[[Any], Any]]


@dataclass(slots=True)
class _Step:
    """One operation, ready to run.

    Attributes:
        known: the arguments that are the same in every run.
        constant: operands that become known when the step first runs.
        variable: operands that are read in each run.
        finish: for each result, its check and rounding.
        names: of the results.
        drops: values that nobody reads after this step.
        in_place: whether the result may take the memory of the operand that it changes.
    """

    operation: Operation
    function: OpFunction
    known: dict[str, Any]
    constant: list[_Operand]
    variable: list[_Operand]
    finish: list[Callable[[Any], Any]]
    names: list[str]
    drops: tuple[str, ...]
    in_place: bool = False


@dataclass(eq=False)
class Interpreter:
    """One function, ready to run.

    Args:
        function: the program's function.
        mode: `declared` rounds each result to its declared type, `exact` keeps float32 throughout.

    Raises:
        ModelError: an op that does not exist in the function's opset, a value that nothing makes, an unknown operand.
    """

    function: Function
    mode: Mode = "declared"
    _constants: dict[str, Callable[[], Any]] = field(default_factory=dict, init=False)
    _loaded: dict[str, Any] = field(default_factory=dict, init=False)
    _steps: dict[int, list[_Step]] = field(default_factory=dict, init=False)
    _in_place: set[int] = field(default_factory=set, init=False)

    def __post_init__(self) -> None:
        body = self.function.body
        states = [value.name for value in self.function.inputs if isinstance(value.type, StateType)]
        self._in_place = updates_in_place(body.operations, states)
        self._prepare(body, {value.name for value in self.function.inputs}, keep=set(body.outputs))

    # -- preparing -------------------------------------------------------------------------------------------------

    def _prepare(self, block: Block, outer: set[str], keep: set[str]) -> None:
        defined = set(outer) | {value.name for value in block.inputs}
        live: list[Operation] = []
        for operation in block.operations:
            self._require_defined(operation, defined)
            if self._is_constant(operation):
                self._declare_constants(operation)
            else:
                live.append(operation)
            defined |= {value.name for value in operation.outputs}
        for name in block.outputs:
            if name not in defined:
                raise ModelError(f"output {name!r} of a block of function {self.function.name!r} is made by no op")
        last = _last_reads(live)
        ending: dict[int, set[str]] = {}
        for name, number in last.items():
            ending.setdefault(number, set()).add(name)
        inner = {value.name for operation in live for value in operation.outputs} - keep
        steps = []
        before: set[str] = set(outer) | {value.name for value in block.inputs}
        for number, operation in enumerate(live):
            made = {value.name for value in operation.outputs}
            dead = ending.get(number, set()) & inner
            dead |= {name for name in made if name not in last and name not in keep}
            steps.append(self._step(operation, tuple(sorted(dead))))
            before |= made
            for nested in operation.blocks:
                self._prepare(nested, before | set(self._constants), set(nested.outputs))
        self._steps[id(block)] = steps

    def _require_defined(self, operation: Operation, defined: set[str]) -> None:
        for operand, given in operation.inputs.items():
            for one in given:
                if isinstance(one, str) and one not in defined and one not in self._constants:
                    raise ModelError(
                        f"{_where(operation)}: operand {operand!r} reads {one!r}, which no earlier op makes"
                    )

    def _is_constant(self, operation: Operation) -> bool:
        if operation.type == "const":
            return True
        return operation.type.startswith("constexpr_") and all(
            isinstance(one, Constant) or one in self._constants for given in operation.inputs.values() for one in given
        )

    def _declare_constants(self, operation: Operation) -> None:
        if operation.type == "const":
            given = operation.inputs.get("val", [])
            if len(given) != 1 or not isinstance(given[0], Constant) or len(operation.outputs) != 1:
                raise ModelError(f"{_where(operation)}: a const has one value and one output")
            constant = given[0]
            self._constants[operation.outputs[0].name] = lambda: _carry(constant.load(), constant.type)
            return
        step = self._step(operation, ())
        for position, value in enumerate(operation.outputs):
            self._constants[value.name] = partial(self._folded, step, position)

    def _folded(self, step: _Step, position: int) -> Any:
        return self._call(step, {}, Context())[position]

    def _step(self, operation: Operation, drops: tuple[str, ...]) -> _Step:
        function = find_op(operation.type, self.function.opset, _where(operation))
        constant: list[_Operand] = []
        variable: list[_Operand] = []
        for operand, given in operation.inputs.items():
            parameter = function.parameters.get(operand)
            if parameter is None:
                raise ModelError(
                    f"{_where(operation)}: has no operand {operand!r}; expected {', '.join(function.parameters)}"
                )
            if len(given) != 1 and not parameter.variadic:
                raise ModelError(f"{_where(operation)}: operand {operand!r} is given {len(given)} values; expected 1")
            names = [self._named(one) for one in given]
            kind = constant if all(name in self._constants for name in names) else variable
            kind.append((operand, names, parameter.variadic, converter_of(parameter.kind)))
        missing = [n for n, p in function.parameters.items() if p.required and n not in operation.inputs]
        if missing:
            raise ModelError(f"{_where(operation)}: operand {missing[0]!r} is missing")
        self._require_outputs(operation, function)
        finish = [self._finish(operation, value, function) for value in operation.outputs]
        names = [value.name for value in operation.outputs]
        known = self._known_extras(operation, function)
        return _Step(
            operation, function, known, constant, variable, finish, names, drops, id(operation) in self._in_place
        )

    def _known_extras(self, operation: Operation, function: OpFunction) -> dict[str, Any]:
        """What an op function asks for beside its operands and is the same in every run (see `ops/__init__.py`)."""
        known = {"results": [value.type for value in operation.outputs], "declared": self.mode == "declared"}
        return {name: value for name, value in known.items() if name in function.extras}

    def _named(self, operand: Any) -> str:
        """The name of an operand; a constant written in place gets one."""
        if isinstance(operand, str):
            return operand
        name = f"<constant {len(self._constants)}>"
        self._constants[name] = lambda: _carry(operand.load(), operand.type)
        return name

    @staticmethod
    def _require_outputs(operation: Operation, function: OpFunction) -> None:
        if not operation.outputs and not function.no_result:
            raise ModelError(f"{_where(operation)}: declares no output")

    def _finish(self, operation: Operation, value: Value, function: OpFunction) -> Callable[[Any], Any]:
        """Checks a result against its declaration and rounds it where the mode asks for it."""
        declared = value.type
        if not isinstance(declared, TensorType):
            return _unchanged
        element, shape = declared.element, declared.shape
        if element.carrier is None:
            return _unchanged
        if declared.elements is not None:
            require_room(declared.elements * max(1, element.carrier.itemsize), _where(operation))
        rounds = self.mode == "declared" and element.stored != element.carrier and element.is_float
        rounds = rounds and not function.moves_data

        def finish(result: Any) -> torch.Tensor:
            if not isinstance(result, torch.Tensor):
                raise ModelError(f"{_where(operation)}: made a {type(result).__name__}; declared {declared}")
            if result.shape != shape and shape is not None and not _fits(result.shape, shape):
                raise ModelError(f"{_where(operation)}: made shape {list(result.shape)}; declared {declared}")
            if result.dtype != element.carrier:
                if (
                    result.dtype.is_floating_point != element.is_float
                    or result.dtype == torch.bool
                    or (element.carrier == torch.bool)
                ):
                    raise ModelError(f"{_where(operation)}: made {result.dtype}; declared {declared}")
                result = result.to(element.carrier)
            return rounded(result, element) if rounds else result

        return finish

    # -- running ---------------------------------------------------------------------------------------------------

    def run(
        self,
        inputs: dict[str, Any],
        *,
        taps: Collection[str] | Literal["all"] = (),
        stop_after: str | None = None,
        seed: int = 0,
        rounding: Collection[str] = (),
    ) -> dict[str, Any]:
        """Run the function once.

        Args:
            inputs: a carried tensor for each input and a `State` for each state, by name.
            taps: names of values to return beside the outputs, or `all`.
            stop_after: name of a value; the run ends once it is made, and is returned with what is known by then.
            seed: of the random ops.
            rounding: names of float values that are rounded to their declared types in exact mode too.

        Raises:
            ModelError: an op cannot take its operands, or makes something else than it declares.
            InputError: a tap or `stop_after` names no value of the function.
        """
        generator = torch.Generator().manual_seed(seed)
        wanted = self._wanted(taps, stop_after)
        context = Context(generator=generator, kept={}, wanted=wanted, stop_after=stop_after, rounding=rounding)
        context.run_block = lambda block, arguments, environment: self._run_block(
            block, {**environment, **dict(zip((v.name for v in block.inputs), arguments, strict=True))}, context
        )
        environment = dict(inputs)
        for name in wanted & set(environment):
            context.kept[name] = environment[name]
        with torch.no_grad():
            try:
                outputs = self._run_block(self.function.body, environment, context)
                results = dict(zip(self.function.body.outputs, outputs, strict=True)) | context.kept
            except _Stop:
                results = context.kept
            return _apart(results, [value for value in inputs.values() if isinstance(value, State)])

    def _wanted(self, taps: Collection[str] | Literal["all"], stop_after: str | None) -> set[str]:
        if not taps and stop_after is None:
            return set()
        known = {v.name for op in self.function.body.walk() for v in op.outputs if op.type != "const"}
        known |= {value.name for value in self.function.inputs if not isinstance(value.type, StateType)}
        wanted = set(known) if taps == "all" else set(taps)
        if stop_after is not None:
            wanted.add(stop_after)
        unknown = sorted(wanted - known - set(self._constants))
        if unknown:
            raise InputError(f"function {self.function.name!r} has no value named {unknown[0]!r}")
        return wanted

    def _run_block(self, block: Block, environment: dict[str, Any], context: Context) -> list[Any]:
        wanted = context.wanted
        for step in self._steps[id(block)]:
            results = self._call(step, environment, context)
            for name, result in zip(step.names, results, strict=True):
                if name in context.rounding:
                    result = _as_declared(step.operation, name, result)
                environment[name] = result
                if wanted and name in wanted:
                    context.kept[name] = result
                    if name == context.stop_after:
                        raise _Stop
            for name in step.drops:
                environment.pop(name, None)
        return [self._read(name, environment) for name in block.outputs]

    def _read(self, name: str, environment: dict[str, Any]) -> Any:
        if name in environment:
            return environment[name]
        if name not in self._loaded:
            self._loaded[name] = self._constants[name]()
        return self._loaded[name]

    def _call(self, step: _Step, environment: dict[str, Any], context: Context) -> list[Any]:
        if step.constant:
            self._read_operands(step, step.constant, environment, step.known)
            step.constant = []
        arguments = step.known.copy()
        self._read_operands(step, step.variable, environment, arguments)
        for name in step.function.running_extras:
            arguments[name] = self._extra(name, step, environment, context)
        try:
            result = step.function.call(**arguments)
        except CoreproofError as error:
            if isinstance(error, _Located):
                raise
            raise _Located(f"{_where(step.operation)}: {error}") from error
        except _OPERAND_ERRORS as error:
            text = str(error).strip().splitlines()
            raise _Located(f"{_where(step.operation)}: {text[0] if text else type(error).__name__}") from error
        results = result if isinstance(result, (tuple, list)) and step.function.many else (result,)
        if step.function.no_result and not step.finish:
            return []
        if len(results) != len(step.finish):
            raise ModelError(f"{_where(step.operation)}: made {len(results)} values; declared {len(step.finish)}")
        return [finish(one) for finish, one in zip(step.finish, results, strict=True)]

    def _read_operands(
        self, step: _Step, operands: list[_Operand], environment: dict[str, Any], arguments: dict[str, Any]
    ) -> None:
        """Add the operands to the arguments."""
        operand = ""
        try:
            for operand, names, variadic, convert in operands:
                if variadic:
                    arguments[operand] = [convert(self._read(name, environment)) for name in names]
                else:
                    arguments[operand] = convert(self._read(names[0], environment))
        except (ValueError, TypeError, RuntimeError) as error:
            raise ModelError(f"{_where(step.operation)}: operand {operand!r}: {error}") from error

    def _extra(self, name: str, step: _Step, environment: dict[str, Any], context: Context) -> Any:
        if name == "generator":
            return context.generator
        if name == "in_place":
            return step.in_place and not context.wanted  # a tapped value stays as it was
        return [  # the nested blocks
            lambda *arguments, block=block: context.run_block(block, arguments, environment)
            for block in step.operation.blocks
        ]


class _Located(ModelError):
    """A ModelError whose message already names the op."""


def _where(operation: Operation) -> str:
    origin = f" ({operation.origin})" if operation.origin else ""
    return f"{operation.type} {operation.name!r}{origin}"


def _fits(shape: Iterable[int], declared: tuple[int | None, ...]) -> bool:
    sizes = tuple(shape)
    return len(sizes) == len(declared) and all(d is None or s == d for s, d in zip(sizes, declared, strict=True))


def _last_reads(operations: list[Operation]) -> dict[str, int]:
    """For each value, the number of the last operation that reads it, in its own operands or in its blocks."""
    last: dict[str, int] = {}
    for number, operation in enumerate(operations):
        for name in reads(operation):
            last[name] = number
    return last


def _carry(value: Any, declared: Any) -> Any:
    if isinstance(value, torch.Tensor) and isinstance(declared, TensorType):
        return carried(value, declared.element)
    if isinstance(value, list) and isinstance(declared, ListType):
        return [_carry(one, declared.element) for one in value]
    return value


def _apart(results: dict[str, Any], states: list[State]) -> dict[str, Any]:
    """The results, those in the memory of a state copied: the next run may change it."""
    held = {state.tensor.untyped_storage().data_ptr() for state in states}
    if not held:
        return results
    return {
        name: one.clone() if isinstance(one, torch.Tensor) and one.untyped_storage().data_ptr() in held else one
        for name, one in results.items()
    }


def _as_declared(operation: Operation, name: str, result: Any) -> Any:
    declared = next(value.type for value in operation.outputs if value.name == name)
    if not isinstance(declared, TensorType) or not declared.element.is_float:
        return result
    return rounded(result, declared.element)


def _unchanged(result: Any) -> Any:
    return result
