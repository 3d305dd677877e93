"""`verify_program`: a finished program, whoever made it, against the model."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import torch
from coremltools.models import MLModel
from executorch.exir import ExecutorchProgramManager
from torch import nn
from torch.export import ExportedProgram

from ..errors import InputError
from ..lowering import Lowered, Model, exported_programs
from ..runtime import PteProgram
from ..runtime.pte import is_pte
from .compare import Tolerance, tolerance
from .elsewhere import check_delegates_of
from .lowered import Method, check_program, example_call, settled
from .packages import check_package
from .record import Check, Verification
from .runners import Runtime, require_runtime

Finished: TypeAlias = Lowered | ExecutorchProgramManager | MLModel | bytes | str | os.PathLike


def verify_program(
    program: Finished,
    model: Model,
    example_inputs: tuple[Any, ...] | None = None,
    *,
    dynamic_shapes: Any = None,
    steps: int | None = None,
    variations: int = 2,
    seed: int = 0,
    rtol: float | None = None,
    atol: float | None = None,
    runtime: Runtime = "reference",
) -> Verification:
    """Run a finished program and hold what it gives against the model in torch.

    Args:
        program: a `.pte` (path, bytes, `Lowered`, or ExecuTorch's manager) or a Core ML model (path of an `.mlpackage`,
            or coremltools' object); whoever made it.
        model: as `coreproof.lower` takes it: a module in eval mode, an exported program, or several methods by name.
        example_inputs: the positional arguments; None takes those that an exported program holds.
        dynamic_shapes: as `torch.export.export` takes them.
        steps: calls in sequence in each case; None is 1, and 3 where the model keeps state.
        variations: how many random variations of the example inputs are run, of the same dtypes, shapes and scale.
        seed: of the variations.
        rtol: allowed difference over the greatest expected value of an output, in place of the defaults
            (docs/verdicts.md).
        atol: allowed difference added to that.
        runtime: what runs the program: `reference` (any machine), `coreml` (macOS), or `executorch`, which off macOS
            runs a `.pte` without Core ML delegates.

    Returns:
        The checks; `outcome` is `match`, `precision`, `mismatch` or `unverified`. Where a `.pte` is wrong its delegates
        are checked too, and `first_wrong` is the op where the difference begins, if it was found.

    Raises:
        InputError: a bad argument, a file that cannot be read, a runtime that is not there, methods or inputs that are
            not the model's.
        ModelError, UnsupportedFileError: a file that is broken, or that is no Core ML program.
    """
    start = time.perf_counter()
    require_runtime(runtime)
    limits = tolerance(rtol, atol)
    if isinstance(model, nn.Module) and example_inputs is None:
        raise InputError("example_inputs is missing; expected a tuple of positional arguments for the module")
    module = model if isinstance(model, nn.Module) else None
    method_of = partial(
        Method, module=module, example=example_call(example_inputs), steps=steps, variations=variations, seed=seed
    )
    data = pte_bytes(program)
    if data is None:
        if runtime == "executorch":
            raise InputError("runtime 'executorch' runs .pte files; this is a Core ML model")
        exported = _exported_or_none(model, example_inputs, dynamic_shapes)
        method = method_of(exported)
        checks = [check_package(program, method, module, limits, runtime)]
        return Verification(checks, time.perf_counter() - start)
    programs = exported_programs(model, example_inputs, dynamic_shapes)
    names = _pairs(list(PteProgram(data).program.methods), list(programs))
    methods = {name: method_of(programs[own]) for name, own in names.items()}
    checks = [one for name, method in methods.items() for one in _method(data, name, method, limits, runtime)]
    return Verification(checks, time.perf_counter() - start)


def pte_bytes(program: Finished) -> bytes | None:
    """The bytes of a `.pte`; None where `program` is a Core ML model. Raises InputError: no such file."""
    if isinstance(program, Lowered):
        return program.pte
    if isinstance(program, ExecutorchProgramManager):
        return bytes(program.buffer)
    if isinstance(program, MLModel):
        return None
    if isinstance(program, bytes):
        return program if is_pte(program) else None
    path = Path(program)
    if not path.exists():
        raise InputError(f"no such file or folder: {path}")
    if path.is_dir():
        return None
    data = path.read_bytes()
    return data if is_pte(data) else None


def _method(data: bytes, name: str, method: Method, limits: Tolerance, runtime: Runtime) -> list[Check]:
    whole = check_program(data, name, method, limits, runtime)
    if whole.outcome == "match" and whole.is_settled:
        return [whole]
    delegates = check_delegates_of(data, name, method, limits)
    return [*delegates, settled(whole, delegates)]


def _pairs(held: Sequence[str], given: Sequence[str]) -> dict[str, str]:
    """For each method of the file the model's; one of each needs no common name."""
    if len(held) == len(given) == 1:
        return {held[0]: given[0]}
    if set(held) != set(given):
        raise InputError(f"the program has the methods {', '.join(held)}; the model has {', '.join(given)}")
    return {name: name for name in held}


def _exported_or_none(model: Model, example_inputs: tuple[Any, ...] | None, shapes: Any) -> ExportedProgram | None:
    """The exported method; None for a float32 module that torch.export refuses, which is run as it is."""
    try:
        programs = exported_programs(model, example_inputs, shapes)
    except InputError:
        if not isinstance(model, nn.Module) or any(
            one.is_floating_point() and one.dtype != torch.float32 for one in (*model.parameters(), *model.buffers())
        ):
            raise
        return None
    if len(programs) > 1:
        raise InputError(f"a Core ML model has one method; the model has {', '.join(programs)}")
    return next(iter(programs.values()))
