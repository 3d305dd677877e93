"""The runtime's commands on a whole `.pte`."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .cli_result import Result

if TYPE_CHECKING:
    from .report.console import Progress
    from .runtime import PteProgram
    from .runtime.interpreter import Mode


def run(arguments: argparse.Namespace, progress: Progress) -> Result:
    """`coreproof run` of a method."""
    from .errors import InputError
    from .files import write_atomically
    from .report.runtime import outputs_text
    from .runtime.given import archive_of, random_tensors, tensors_from_files

    progress("loading the program")
    program = _load(arguments.file, arguments.mode)
    name = arguments.function or ("forward" if "forward" in program.method_names else program.method_names[0])
    method = program.loaded(name).method
    if arguments.random:
        inputs = random_tensors([method.values[index] for index in method.inputs], arguments.seed)
    else:
        inputs = tensors_from_files(arguments.inputs)
        if len(inputs) != len(method.inputs):
            expected = ", ".join(str(method.values[i]) for i in method.inputs)
            raise InputError(f"{len(inputs)} inputs for method {name!r}; expected {len(method.inputs)}: {expected}")
    outputs: dict[str, Any] = {}
    for step in range(arguments.steps):
        progress(f"running step {step + 1} of {arguments.steps}")
        made = program.run(*inputs, method=name)
        outputs = {f"output{i}": one.numpy() if hasattr(one, "numpy") else one for i, one in enumerate(made)}
    if arguments.output:
        write_atomically(arguments.output, archive_of(outputs))
    document = {
        "command": "run",
        "file": arguments.file,
        "method": name,
        "mode": arguments.mode,
        "output": arguments.output,
        "outputs": {key: described(value) for key, value in outputs.items()},
    }
    return Result(document, lambda: outputs_text(outputs, arguments.output))


def described(value: Any) -> dict[str, Any]:
    """Type and shape of an output."""
    return {
        "type": str(getattr(value, "dtype", type(value).__name__)),
        "shape": list(getattr(value, "shape", ())),
    }


def inspect(arguments: argparse.Namespace, progress: Progress) -> Result:
    """`coreproof inspect`: methods, kernels, delegates."""
    from .report.runtime import pte_text
    from .runtime.pte.inspect import inspect_pte

    progress("loading the program")
    found = inspect_pte(_load(arguments.file))
    return Result({"command": "inspect", "file": arguments.file, **found}, lambda: pte_text(found))


def check(arguments: argparse.Namespace, progress: Progress) -> Result:
    """`coreproof check`: every Core ML delegate, and the kernels that ExecuTorch lacks."""
    from dataclasses import asdict, replace

    from .report.runtime import findings_text
    from .runtime import Finding
    from .runtime import check as check_program

    progress("loading the program")
    program = _load(arguments.file)
    findings = [
        replace(one, where=f"delegate {where}, {one.where}")
        for where, _, delegate in program.core_ml_delegates()
        for one in check_program(delegate.program)
    ]
    findings += [
        Finding("missing-kernel", name, "the ExecuTorch runtime has no kernel of this name", "executorch 1.5, registry")
        for name in program.missing_kernels
    ]
    document = {"command": "check", "file": arguments.file, "findings": [asdict(one) for one in findings]}
    return Result(document, lambda: findings_text(findings), exit_code=1 if findings else 0)


def extract(arguments: argparse.Namespace, progress: Progress) -> Result:
    """`coreproof extract`: the Core ML delegates as packages."""
    from .runtime.pte.inspect import extract as extract_packages

    progress("extracting the delegates")
    names = extract_packages(_load(arguments.file), arguments.output)
    document = {"command": "extract", "file": arguments.file, "output": arguments.output, "packages": names}
    return Result(document, _lines(names, arguments.output))


def _load(path: str, mode: Mode = "declared") -> PteProgram:
    from .errors import UnsupportedFileError
    from .runtime import PteProgram, load

    program = load(path, mode=mode)
    if not isinstance(program, PteProgram):
        raise UnsupportedFileError(f"{path} is no .pte, so it has no delegates")
    return program


def _lines(names: list[str], folder: str) -> Callable[[], str]:
    return lambda: "\n".join(f"written {folder}/{name}" for name in names)
