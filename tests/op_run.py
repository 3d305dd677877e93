"""Calls one op function of the reference runtime as the interpreter does, from plain numbers, lists and tensors."""

from __future__ import annotations

from typing import Any

import torch

from coreproof.runtime.ops import find_op
from coreproof.runtime.ops.convert import converter_of


def run(op: str, opset: str = "CoreML8", **operands: Any) -> Any:
    """The result of `op`; an operand that is no tensor, string or state becomes one as its annotation asks."""
    function = find_op(op, opset, op)
    arguments = {}
    for name, given in operands.items():
        parameter = function.parameters.get(name)
        if parameter is None:  # what an op asks for beside its operands: a generator, blocks
            arguments[name] = given
            continue
        convert = converter_of(parameter.kind)
        values = given if parameter.variadic else [given]
        converted = [
            convert(torch.as_tensor(v) if isinstance(v, int | float | bool) else v) for v in map(_tensor, values)
        ]
        arguments[name] = converted if parameter.variadic else converted[0]
    return function.call(**arguments)


def _tensor(value: Any) -> Any:
    plain = isinstance(value, list) and all(isinstance(one, int | float | bool | list) for one in value)
    return torch.tensor(value) if plain else value
