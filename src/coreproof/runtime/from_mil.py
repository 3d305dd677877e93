"""A coremltools MIL `Program` in memory, before or after its passes, to the runtime's form of a program."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import torch
from coremltools.converters.mil.mil import Program as MILProgram
from coremltools.converters.mil.mil import types
from coremltools.converters.mil.mil.types.symbolic import is_symbolic

from .ir import (
    Block,
    Constant,
    DictionaryType,
    Function,
    ListType,
    Operand,
    Operation,
    Program,
    StateType,
    TensorType,
    TupleType,
    Type,
    Value,
)

# Specification version to the name of the opset in a file (the first is iOS 15's).
_FIRST_VERSION, _FIRST_OPSET = 6, 5


def from_mil(program: MILProgram) -> Program:
    """The program in the runtime's form; constants are views of the arrays that it holds."""
    functions = {name: _Reader().function(name, function) for name, function in program.functions.items()}
    default = program.default_function_name if program.default_function_name in functions else next(iter(functions))
    return Program(functions, default)


class _Reader:
    """Reads one function. Before the passes names may repeat, so each Var gets a name of its own."""

    def __init__(self) -> None:
        self._names: dict[Any, str] = {}
        self._taken: set[str] = set()

    def function(self, name: str, function: Any) -> Function:
        opset = f"CoreML{function.opset_version.value - _FIRST_VERSION + _FIRST_OPSET}"
        inputs = [Value(self._name(var), _type(var.sym_type)) for var in function.inputs.values()]
        return Function(name, opset, inputs, self._block(function, []))

    def _block(self, block: Any, inputs: list[Any]) -> Block:
        parameters = [Value(self._name(var), _type(var.sym_type)) for var in inputs]
        operations = [self._operation(op) for op in block.operations]
        return Block(parameters, operations, [self._name(var) for var in block.outputs])

    def _operation(self, op: Any) -> Operation:
        inputs: dict[str, list[Operand]] = {}
        for operand, given in op.inputs.items():
            if given is None or operand.startswith("_"):
                continue
            many = given if isinstance(given, (list, tuple)) else [given]
            inputs[operand] = [self._operand(var) for var in many]
        outputs = [Value(self._name(var), _type(var.sym_type)) for var in op.outputs]
        if op.op_type == "const":
            var = op.outputs[0]
            inputs = {"val": [Constant(outputs[0].type, partial(_stored, var.val, outputs[0].type))]}
        blocks = [self._block(block, block.inputs) for block in op.blocks]
        return Operation(op.op_type, inputs, outputs, blocks, op.name or op.op_type)

    def _operand(self, var: Any) -> Operand:
        # The values of nested tuples and of constants without an op of their own.
        if var.op is None and var.val is not None and var not in self._names:
            declared = _type(var.sym_type)
            return Constant(declared, partial(_stored, var.val, declared))
        return self._name(var)

    def _name(self, var: Any) -> str:
        if var not in self._names:
            name, number = var.name, 1
            while name in self._taken:
                number += 1
                name = f"{var.name}#{number}"
            self._taken.add(name)
            self._names[var] = name
        return self._names[var]


def _type(declared: Any) -> Type:
    if types.is_state(declared):
        wrapped = _type(declared.wrapped_type())
        assert isinstance(wrapped, TensorType)
        return StateType(wrapped)
    if types.is_tensor(declared):
        shape = tuple(None if is_symbolic(size) else int(size) for size in declared.get_shape())
        return TensorType(types.builtin_to_string(declared.get_primitive()), shape)
    if types.is_list(declared):
        length = declared.T[2] if isinstance(declared.T[2], int) else None
        return ListType(
            _type(declared.T[0]) if declared.T[0] is not types.unknown else TensorType("fp32", None), length
        )
    if types.is_dict(declared):
        return DictionaryType(_type(declared.T[0]), _type(declared.T[1]))
    if types.is_tuple(declared):
        return TupleType(tuple(_type(one) for one in declared.T))
    return TensorType(types.builtin_to_string(declared), ())


def _stored(value: Any, declared: Type) -> Any:
    if isinstance(declared, ListType):
        return [_stored(one, declared.element) for one in value]
    assert isinstance(declared, TensorType)
    if declared.dtype == "string":
        return value if isinstance(value, str) else np.asarray(value).reshape(-1).tolist()
    element = declared.element
    array = np.asarray(value)
    if array.dtype.kind not in "biuf":
        array = array.astype(np.float64)
    if element.stored is None:  # sub-byte integers are numpy's 8-bit ones here
        return torch.from_numpy(array.astype(np.int16)).to(element.carrier)
    if array.dtype == np.uint16:
        return torch.from_numpy(array.astype(np.int32)).reshape(array.shape)
    array = np.ascontiguousarray(array).reshape(array.shape)
    if not array.flags.writeable:
        array = array.copy()
    return torch.from_numpy(array)
