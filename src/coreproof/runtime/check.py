"""What Apple's runtime refuses or gets wrong, found in a program without running it.

Each rule is one small function that yields findings; each finding says the rule,
the op or value, what is wrong, and the source of the fact (`ct` is
apple/coremltools, `et` pytorch/executorch, `ort` microsoft/onnxruntime).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

from coremltools.converters.mil.mil import types
from coremltools.converters.mil.mil.ops.registry import SSAOpRegistry

from .ir import Constant, Function, Operation, Program, StateType, TensorType, Type
from .ops import OPSETS

MAX_RANK = 5
_MAX_SHAPES = 120
_FIRST_SPECIFICATION = 6  # iOS 15, whose opset is OPSETS[0]
_STATEFUL = 9  # iOS 18
# Element types of arrays that may cross the border of a function, with the specification that brought them.
_BORDER = {"fp32": 6, "int32": 6, "fp64": 6, "fp16": 7}
# Ops outside coremltools' core set, of the file format and of a dialect of its own, by a core op of the same age.
_AS_OLD_AS = {"write_state": "read_state", "coreml_update_state": "read_state"}


@dataclass(frozen=True)
class Finding:
    """One thing that Apple's runtime refuses or computes wrongly.

    Attributes:
        rule: stable id.
        where: the function and the op or value.
        problem: what is wrong, in one sentence.
        source: where the fact is from.
    """

    rule: str
    where: str
    problem: str
    source: str


@dataclass(frozen=True)
class _Scope:
    """A function with what its rules ask for."""

    function: Function
    specification: int
    types: dict[str, Type]

    @property
    def operations(self) -> list[Operation]:
        return list(self.function.body.walk())


Rule: TypeAlias = Callable[[_Scope], Iterator[Finding]]


def check(program: Program) -> list[Finding]:
    """Every finding in every function of the program, in order.

    A MIL program in memory has no specification version; that of its opset is taken.
    """
    return _findings(program, _RULES)


def check_ops(program: Program) -> list[Finding]:
    """The findings that are about ops and values inside, whatever crosses the border of a function."""
    return _findings(program, _OP_RULES)


def _findings(program: Program, rules: tuple[Rule, ...]) -> list[Finding]:
    findings = []
    for function in program.functions.values():
        specification = program.specification or _needed(function.opset)
        declared = {value.name: value.type for value in function.inputs}
        declared |= {value.name: value.type for op in function.body.walk() for value in op.outputs}
        scope = _Scope(function, specification, declared)
        for rule in rules:
            findings += list(rule(scope))
    return findings


def _needed(opset: str) -> int:
    return _FIRST_SPECIFICATION + OPSETS.index(opset) if opset in OPSETS else _FIRST_SPECIFICATION


def _opset_of_target(scope: _Scope) -> Iterator[Finding]:
    name, opset = scope.function.name, scope.function.opset
    if opset not in OPSETS:
        problem = f"its opset {opset!r} is none of {', '.join(OPSETS)}"
        yield Finding("opset-unknown", name, problem, "coremltools 9.0, opset names in MIL.proto")
    elif _needed(opset) > scope.specification:
        problem = f"its opset {opset} needs specification {_needed(opset)}; the model has {scope.specification}"
        yield Finding("opset-newer", name, problem, "coremltools 9.0, _OPSET")


def _border_types(scope: _Scope) -> Iterator[Finding]:
    inputs = [(value.name, value.type) for value in scope.function.inputs]
    outputs = [(name, scope.types.get(name)) for name in scope.function.body.outputs]
    images = {f.name for f in (*scope.function.input_features, *scope.function.output_features) if f.kind == "image"}
    for kind, values in (("input", inputs), ("output", outputs)):
        for name, declared in values:
            if not isinstance(declared, TensorType) or declared.dtype == "string" or name in images:
                continue
            since = _BORDER.get(declared.dtype)
            if since is None or since > scope.specification:
                problem = f"{kind} of type {declared.dtype}, which cannot cross the border of this function"
                yield Finding("border-dtype", f"{scope.function.name}: {name}", problem, "ct#2495, ort#28595, et#24317")


def _ranks(scope: _Scope) -> Iterator[Finding]:
    for name, declared in scope.types.items():
        inner = declared.wrapped if isinstance(declared, StateType) else declared
        if not isinstance(inner, TensorType) or inner.shape is None:
            continue
        where = f"{scope.function.name}: {name}"
        if len(inner.shape) > MAX_RANK:
            yield Finding("rank", where, f"{len(inner.shape)} dimensions; at most {MAX_RANK}", "ct#1723, ct#2291")
        if 0 in inner.shape:
            yield Finding("zero-size", where, f"a size of zero in {inner}", "ort#23262, ct#1635")


def _outputs(scope: _Scope) -> Iterator[Finding]:
    inputs = {value.name for value in scope.function.inputs}
    for name, count in Counter(scope.function.body.outputs).items():
        where = f"{scope.function.name}: {name}"
        if count > 1:
            yield Finding("repeated-output", where, f"returned {count} times", "ct#1887, et#24317")
        if name in inputs:
            yield Finding("output-is-input", where, "an input that is returned", "et#24317")


def _inputs(scope: _Scope) -> Iterator[Finding]:
    if not scope.function.inputs and scope.specification < _STATEFUL:
        problem = f"no inputs, which needs specification {_STATEFUL} (iOS 18)"
        yield Finding("no-inputs", scope.function.name, problem, "ct#2578")
    for value in scope.function.inputs:
        if isinstance(value.type, TensorType) and value.type.shape == ():
            yield Finding("rank-0-input", f"{scope.function.name}: {value.name}", "input without dimensions", "et#2769")
    features = scope.function.input_features
    enumerated = [f.name for f in features if f.enumerated]
    ranged = [f.name for f in features if any(low != high for low, high in f.ranges)]
    if enumerated and ranged:
        problem = f"{enumerated[0]!r} lists shapes and {ranged[0]!r} has a range"
        yield Finding("mixed-shapes", scope.function.name, problem, "ct#2548")
    for feature in features:
        if len(feature.enumerated) > _MAX_SHAPES:
            problem = f"{len(feature.enumerated)} listed shapes; about {_MAX_SHAPES} work"
            yield Finding("many-shapes", f"{scope.function.name}: {feature.name}", problem, "ct#989")


def _states(scope: _Scope) -> Iterator[Finding]:
    for value in scope.function.inputs:
        if not isinstance(value.type, StateType):
            continue
        where = f"{scope.function.name}: {value.name}"
        if value.type.wrapped.dtype != "fp16":
            yield Finding(
                "state-dtype", where, f"a state of type {value.type.wrapped.dtype}; states are fp16", "ct#2423"
            )
        if scope.specification < _STATEFUL:
            yield Finding("state-target", where, "states need specification 9 (iOS 18)", "coremltools 9.0")


def _known_ops(scope: _Scope) -> Iterator[Finding]:
    for operation in scope.operations:
        versions = SSAOpRegistry.core_ops.get(_AS_OLD_AS.get(operation.type, operation.type))
        if versions is None:
            yield Finding("unknown-op", _at(scope, operation), "no op of this name", "coremltools 9.0, core_ops")
        elif min(int(v) for v in versions) > _needed(scope.function.opset):
            problem = f"the op is not in the opset {scope.function.opset}"
            yield Finding("op-not-in-opset", _at(scope, operation), problem, "coremltools 9.0, core_ops")


def _operand_types(scope: _Scope) -> Iterator[Finding]:
    for operation in scope.operations:
        versions = SSAOpRegistry.core_ops.get(operation.type)
        usable = [v for v in versions or () if int(v) <= _needed(scope.function.opset)]
        if not versions or not usable:
            continue
        definition = versions[max(usable)]
        known = definition.input_spec.input_types
        for operand, given in operation.inputs.items():
            shared = getattr(known.get(operand), "type_domain_id", None)
            domain = definition.type_domains[shared] if shared else getattr(known.get(operand), "type_domain", None)
            if not domain:
                continue
            allowed = {types.builtin_to_string(one) for one in domain}
            for one in given:
                declared = one.type if isinstance(one, Constant) else scope.types.get(one)
                if isinstance(declared, TensorType) and declared.dtype not in allowed:
                    problem = f"operand {operand!r} is {declared.dtype}; expected {', '.join(sorted(allowed))}"
                    yield Finding("operand-dtype", _at(scope, operation), problem, "coremltools 9.0, type_domains")


def _refused_ops(scope: _Scope) -> Iterator[Finding]:
    for operation in scope.operations:
        where = _at(scope, operation)
        first = _type_of(scope, operation, "x")
        if operation.type in ("linear", "matmul") and first is not None and not first.element.is_float:
            yield Finding("integer-matmul", where, f"a matrix product of {first.dtype}", "ct#2575, et#11691")
        if operation.type == "matmul" and first is not None and first.shape is not None and len(first.shape) < 2:
            yield Finding("rank-1-matmul", where, "an operand with one dimension", "ct#2263, ort#21186")
        if operation.type == "non_zero":
            yield Finding("data-dependent-size", where, "its size depends on values", "et#17537")
        if operation.type == "batch_norm" and first is not None and first.shape is not None and len(first.shape) == 5:
            yield Finding("norm-rank", where, "batch_norm of 5 dimensions", "ct#2572, ct#2276")
        if operation.type == "reduce_sum" and first is not None and first.dtype == "bool":
            yield Finding("bool-sum", where, "a sum of bools", "ct#1570")
        if operation.type == "pow":
            yield from _power_of_two(scope, operation, where)


def _power_of_two(scope: _Scope, operation: Operation, where: str) -> Iterator[Finding]:
    made = {value.name: op for op in scope.operations for value in op.outputs if op.type == "const"}
    for given in operation.inputs.get("x", []):
        constant = given if isinstance(given, Constant) else None
        if isinstance(given, str) and given in made:
            inner = made[given].inputs.get("val", [])
            constant = inner[0] if inner and isinstance(inner[0], Constant) else None
        if constant is not None and _is_two(constant):
            yield Finding("pow-of-two", where, "2 ** y runs as y ** 2", "ct#2628, ct#2742")


def _is_two(constant: Constant) -> bool:
    return isinstance(constant.type, TensorType) and constant.type.elements == 1 and float(constant.load()) == 2.0


def _type_of(scope: _Scope, operation: Operation, operand: str) -> TensorType | None:
    given = operation.inputs.get(operand, [])
    if len(given) != 1:
        return None
    declared = given[0].type if isinstance(given[0], Constant) else scope.types.get(given[0])
    return declared if isinstance(declared, TensorType) else None


def _at(scope: _Scope, operation: Operation) -> str:
    return f"{scope.function.name}: {operation.type} {operation.name!r}"


_OP_RULES: tuple[Rule, ...] = (_ranks, _known_ops, _operand_types, _refused_ops)
_RULES: tuple[Rule, ...] = (_opset_of_target, _border_types, _outputs, _inputs, _states, *_OP_RULES)
