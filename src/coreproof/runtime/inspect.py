"""What a program holds, as plain values: `inspect`."""

from __future__ import annotations

from collections import Counter
from typing import Any

from .ir import Constant, Feature, Function, Operation, Program, StateType
from .ops import OPSETS

# Specification version to the oldest release that runs it.
TARGETS = {6: "iOS15", 7: "iOS16", 8: "iOS17", 9: "iOS18", 10: "iOS26"}


def inspect(program: Program) -> dict[str, Any]:
    """Functions, inputs and outputs, states, op counts, weights and deployment target; made of JSON's own types."""
    return {
        "specification": program.specification,
        "target": _target(program),
        "default_function": program.default,
        "metadata": program.metadata,
        "functions": {name: _function(function) for name, function in program.functions.items()},
    }


def _target(program: Program) -> str | None:
    if program.specification is not None:
        return TARGETS.get(program.specification, f"specification {program.specification}")
    opsets = [OPSETS.index(f.opset) for f in program.functions.values() if f.opset in OPSETS]
    return TARGETS[min(TARGETS) + max(opsets)] if opsets else None


def _function(function: Function) -> dict[str, Any]:
    types = {value.name: value.type for value in function.inputs}
    types |= {value.name: value.type for op in function.body.walk() for value in op.outputs}
    features = {f.name: f for f in (*function.input_features, *function.output_features)}
    operations = [op for op in function.body.walk() if op.type != "const"]
    return {
        "opset": function.opset,
        "inputs": {
            v.name: _described(str(v.type), features.get(v.name))
            for v in function.inputs
            if not isinstance(v.type, StateType)
        },
        "outputs": {
            name: _described(str(types.get(name, "unknown")), features.get(name)) for name in function.body.outputs
        },
        "states": {v.name: str(v.type.wrapped) for v in function.inputs if isinstance(v.type, StateType)},
        "ops": dict(sorted(Counter(op.type for op in operations).items(), key=lambda item: (-item[1], item[0]))),
        "weights": _weights(function),
    }


def _described(declared: str, feature: Feature | None) -> dict[str, Any]:
    found: dict[str, Any] = {"type": declared}
    if feature is None:
        return found
    if feature.kind == "image":
        found["image"] = f"{feature.color} {feature.size[0]}x{feature.size[1]}"
    elif feature.kind != "array":
        found["kind"] = feature.kind
    if feature.enumerated:
        found["shapes"] = [list(shape) for shape in feature.enumerated]
    if feature.ranges:
        found["ranges"] = [list(one) for one in feature.ranges]
    if feature.optional:
        found["optional"] = True
        found["default"] = feature.default
    return found


def _weights(function: Function) -> dict[str, int]:
    """Bytes of the constants in weight files, by element type; one that is read twice counts once."""
    sizes: dict[str, dict[str, int]] = {}
    for operation in function.body.walk():
        for constant in _constants(operation):
            if constant.source != "immediate":
                sizes.setdefault(str(constant.type).split("[")[0], {})[constant.source] = constant.bytes
    return {dtype: sum(found.values()) for dtype, found in sorted(sizes.items())}


def _constants(operation: Operation) -> list[Constant]:
    return [one for given in operation.inputs.values() for one in given if isinstance(one, Constant)]
