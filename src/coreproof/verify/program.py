"""A finished program, whole, against the model: every output of every call of every case."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..errors import CoreproofError
from ..runtime.pte.machine import LoadedMethod
from ..runtime.pte.program import TensorSpec
from .compare import ROUNDING, Tolerance, check_output, widened
from .delegates import described, findings_in, rounds, why_not_comparable
from .expected import Reference, copied
from .inputs import Case, flat
from .record import Check, OutputCheck, worst
from .runners import ExecuTorchRunner, PteRunner, Runner, Runtime, require_executorch


def check_method(
    data: bytes, method: str, reference: Reference, cases: Sequence[Case], tolerance: Tolerance, runtime: Runtime
) -> Check:
    """One method of a `.pte`.

    With `executorch` and `coreml` as runtime the declared results are the device's own; exact mode stays the reference
    runtime's where there are delegates, for no other one has it.

    Raises:
        InputError: the runtime is not there, or cannot run the program.
    """
    subject = f"program {method}"
    try:
        exact = PteRunner(data, method, "exact")
        delegates = exact.loaded.delegates
        findings = [one for delegate in delegates for one in findings_in(delegate)]
        if findings:
            return Check(subject, "mismatch", reason=described(findings))
        reason = next(filter(None, (why_not_comparable(one.function) for one in delegates)), "")
        if reason:
            return Check(subject, "unverified", reason=reason)
        if runtime == "executorch":
            require_executorch(data, method)
        if runtime != "reference":
            native = ExecuTorchRunner(data, method)
            return compared(subject, exact if delegates else native, native, reference, cases, tolerance)
        tolerance = widened(tolerance, _rounding_outside(exact.loaded))
        declared = PteRunner(data, method, "declared") if any(rounds(one.function) for one in delegates) else exact
        return compared(subject, exact, declared, reference, cases, tolerance)
    except CoreproofError as error:
        if runtime != "reference":
            raise
        return Check(subject, "unverified", reason=str(error))


def compared(
    subject: str,
    exact: Runner,
    declared: Runner,
    reference: Reference,
    cases: Sequence[Case],
    tolerance: Tolerance,
    adapt: Callable[[Any, Any], Any] | None = None,
) -> Check:
    """Run every case on both runners and hold the outputs against the reference.

    Args:
        declared: the same object as `exact` where nothing is rounded.
        adapt: makes of an output and the expected one what is compared; None takes the output as it is.
    """
    outputs: list[OutputCheck] = []
    for case in cases:
        exact.reset()
        if declared is not exact:
            declared.reset()
        for step, (call, expected) in enumerate(zip(case.calls, reference.declared(case), strict=True)):
            of_exact = exact.run(copied(flat(call)))
            of_declared = of_exact if declared is exact else declared.run(copied(flat(call)))
            if len(of_exact) != len(expected):
                return Check(subject, "mismatch", outputs, f"{len(of_exact)} outputs; the model has {len(expected)}")
            for i, (want, e, d) in enumerate(zip(expected, of_exact, of_declared, strict=True)):
                same = e is d
                if adapt is not None:
                    e = adapt(e, want)
                    d = e if same else adapt(d, want)
                witness = reference.witness(case, step, i, rounds=declared is not exact)
                outputs.append(check_output(f"output {i}", case.name, step, want, e, d, tolerance, witness))
    return Check(subject, worst(one.outcome for one in outputs), outputs)


def _rounding_outside(method: LoadedMethod) -> float:
    """One rounding of the coarsest half type in which the method itself holds values outside its delegates.

    Inputs are given and outputs are taken in their own types; what lies between them is rounded by the kernels that
    ExecuTorch runs on the CPU, which is no work of the conversion's.
    """
    border = {*method.method.inputs, *method.method.outputs}
    dtypes = {
        value.dtype
        for index, value in enumerate(method.method.values)
        if isinstance(value, TensorSpec) and value.data is None and index not in border
    }
    return max((ROUNDING[dtype] for dtype in dtypes if dtype in ROUNDING), default=0.0)
