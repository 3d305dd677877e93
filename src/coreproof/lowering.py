"""The main job, start to end: a model to a `.pte` with Core ML delegates, and the record of what runs where."""

from __future__ import annotations

import io
import logging
import os
import re
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, get_args

import coremltools as ct
import executorch.exir as exir
import torch
from executorch.exir import EdgeCompileConfig, EdgeProgramManager, ExecutorchBackendConfig
from executorch.exir.backend.compile_spec_schema import CompileSpec
from executorch.exir.passes.init_mutable_pass import InitializedMutableBufferPass
from torch.export import ExportedProgram
from torch.utils._pytree import treespec_dumps

from . import backend
from .errors import InputError, MismatchError
from .files import write_atomically
from .partition.options import MutableBufferState, is_named, require_mixed
from .partition.options import compile_specs as make_compile_specs
from .partition.partitioner import CoreMLPartitioner, Watcher
from .partition.record import MethodPlacement, Placement
from .partition.state import initialised_buffers
from .rewrite.branches import separate_branch_outputs
from .verify.compare import tolerance
from .verify.lowered import Method, example_call, verify_lowered
from .verify.record import Verification
from .verify.refused import refused_by

logger = logging.getLogger(__name__)

_MOST_ROUNDS = 8  # lowerings, each with what the verification of the one before found wrong kept off Core ML
VARIATIONS = 2  # of the example inputs

Progress = Callable[[str], None]
OnMismatch: TypeAlias = Literal["cpu", "error", "keep"]
Model: TypeAlias = torch.nn.Module | ExportedProgram | dict[str, ExportedProgram]


