"""Each finished delegate, as the bytes that the program will hold, against the edge program that it was made from."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from executorch.exir import EdgeProgramManager
from executorch.exir.lowered_backend_module import LoweredBackendModule, get_lowered_backend_modules
from torch.export import ExportedProgram

from ..errors import CoreproofError
from ..runtime import Finding, check
from ..runtime.interpreter import Mode
from ..runtime.ir import Function, TensorType
from ..runtime.pte.delegates import CoreMLDelegate, Loader
from ..runtime.pte.program import Delegate
from .compare import Tolerance, check_output, greatest_difference
from .inputs import Case, flat
from .lowered_graph import LoweredRun, ProgramRun
from .origin import finding_origin
from .record import Check, OutputCheck, worst


@dataclass
class Recording:
    """One delegate, and what it was given and made in each case when its edge program ran in its place.

    Attributes:
        name: `forward/0`.
        data: its bytes, and the data that they refer to by name.
        edge: the edge program.
        zeros: whether its buffers started at zero.
        runs: by case, for each call its inputs and outputs.
    """

    name: str
    data: Delegate
    named: dict[str, memoryview]
    edge: ExportedProgram
    zeros: bool = False
    runs: dict[str, list[tuple[list[Any], list[Any]]]] = field(default_factory=dict)

    def load(self, mode: Mode) -> CoreMLDelegate:
        """The delegate in the reference runtime. Raises as `Loader.load`."""
        return Loader(self.named, mode).load(self.data, f"delegate {self.name}")


def record(
    manager: EdgeProgramManager,
    method: str,
    cases: list[Case],
    *,
    floats: torch.dtype | None = None,
    zeros: bool = False,
) -> list[Recording]:
    """Run each case on torch, the edge programs in the place of their delegates; what each of them saw, in order.

    Args:
        floats, zeros: as `LoweredRun` takes them.
    """
    modules = get_lowered_backend_modules(manager.exported_program(method).graph_module)
    recordings = {
        id(one): Recording(f"{method}/{number}", _delegate(one), _named_data(one), one.original_module, zeros)
        for number, one in enumerate(modules)
    }
    for case in cases:

        def observe(lowered: LoweredBackendModule, inputs: list, outputs: list, case: Case = case) -> None:
            seen = ([_apart(one) for one in inputs], [_apart(one) for one in outputs])
            recordings[id(lowered)].runs.setdefault(case.name, []).append(seen)

        run = LoweredRun(manager, method, floats=floats, zeros=zeros, observer=observe)
        for call in case.calls:
            run.run(flat(call))
    return list(recordings.values())


def check_delegate(recording: Recording, tolerance: Tolerance) -> Check:
    """The delegate in the reference runtime, exact and declared, on what was recorded.

    What Apple's runtime is known to refuse or get wrong in it is a mismatch too; what cannot be run is unverified.
    """
    subject = f"delegate {recording.name}"
    try:
        exact = recording.load("exact")
        findings = findings_in(exact)
        if findings:
            origin = finding_origin(findings[0], exact.function, recording.edge, recording.name)
            return Check(subject, "mismatch", reason=described(findings), first_wrong=origin)
        reason = why_not_comparable(exact.function)
        if reason:
            return Check(subject, "unverified", reason=reason)
        outputs = list(_compared(recording, exact, tolerance))
    except CoreproofError as error:
        return Check(subject, "unverified", reason=str(error))
    return Check(subject, worst(one.outcome for one in outputs), outputs)


def findings_in(delegate: CoreMLDelegate) -> list[Finding]:
    """What Apple's runtime is known to refuse or get wrong in the function that the delegate runs."""
    return [one for one in check(delegate.program) if one.where.partition(":")[0] == delegate.function.name]


def described(findings: Sequence[Finding]) -> str:
    """The findings in one line."""
    return "; ".join(f"{one.rule}: {one.where}: {one.problem} ({one.source})" for one in findings)


