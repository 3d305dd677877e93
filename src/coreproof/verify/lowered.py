"""What `lower` checks before a program is written: each finished delegate, then the program."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from executorch.exir import EdgeProgramManager
from executorch.exir.delegate import executorch_call_delegate
from torch import nn
from torch.export import ExportedProgram

from .compare import Tolerance
from .delegates import Recording, check_delegate, record
from .expected import Reference, Run, random_ops
from .inputs import Call, Case, cases
from .located import first_wrong_op
from .lowered_graph import LoweredRun
from .precision import hazards
from .program import check_method
from .record import Check, Verification
from .runners import Runtime

# Calls in sequence of a method that keeps state.
STEPS = 3


class Method:
    """One method of the model: its reference, and the cases that it is run on.

    Args:
        program: the exported method; None where the module cannot be exported.
        module: the model itself, where it was given as one.
        example: the example inputs; None takes those that the exported program holds.

    Attributes:
        why_not: why nothing can be compared, or "".
        cases: empty where `why_not` says something.
    """

    def __init__(
        self,
        program: ExportedProgram | None,
        module: nn.Module | None,
        example: Call | None,
        *,
        steps: int | None,
        variations: int,
        seed: int,
    ) -> None:
        self.program = program
        self.reference = Reference(program, module)
        self.cases: list[Case] = []
        if example is None and program is not None:
            example = program.example_inputs
        drawn = random_ops(program) if program is not None else []
        self.why_not = "no example inputs are known" if example is None else ""
        if drawn:
            self.why_not = f"the model draws random numbers ({', '.join(drawn)}): no two runs agree"
        if example is None:
            return
        calls = steps or (STEPS if self.reference.has_state else 1)
        first = Case("example", (example,) * calls)
        self.cases = cases(
            example,
            steps=calls,
            variations=0 if self.why_not else variations,
            seed=seed,
            usable=lambda case: self.reference.is_usable(case, first),
        )


def verify_lowered(
    manager: EdgeProgramManager, pte: bytes, methods: dict[str, Method], tolerance: Tolerance
) -> Verification:
    """Check every method and every delegate of a program that was just lowered.

    Where one delegate is the whole method, the run of the program is that of the delegate: the delegate is looked at
    alone only where the program is not plainly right.
    """
    start = time.perf_counter()
    checks: list[Check] = []
    for name, method in methods.items():
        method.reference.stored_by = partial(_with_stored_constants, manager, name, method.reference)
        whole = check_program(pte, name, method, tolerance)
        plain = whole.outcome == "match" and whole.is_settled
        delegates = []
        if method.cases and not (plain and is_one_delegate(manager.exported_program(name))):
            delegates = check_delegates(manager, name, method, tolerance)
        checks += [*delegates, settled(whole, delegates)]
    return Verification(checks, time.perf_counter() - start)


def check_program(pte: bytes, name: str, method: Method, tolerance: Tolerance, runtime: Runtime = "reference") -> Check:
    """The method, whole, against the model.

    ExecuTorch's programs start with zeros in mutable buffers, unless they were lowered with a pass that keeps their
    values. Where the model starts otherwise and only that makes a difference, the check is unverified and says so.

    Raises:
        As `check_method`, and what the model raises on its example.
    """
    subject = f"program {name}"
    if method.why_not:
        return Check(subject, "unverified", reason=method.why_not)
    check = check_method(pte, name, method.reference, method.cases, tolerance, runtime)
    moved = method.reference.starts_elsewhere
    if check.outcome != "mismatch" or not moved:
        return check
    method.reference.start_from_zeros()
    again = check_method(pte, name, method.reference, method.cases, tolerance, runtime)
    if again.outcome == "mismatch":
        return again
    reason = f"the program starts with zeros in {', '.join(moved)}, the model does not; from zeros on the two agree"
    return Check(subject, "unverified", again.outputs, reason)


def check_delegates(manager: EdgeProgramManager, name: str, method: Method, tolerance: Tolerance) -> list[Check]:
    """Each delegate of the method alone, with what it is given when the others are run on torch."""
    reference = method.reference
    recordings = record(manager, name, method.cases, floats=reference.floats, zeros=reference.zeros)
    return [explained(one, check_delegate(one, tolerance)) for one in recordings]


def explained(recording: Recording, check: Check) -> Check:
    """The check with its first wrong op, where it is wrong or only a look at each op can settle it, or its hazards."""
    if check.first_wrong is None and (check.outcome == "mismatch" or not check.is_settled):
        wrong = first_wrong_op(recording, check)
        if wrong is not None:
            return replace(check.with_settled(False), outcome="mismatch", first_wrong=wrong)
        check = check if check.outcome == "mismatch" else check.with_settled(True)
    if check.outcome != "precision":
        return check
    case = next(one.case for one in check.outputs if one.outcome == "precision")
    return replace(check, hazards=hazards(recording, case))


def settled(whole: Check, delegates: list[Check]) -> Check:
    """The check of a program after its delegates were looked at: what the rounding of constants explains there."""
    if whole.is_settled:
        return whole
    right = bool(delegates) and all(one.outcome in ("match", "precision") for one in delegates)
    return whole.with_settled(right)


def is_one_delegate(program: ExportedProgram) -> bool:
    """Whether the lowered method does nothing but call one delegate."""
    calls = [node.target for node in program.graph.nodes if node.op == "call_function"]
    targets = [target for target in calls if getattr(target, "__name__", "") != "getitem"]
    return targets == [executorch_call_delegate]


def _with_stored_constants(manager: EdgeProgramManager, name: str, reference: Reference) -> Run:
    return LoweredRun(manager, name, floats=reference.floats, constants=torch.float16, zeros=reference.zeros)


def example_call(inputs: Sequence[Any] | None) -> Call | None:
    """Positional example inputs as a call; None stays None."""
    return None if inputs is None else (tuple(inputs), {})
