"""What a `.pte` holds, as plain values, and its Core ML delegates as packages."""

from __future__ import annotations

import os
import secrets
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

from ...errors import InputError, ModelError
from ..inspect import inspect
from .program import DelegateCall, KernelCall, Method, Scalar, TensorSpec
from .runner import PteProgram

_PACKAGE = "model.mlpackage/"


def inspect_pte(program: PteProgram) -> dict[str, Any]:
    """Methods with inputs, outputs, kernels, delegates and memory; made of JSON's own types.

    Raises:
        ModelError: a Core ML delegate is broken.
    """
    missing = set(program.missing_kernels)
    models = {where: inspect(one.program) for where, _, one in program.core_ml_delegates()}
    return {
        "methods": {name: _method(one, models) for name, one in program.program.methods.items()},
        "missing_kernels": sorted(missing),
        "named_data": {name: len(data) for name, data in program.program.named_data.items()},
    }


def _method(method: Method, models: dict[str, dict[str, Any]]) -> dict[str, Any]:
    steps = [step for chain in method.chains for step in chain]
    calls = Counter(method.operators[step.operator] for step in steps if isinstance(step, KernelCall))
    return {
        "inputs": [_described(method, index) for index in method.inputs],
        "outputs": [_described(method, index) for index in method.outputs],
        "kernels": dict(sorted(calls.items(), key=lambda item: (-item[1], item[0]))),
        "delegate_calls": sum(isinstance(step, DelegateCall) for step in steps),
        "delegates": [
            {"backend": one.id, "bytes": len(one.data), "model": models.get(f"{method.name}/{number}")}
            for number, one in enumerate(method.delegates)
        ],
        "mutable_buffers": [str(value) for value in method.values if _is_held(value, method)],
        "constant_bytes": sum(
            len(value.data)
            for value in method.values
            if isinstance(value, TensorSpec) and value.data is not None and value.planned is None
        ),
        "planned_bytes": sum(method.buffer_sizes[1:]),
    }


def _described(method: Method, index: int) -> str:
    value = method.values[index]
    return repr(value.value) if isinstance(value, Scalar) else str(value)


def _is_held(value: object, method: Method) -> bool:
    """Whether a value keeps what it holds between calls: a planned tensor with initial data."""
    return isinstance(value, TensorSpec) and value.planned is not None and value.data is not None


def extract(program: PteProgram, folder: str | os.PathLike[str]) -> list[str]:
    """Write the model of each Core ML delegate as an `.mlpackage` into a new folder.

    A model that several delegates share is written once.

    Args:
        folder: where to; it must not exist, and appears only when it is complete.

    Returns:
        The names of the packages, `forward_0.mlpackage` and so on.

    Raises:
        InputError: the folder exists or cannot be written; the program has no Core ML delegate.
        ModelError: a delegate is broken, or holds no package (a compiled model).
    """
    target = Path(folder)
    if target.exists():
        raise InputError(f"cannot write {target}: it exists; give the name of a new folder")
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(4)}.part")
    try:
        temporary.mkdir()
        names = _packages(program, temporary)
        if not names:
            raise InputError("the program has no Core ML delegate, so there is nothing to extract")
        os.replace(temporary, target)
    except OSError as error:
        raise InputError(f"cannot write {target}: {error.strerror or error}") from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return names


def _packages(program: PteProgram, folder: Path) -> list[str]:
    names: list[str] = []
    shared: set[str] = set()
    for where, delegate, _ in program.core_ml_delegates():
        key, files = program.model_files(delegate, f"delegate {where}")
        if key is not None and key in shared:
            continue
        shared.add(key or "")
        method, _, number = where.rpartition("/")
        name = f"{_safe(method)}_{number}.mlpackage"
        _write_package(files, folder / name, where)
        names.append(name)
    return names


def _write_package(files: Any, target: Path, where: str) -> None:
    inside = [path for path in files.paths if _PACKAGE in f"/{path}"]
    if not inside:
        raise ModelError(f"delegate {where} holds no {_PACKAGE[:-1]}; a compiled model cannot be extracted")
    for path in inside:
        # Each part of a path is a plain name: `Flattened` refuses separators, `.` and `..`.
        file = target / path.split(_PACKAGE, 1)[1]
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(files.source(path))


def _safe(name: str) -> str:
    """A method's name as part of a file name."""
    return "".join(one if one.isalnum() or one in "-_" else "_" for one in name) or "method"