def why_not_comparable(function: Function) -> str:
    """Why no two runs of the function agree, or ""."""
    drawn = sorted({op.type for op in function.body.walk() if op.type.startswith("random_")})
    return f"it draws random numbers ({', '.join(drawn)})" if drawn else ""


def rounds(function: Function) -> bool:
    """Whether declared and exact mode can differ: whether any value is of a half type."""
    values = [*function.inputs, *(value for op in function.body.walk() for value in op.outputs)]
    types = (value.type for value in values)
    return any(isinstance(one, TensorType) and one.dtype in ("fp16", "bf16") for one in types) or any(
        not isinstance(value.type, TensorType) for value in function.inputs
    )


def _compared(recording: Recording, exact: CoreMLDelegate, tolerance: Tolerance) -> Iterator[OutputCheck]:
    declared = recording.load("declared") if rounds(exact.function) else None
    for case, calls in recording.runs.items():
        exact.reset()
        if declared is not None:
            declared.reset()
        witness = _EdgeWitness(recording, calls, declared is not None)
        for step, (inputs, expected) in enumerate(calls):
            of_exact = exact.run(inputs)
            of_declared = of_exact if declared is None else declared.run(inputs)
            for i, (want, e, d) in enumerate(zip(expected, of_exact, of_declared, strict=True)):
                carried = as_carried(e, want)
                other = carried if d is e else as_carried(d, want)
                about = _EdgeOutputWitness(witness, step, i)
                yield check_output(exact.outputs[i], case, step, want, carried, other, tolerance, about)


class _EdgeWitness:
    """What else torch says about the outputs of an edge program, found when first asked for."""

    def __init__(self, recording: Recording, calls: list[tuple[list[Any], list[Any]]], rounds: bool) -> None:
        self._recording, self.calls, self._rounds = recording, calls, rounds

    @cached_property
    def double(self) -> list[list[Any]]:
        return self._run(floats=torch.float64)

    @cached_property
    def stored(self) -> list[list[Any]]:
        return self._run(floats=torch.float32, constants=torch.float16) if self._rounds else []

    def _run(self, **options: Any) -> list[list[Any]]:
        run = ProgramRun(self._recording.edge, zeros=self._recording.zeros, **options)
        try:
            return [run.run(inputs) for inputs, _ in self.calls]
        except (RuntimeError, NotImplementedError):  # an op without a kernel for the type
            return []


@dataclass(frozen=True)
class _EdgeOutputWitness:
    """A `Witness` about one output of one call of an edge program."""

    of: _EdgeWitness
    call: int
    output: int

    def stored(self) -> torch.Tensor | None:
        return self.of.stored[self.call][self.output] if self.of.stored else None

    def noise(self) -> float:
        if not self.of.double:
            return 0.0
        return greatest_difference(self.of.calls[self.call][1][self.output], self.of.double[self.call][self.output])


def as_carried(got: torch.Tensor, expected: Any) -> Any:
    """A delegate's output as ExecuTorch takes it over: the expected dtype where the kind is the same, and rank 0."""
    if not isinstance(expected, torch.Tensor):
        return got
    if got.dim() == 1 and len(got) == 1 and not expected.dim():
        got = got.reshape(())
    same_kind = got.is_floating_point() == expected.is_floating_point()
    return got.to(expected.dtype) if same_kind or torch.bool in (got.dtype, expected.dtype) else got


def _delegate(lowered: LoweredBackendModule) -> Delegate:
    specs = tuple((spec.key, bytes(spec.value)) for spec in lowered.compile_specs)
    return Delegate(lowered.backend_id, memoryview(lowered.processed_bytes), specs)


def _named_data(lowered: LoweredBackendModule) -> dict[str, memoryview]:
    store = lowered.named_data_store_output
    if store is None:
        return {}
    return {key: memoryview(bytes(store.buffers[entry.buffer_index])) for key, entry in store.pte_data.items()}


def _apart(value: Any) -> Any:
    return value.clone() if isinstance(value, torch.Tensor) else value