@dataclass
class Lowered:
    """A finished program.

    Attributes:
        pte: the ExecuTorch program, as the runtime loads it.
        placement: what runs where and why, for each method.
        edge_program_manager: ExecuTorch's manager of the lowered edge programs.
        verification: what the finished program gave beside the model; None where that was switched off.
    """

    pte: bytes
    placement: Placement
    edge_program_manager: EdgeProgramManager
    verification: Verification | None = None

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the program to `path`: to a temporary file beside it, then renamed.

        Raises:
            InputError: `path` cannot be written.
        """
        write_atomically(path, self.pte)


def lower(
    model: Model,
    example_inputs: tuple[Any, ...] | None = None,
    *,
    dynamic_shapes: Any = None,
    minimum_deployment_target: str | ct.target = "iOS18",
    compute_precision: str | ct.precision = "float16",
    compute_units: str | ct.ComputeUnit = "all",
    compile_specs: list[CompileSpec] | None = None,
    skip_ops_for_coreml_delegation: Sequence[str] | None = None,
    take_over_mutable_buffer: bool = True,
    lower_full_graph: bool = False,
    take_over_constant_data: bool = True,
    mutable_buffer_state: MutableBufferState = "auto",
    extra_kernels: Collection[str] = (),
    float32_ops: Collection[str] = (),
    use_cache: bool = True,
    verify: bool = True,
    on_mismatch: OnMismatch = "cpu",
    progress: Progress | None = None,
) -> Lowered:
    """Lower a model to an ExecuTorch program with Core ML delegates.

    Args:
        model: an `nn.Module` (with `example_inputs`), an exported program, or several methods by name.
        example_inputs: the positional arguments that `torch.export` traces the module with.
        dynamic_shapes: as `torch.export.export` takes them.
        minimum_deployment_target: `iOS15` to `iOS18`, or the macOS name of the same release.
        compute_precision: `float16` or `float32`, inside the delegates; `mixed` is float16 but for `float32_ops`.
        compute_units: `all`, `cpu_only`, `cpu_and_gpu` or `cpu_and_ne`.
        compile_specs: ExecuTorch compile specs, in place of the three arguments above.
        verify: run the finished program in the reference runtime, on the example inputs and on variations of them, and
            hold what it gives against the model. Without example inputs nothing can be held, and the result says so.
        on_mismatch: where a delegate gives other values than the model, `cpu` keeps its first wrong op off Core ML and
            lowers again, `error` raises, `keep` returns the program as it is.
        progress: called with a short text when a stage begins.

    The others are those of `CoreMLPartitioner`.

    Raises:
        InputError: a bad argument, or a model that torch.export refuses.
        RequirementError: `lower_full_graph` and an op that cannot run on Core ML.
        StateError: a mutable buffer is used in more than one place.
        MissingKernelError: an op is left to the CPU that ExecuTorch has no kernel for.
        MismatchError: the finished program gives other values than the model, and `on_mismatch` is `error`, or it is
            `cpu` and no op can be named that would help.
    """
    if on_mismatch not in get_args(OnMismatch):
        raise InputError(f"unknown on_mismatch {on_mismatch!r}; expected one of {', '.join(get_args(OnMismatch))}")
    if compile_specs is None:
        require_mixed(compute_precision, float32_ops)
    say = progress or _silent
    job = _Job(
        model,
        example_inputs,
        dynamic_shapes,
        say,
        skip_ops_for_coreml_delegation=skip_ops_for_coreml_delegation,
        compile_specs=compile_specs or make_compile_specs(minimum_deployment_target, compute_precision, compute_units),
        take_over_mutable_buffer=take_over_mutable_buffer,
        lower_full_graph=lower_full_graph,
        take_over_constant_data=take_over_constant_data,
        mutable_buffer_state=mutable_buffer_state,
        extra_kernels=extra_kernels,
        float32_ops=float32_ops,
        use_cache=use_cache,
    )
    # ExecuTorch writes buffers back in place, which autograd forbids for values computed from parameters.
    with torch.no_grad(), backend.reporting(say):
        lowered = job.lowered()
        return _verified(lowered, job, on_mismatch, say) if verify else lowered


def plan(
    model: Model,
    example_inputs: tuple[Any, ...] | None = None,
    *,
    dynamic_shapes: Any = None,
    minimum_deployment_target: str | ct.target = "iOS18",
    compute_precision: str | ct.precision = "float16",
    compute_units: str | ct.ComputeUnit = "all",
    compile_specs: list[CompileSpec] | None = None,
    skip_ops_for_coreml_delegation: Sequence[str] | None = None,
    take_over_mutable_buffer: bool = True,
    lower_full_graph: bool = False,
    take_over_constant_data: bool = True,
    mutable_buffer_state: MutableBufferState = "auto",
    extra_kernels: Collection[str] = (),
    float32_ops: Collection[str] = (),
    use_cache: bool = True,
    progress: Progress | None = None,
) -> Placement:
    """What `lower` with the same arguments would run where, and why, without converting anything.

    Raises:
        As `lower`.
    """
    if compile_specs is None:
        require_mixed(compute_precision, float32_ops)
    job = _Job(
        model,
        example_inputs,
        dynamic_shapes,
        progress or _silent,
        skip_ops_for_coreml_delegation=skip_ops_for_coreml_delegation,
        compile_specs=compile_specs or make_compile_specs(minimum_deployment_target, compute_precision, compute_units),
        take_over_mutable_buffer=take_over_mutable_buffer,
        lower_full_graph=lower_full_graph,
        take_over_constant_data=take_over_constant_data,
        mutable_buffer_state=mutable_buffer_state,
        extra_kernels=extra_kernels,
        float32_ops=float32_ops,
        use_cache=use_cache,
        plan_only=True,
    )
    with torch.no_grad():
        job.run()
    return job.placement


class _Job:
    """One model on its way to the edge dialect, with a partitioner for each of its methods.

    Raises:
        InputError: as `lower`.
    """

    def __init__(
        self,
        model: Model,
        example_inputs: tuple[Any, ...] | None,
        dynamic_shapes: Any,
        say: Progress,
        **options: Any,
    ) -> None:
        self._model, self._inputs, self._shapes = model, example_inputs, dynamic_shapes
        self._say = say
        self._options = options
        self._partitioners: dict[str, CoreMLPartitioner] = {}
        self._refused: dict[str, dict[str, str]] = {}
        self._programs: dict[str, ExportedProgram] = {}

    def lowered(self) -> Lowered:
        """The finished program, not verified yet."""
        buffer = io.BytesIO()
        manager = self.run()
        self._say("writing the program")
        manager.to_executorch(_keeping_initial_values(manager)).write_to_file(buffer)
        return Lowered(buffer.getvalue(), self.placement, manager)

    def methods(self) -> dict[str, Method]:
        """What each method is verified with: its exported program, its inputs, and the module where one was given."""
        module = self._model if isinstance(self._model, torch.nn.Module) else None
        example = example_call(self._inputs if module is not None else None)
        return {
            name: Method(program, module, example, steps=None, variations=VARIATIONS, seed=0)
            for name, program in self._programs.items()
        }

    def refuse(self, lowered: Lowered) -> bool:
        """Keep off Core ML what the verification found wrong; False where that is nothing new."""
        assert lowered.verification is not None, "called after a verification"
        before = {(method, name) for method, names in self._refused.items() for name in names}
        for method, names in refused_by(lowered.verification, lowered.edge_program_manager).items():
            self._refused.setdefault(method, {}).update(names)
        return before != {(method, name) for method, names in self._refused.items() for name in names}

    def run(self) -> EdgeProgramManager:
        """Export, place and (unless only planned) convert.

        torch cannot decompose a program that writes to a tensor which it holds under two names. Strict export, which
        traces the Python code, finds most such names to be one: it is tried second, where the model itself was given.
        """
        if not self._programs:
            self._programs = _export(self._model, self._inputs, self._shapes, self._say)
        try:
            return self._to_edge()
        except AssertionError as refused:
            names = _names_of_shared_memory(self._programs.values())
            if self._watcher.began or not names:
                raise
            explained = InputError(
                f"the model writes to memory that it holds under several names ({', '.join(names)}), which torch "
                "cannot decompose: keep each tensor once, and make views of it in forward()"
            )
            if not isinstance(self._model, torch.nn.Module):
                raise explained from refused
        self._say("exporting the model strictly")
        try:
            strict = torch.export.export(self._model, self._inputs, dynamic_shapes=self._shapes, strict=True)
            self._programs = {"forward": separate_branch_outputs(strict)}
            return self._to_edge()
        except Exception as refused:  # torch.export raises every type, user code included
            if self._watcher.began:
                raise
            raise explained from refused

    def _to_edge(self) -> EdgeProgramManager:
        programs = self._programs
        skipped, kept = self._options["skip_ops_for_coreml_delegation"], self._options["float32_ops"]
        self._watcher = _Watcher(len(programs), skipped, kept, self._say)
        self._partitioners = {
            name: CoreMLPartitioner(watcher=self._watcher, refused=self._refused.get(name), **self._options)
            for name in programs
        }
        # ExecuTorch's own check knows neither which ops Core ML will take nor which have a kernel; the partitioner
        # checks exactly that, before anything is converted.
        return exir.to_edge_transform_and_lower(
            programs,
            partitioner={name: [one] for name, one in self._partitioners.items()},
            compile_config=EdgeCompileConfig(_check_ir_validity=False),
        )

    @property
    def placement(self) -> Placement:
        """The record of every method."""
        return Placement({name: next(iter(one.placement.values())) for name, one in self._partitioners.items()})


def _verified(lowered: Lowered, job: _Job, on_mismatch: OnMismatch, say: Progress) -> Lowered:
    """The program with its verification, lowered again without what was wrong where that is asked for.

    Raises:
        MismatchError: it stays wrong, and the caller did not ask to keep it so.
    """
    methods = job.methods()
    for number in range(_MOST_ROUNDS):
        say("verifying the program")
        found = verify_lowered(lowered.edge_program_manager, lowered.pte, methods, tolerance())
        lowered.verification = found
        if found.outcome != "mismatch" or on_mismatch == "keep":
            return lowered
        if on_mismatch == "error" or number == _MOST_ROUNDS - 1 or not job.refuse(lowered):
            raise _mismatch(found)
        lowered = job.lowered()
    raise AssertionError("the last round returns or raises")


def _mismatch(verification: Verification) -> MismatchError:
    worst = next(check for check in verification.checks if check.outcome == "mismatch")
    wrong = verification.first_wrong
    where = f"; it begins at {wrong.op or wrong.node} ({wrong.source or wrong.node}): {wrong.evidence}" if wrong else ""
    return MismatchError(
        f"{worst.subject} gives other values than the model: {worst.what()}{where}. "
        "on_mismatch='keep' returns the program as it is",
        verification,
    )


class _Watcher(Watcher):
    """Tells the user which method is being placed, and refuses names of ops that no method has."""

    def __init__(
        self, methods: int, skipped: Sequence[str] | None, float32_ops: Collection[str], say: Progress
    ) -> None:
        self._left = methods
        self._unseen = list(skipped or [])
        self._unseen_float32 = list(float32_ops)
        self._say = say
        self.began = False

    def placing(self, ops: int) -> None:
        self.began = True
        self._say(f"placing {ops} ops")

    def placed(self, record: MethodPlacement, is_skipped: Callable[[str, str], bool]) -> None:
        nodes = {node.node: node.op for node in record.nodes}
        names = set(nodes.values())
        self._unseen = [skip for skip in self._unseen if not any(is_skipped(skip, name) for name in names)]
        self._unseen_float32 = [
            one for one in self._unseen_float32 if not any(is_named(node, op, [one]) for node, op in nodes.items())
        ]
        self._left -= 1
        for unseen, what in ((self._unseen, "skip"), (self._unseen_float32, "keep float32")):
            if unseen and not self._left:
                raise InputError(
                    f"no op named {', '.join(unseen)} in the model, so there is nothing to {what}; "
                    f"its ops are {', '.join(sorted(names))}"
                )


def exported_programs(
    model: Model, example_inputs: tuple[Any, ...] | None, dynamic_shapes: Any = None
) -> dict[str, ExportedProgram]:
    """Each method as `lower` exports it. Raises InputError: as `lower`."""
    return _export(model, example_inputs, dynamic_shapes, _silent)


def _keeping_initial_values(manager: EdgeProgramManager) -> ExecutorchBackendConfig:
    """A mutable buffer that does not start at zero starts with its value; ExecuTorch writes none unless told to.

    Its pass goes by names: it marks each placeholder whose name holds one of them.
    """
    names = []
    for method in manager.methods:
        program = manager.exported_program(method)
        targets = program.graph_signature.inputs_to_buffers
        names += [name for name, target in targets.items() if target in initialised_buffers(program)]
    return ExecutorchBackendConfig(passes=[InitializedMutableBufferPass(names)]) if names else ExecutorchBackendConfig()


def _silent(stage: str) -> None:
    """A display for callers that want none."""


def _export(
    model: Model, example_inputs: tuple[Any, ...] | None, dynamic_shapes: Any, say: Progress
) -> dict[str, ExportedProgram]:
    programs = _programs(model, example_inputs, dynamic_shapes, say)
    for name, program in programs.items():
        try:
            treespec_dumps(program.call_spec.out_spec)
        except NotImplementedError as error:
            raise InputError(
                f"ExecuTorch cannot write what the method {name!r} returns ({_first_lines(error)}): "
                "return plain tuples, for instance tuple(x.max(1))"
            ) from error
    return {name: separate_branch_outputs(program) for name, program in programs.items()}


def _programs(
    model: Model, example_inputs: tuple[Any, ...] | None, dynamic_shapes: Any, say: Progress
) -> dict[str, ExportedProgram]:
    if isinstance(model, ExportedProgram):
        return {"forward": model}
    if isinstance(model, dict):
        for name, program in model.items():
            if not isinstance(program, ExportedProgram):
                raise InputError(f"the method {name!r} is a {type(program).__name__}; expected an ExportedProgram")
        if not model:
            raise InputError("no method to lower: the dict of exported programs is empty")
        return dict(model)
    if not isinstance(model, torch.nn.Module):
        raise InputError(
            f"the model is a {type(model).__name__}; expected an nn.Module, an ExportedProgram or a dict of them"
        )
    if not isinstance(example_inputs, tuple):
        raise InputError(
            f"example_inputs is a {type(example_inputs).__name__}; expected a tuple of positional arguments"
        )
    say("exporting the model")
    if model.training:
        logger.warning("the model is in training mode: dropout and batch statistics are exported as such")
    try:
        return {"forward": torch.export.export(model, example_inputs, dynamic_shapes=dynamic_shapes, strict=False)}
    except Exception as error:  # torch.export raises every type, user code included
        raise InputError(f"{_first_lines(error)} (torch.export refused the model)") from error


def _names_of_shared_memory(programs: Iterable[ExportedProgram]) -> list[str]:
    """The buffers and constants of the programs whose memory another one of the same program uses too."""
    names: list[str] = []
    for program in programs:
        by_memory: dict[int, list[str]] = {}
        for name, value in {**program.state_dict, **program.constants}.items():
            if isinstance(value, torch.Tensor) and value.numel():
                by_memory.setdefault(value.untyped_storage().data_ptr(), []).append(name)
        names += [name for sharing in by_memory.values() if len(sharing) > 1 for name in sharing]
    return names


def _first_lines(error: Exception) -> str:
    """The error's own words on one line, without the traceback and the hints that torch.export appends."""
    lines = [line.strip() for line in str(error).strip().splitlines()]
    kept: list[str] = []
    for line in lines:
        if not line and kept:
            break
        if line:
            kept.append(line)
    text = " ".join(kept[:4]) or "no message"
    frames = re.findall(r'File "([^"]+)", line (\d+), in forward', str(error))
    where = f" [{frames[-1][0]}:{frames[-1][1]}]" if frames else ""
    return f"{type(error).__name__}: {text}{where}"
