"""The text of a Python script that rebuilds a few MIL ops with coremltools, runs them and holds them against torch.

Half types become float32, as exact mode has them: float16's own rounding would hide small faults on a device.
"""

from __future__ import annotations

import base64
import contextlib
import io
import re
import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from ..errors import UnsupportedFileError
from ..runtime.ir import Constant, Function, ListType, Operation, TensorType, Type

_MOST_NUMBERS = 400  # that are written out
_INPUT_TYPES = {"float32": "fp32", "int32": "int32"}
_TARGETS = {"CoreML5": "iOS15", "CoreML6": "iOS16", "CoreML7": "iOS17", "CoreML8": "iOS18"}
_TEMPLATE = '''"""{title}

Rebuilds the MIL ops by themselves and runs them in coreproof's reference runtime; on macOS in Core ML too.
Exits with 1 where one of them gives other values than torch did. Needs coremltools and coreproof.
"""

import base64
import sys
import zlib

import coremltools as ct
import numpy as np
from coremltools.converters.mil import Builder as mb
from coremltools.converters.mil.mil import types
from numpy import inf, nan

from coreproof.runtime import load


def packed(text, dtype, shape):
    return np.frombuffer(zlib.decompress(base64.b85decode(text)), dtype).reshape(shape)


INPUTS = {{
{inputs}}}
EXPECTED = {expected}  # by torch
ALLOWED = {allowed!r}  # half of the error that was found


@mb.program(input_specs=[{specs}], opset_version=ct.target.{target})
def program({parameters}):
{body}


def reference():
    return load(program, mode="exact").predict(INPUTS)


def core_ml():
    model = ct.convert(
        program,
        source="milinternal",
        minimum_deployment_target=ct.target.{target},
        compute_precision=ct.precision.FLOAT32,
        pass_pipeline=ct.PassPipeline.EMPTY,
    )
    return model.predict(INPUTS)


def is_wrong(name, outputs):
    (got,) = outputs.values()
    got = np.asarray(got, np.float64).reshape(EXPECTED.shape)
    same = (got == EXPECTED) | (np.isnan(got) & np.isnan(EXPECTED))
    with np.errstate(invalid="ignore"):
        error = np.where(same, 0, np.nan_to_num(np.abs(got - EXPECTED), nan=inf))
    print(f"{{name}}: got", got.tolist(), "off by up to", error.max())
    return bool((error > ALLOWED).any())


def main():
    print("expected", EXPECTED.tolist())
    wrong = is_wrong("reference runtime", reference())
    if sys.platform == "darwin":
        wrong |= is_wrong("Core ML", core_ml())
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
'''


def script(piece: Function, values: Mapping[str, Any], expected: torch.Tensor, allowed: float, title: str) -> str:
    """The script; it exits with 1 as long as a result is off by more than `allowed`.

    Args:
        piece: ops without nested blocks; its inputs' types say how the ops take them.
        values: of its inputs, as the interpreter carries them.
        title: one line, for the script's first.

    Raises:
        UnsupportedFileError: an op has nested blocks, or an operand that is neither tensor nor string.
    """
    names = _Names(piece)
    inputs = [value.name for value in piece.inputs]
    arrays = {name: _as_input(values[name]) for name in inputs}
    body = [line for value in piece.inputs for line in _cast_in(names, value.name, value.type, arrays[value.name])]
    body += [line for op in piece.body.operations if op.type != "const" for line in _op(names, op)]
    (output,) = piece.body.outputs
    body.append(_cast_out(names, output, piece))
    return _TEMPLATE.format(
        title=title,
        inputs="".join(f'    "{names[name]}": {_literal(arrays[name])},\n' for name in inputs),
        expected=_literal(expected.double().numpy()),
        allowed=allowed,
        specs=", ".join(
            f"mb.TensorSpec(shape={arrays[name].shape}, dtype=types.{_INPUT_TYPES[str(arrays[name].dtype)]})"
            for name in inputs
        ),
        target=_TARGETS.get(piece.opset, "iOS18"),
        parameters=", ".join(names[name] for name in inputs),
        body="\n".join(f"    {line}" for line in body),
    )


