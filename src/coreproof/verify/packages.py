"""A Core ML model that was converted elsewhere, against the model: an `.mlpackage`, or coremltools' own object."""

from __future__ import annotations

import inspect
from typing import Any

from torch import nn

from ..errors import CoreproofError, InputError
from ..runtime import check, read_program
from ..runtime.ir import Function, StateType
from .compare import Tolerance
from .delegates import as_carried, described, rounds, why_not_comparable
from .inputs import flat
from .lowered import Method
from .program import compared
from .record import Check
from .runners import DeviceRunner, PackageRunner, Runtime, device_model


def check_package(
    source: Any, method: Method, module: nn.Module | None, tolerance: Tolerance, runtime: Runtime
) -> Check:
    """The default function of the model.

    Its inputs are matched to the model's arguments by name where all names are those of `forward`, else by order; its
    outputs by order. Types are Core ML's: an int64 result may come as int32, a bool as 0 and 1.

    Raises:
        InputError: other inputs than the model takes; Apple's runtime is asked for and not there.
        ModelError, UnsupportedFileError: as `coreproof.runtime.load`.
    """
    program = read_program(source)
    function = program.functions[program.default]
    subject = f"program {function.name}"
    findings = check(program)
    if findings:
        return Check(subject, "mismatch", reason=described(findings))
    reason = method.why_not or why_not_comparable(function)
    if reason:
        return Check(subject, "unverified", reason=reason)
    order = input_order(function, module, len(flat(method.cases[0].calls[0])))
    try:
        exact = PackageRunner(program, order, "exact")
        if runtime == "coreml":
            device = DeviceRunner(device_model(source), function, order)
            found = compared(subject, exact, device, method.reference, method.cases, tolerance, as_carried)
            return found.with_settled(False)
        declared = PackageRunner(program, order, "declared") if rounds(function) else exact
        found = compared(subject, exact, declared, method.reference, method.cases, tolerance, as_carried)
        return found.with_settled(False)
    except InputError:
        raise
    except CoreproofError as error:
        return Check(subject, "unverified", reason=str(error))


def input_order(function: Function, module: nn.Module | None, count: int) -> list[str]:
    """The names of the function's inputs in the order of the model's arguments. Raises InputError: another number."""
    names = [value.name for value in function.inputs if not isinstance(value.type, StateType)]
    if len(names) != count:
        raise InputError(
            f"the Core ML model has {len(names)} inputs ({', '.join(names) or 'none'}); the model takes {count}"
        )
    arguments = _arguments(module)
    return arguments[:count] if set(arguments[:count]) == set(names) else names


def _arguments(module: nn.Module | None) -> list[str]:
    return list(inspect.signature(module.forward).parameters) if module is not None else []