def shows(text: str) -> bool:
    """Whether the script shows the fault in the reference runtime; False too where coremltools refuses its ops."""
    names: dict[str, Any] = {"__name__": "script"}
    try:
        exec(compile(text, "script", "exec"), names)
        with contextlib.redirect_stdout(io.StringIO()):
            return bool(names["is_wrong"]("", names["reference"]()))
    except Exception:  # coremltools raises every type
        return False


class _Names:
    """Python names for MIL values, and the constants among them."""

    def __init__(self, piece: Function) -> None:
        self._names: dict[str, str] = {}
        self.constants = {
            op.outputs[0].name: given
            for op in piece.body.operations
            if op.type == "const" and isinstance(given := op.inputs["val"][0], Constant)
        }

    def __getitem__(self, value: str) -> str:
        if value not in self._names:
            name = re.sub(r"\W", "_", value)
            name = name if name.isidentifier() else f"v_{name}"
            while name in self._names.values():
                name += "_"
            self._names[value] = name
        return self._names[value]

    def operand(self, given: Any) -> str:
        """An operand as Python."""
        if isinstance(given, str) and given in self.constants:
            given = self.constants[given]
        return self[given] if isinstance(given, str) else _constant(given)


def _op(names: _Names, op: Operation) -> list[str]:
    if op.blocks:
        raise UnsupportedFileError(f"{op.type} {op.name!r} has nested blocks, which no script is written of")
    operands = []
    for operand, given in op.inputs.items():
        written = [names.operand(one) for one in given]
        several = operand == "values" or len(written) > 1
        operands.append(f"{operand}=[{', '.join(written)}]" if several else f"{operand}={written[0]}")
    results = ", ".join(names[value.name] for value in op.outputs)
    return [f"{results} = mb.{op.type}({', '.join(operands)})"]


def _as_input(value: torch.Tensor) -> np.ndarray:
    """In a type that a Core ML model takes."""
    return value.float().numpy() if value.is_floating_point() else value.to(torch.int32).numpy()


def _cast_in(names: _Names, name: str, declared: Type, array: np.ndarray) -> list[str]:
    own = _single(declared.dtype) if isinstance(declared, TensorType) else "fp32"
    if own == _INPUT_TYPES[str(array.dtype)]:
        return []
    return [f'{names[name]} = mb.cast(x={names[name]}, dtype="{own}")']


def _cast_out(names: _Names, output: str, piece: Function) -> str:
    types = {value.name: value.type for op in piece.body.operations for value in op.outputs}
    declared = types[output]
    own = _single(declared.dtype) if isinstance(declared, TensorType) else ""
    return f"return {names[output]}" if own in ("fp32", "int32") else f'return mb.cast(x={names[output]}, dtype="fp32")'


def _constant(constant: Constant) -> str:
    value, declared = constant.load(), constant.type
    if isinstance(value, str):
        return repr(_single(value))
    if not isinstance(value, torch.Tensor) or isinstance(declared, ListType) or not isinstance(declared, TensorType):
        raise UnsupportedFileError(f"a constant of type {declared}, which no script is written of")
    array = value.float().numpy() if value.is_floating_point() else value.numpy()
    if array.ndim == 0:
        item = array.item()
        return repr(item) if array.dtype.kind == "b" else f"np.{array.dtype}({item!r})"
    return _literal(array)


def _single(dtype: str) -> str:
    """MIL's name of a type, float32's in the place of a half type's."""
    return "fp32" if dtype in ("fp16", "bf16") else dtype


def _literal(array: np.ndarray) -> str:
    if array.size <= _MOST_NUMBERS:
        return f"np.array({array.tolist()!r}, np.{_numpy_name(array)}).reshape({array.shape})"
    text = base64.b85encode(zlib.compress(np.ascontiguousarray(array).tobytes(), 9)).decode()
    return f'packed("{text}", np.{_numpy_name(array)}, {array.shape})'


def _numpy_name(array: np.ndarray) -> str:
    return "bool_" if array.dtype.kind == "b" else str(array.dtype)
