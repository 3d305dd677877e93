"""The main job, start to end: a model to a `.pte` with Core ML delegates, and the record of what runs where."""

from __future__ import annotations

import io
import logging
import os
import re
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import coremltools as ct
import executorch.exir as exir
import torch
from executorch.exir import EdgeCompileConfig, EdgeProgramManager
from executorch.exir.backend.compile_spec_schema import CompileSpec
from torch.export import ExportedProgram
from torch.utils._pytree import treespec_dumps

from . import backend
from .errors import InputError
from .files import write_atomically
from .partition.options import MutableBufferState
from .partition.options import compile_specs as make_compile_specs
from .partition.partitioner import CoreMLPartitioner, Watcher
from .partition.record import MethodPlacement, Placement

logger = logging.getLogger(__name__)

Progress = Callable[[str], None]
Model: TypeAlias = torch.nn.Module | ExportedProgram | dict[str, ExportedProgram]


@dataclass
class Lowered:
    """A finished program.

    Attributes:
        pte: the ExecuTorch program, as the runtime loads it.
        placement: what runs where and why, for each method.
        edge_program_manager: ExecuTorch's manager of the lowered edge programs.
    """

    pte: bytes
    placement: Placement
    edge_program_manager: EdgeProgramManager

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
    progress: Progress | None = None,
) -> Lowered:
    """Lower a model to an ExecuTorch program with Core ML delegates.

    Args:
        model: an `nn.Module` (with `example_inputs`), an exported program, or several methods by name.
        example_inputs: the positional arguments that `torch.export` traces the module with.
        dynamic_shapes: as `torch.export.export` takes them.
        minimum_deployment_target: `iOS15` to `iOS18`, or the macOS name of the same release.
        compute_precision: `float16` or `float32`, inside the delegates.
        compute_units: `all`, `cpu_only`, `cpu_and_gpu` or `cpu_and_ne`.
        compile_specs: ExecuTorch compile specs, in place of the three arguments above.
        progress: called with a short text when a stage begins.

    The others are those of `CoreMLPartitioner`.

    Raises:
        InputError: a bad argument, or a model that torch.export refuses.
        RequirementError: `lower_full_graph` and an op that cannot run on Core ML.
        StateError: a mutable buffer is used in more than one place.
        MissingKernelError: an op is left to the CPU that ExecuTorch has no kernel for.
    """
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
    )
    buffer = io.BytesIO()
    # ExecuTorch writes buffers back in place, which autograd forbids for values computed from parameters.
    with torch.no_grad(), backend.reporting(say):
        manager = job.run()
        say("writing the program")
        manager.to_executorch().write_to_file(buffer)
    return Lowered(buffer.getvalue(), job.placement, manager)


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
    progress: Progress | None = None,
) -> Placement:
    """What `lower` with the same arguments would run where, and why, without converting anything.

    Raises:
        As `lower`.
    """
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

    def run(self) -> EdgeProgramManager:
        """Export, place and (unless only planned) convert.

        torch cannot decompose a program that writes to a tensor which it holds under two names. Strict export, which
        traces the Python code, finds most such names to be one: it is tried second, where the model itself was given.
        """
        programs = _export(self._model, self._inputs, self._shapes, self._say)
        try:
            return self._to_edge(programs)
        except AssertionError as refused:
            names = _names_of_shared_memory(programs.values())
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
            return self._to_edge({"forward": strict})
        except Exception as refused:  # torch.export raises every type, user code included
            if self._watcher.began:
                raise
            raise explained from refused

    def _to_edge(self, programs: dict[str, ExportedProgram]) -> EdgeProgramManager:
        self._watcher = _Watcher(len(programs), self._options["skip_ops_for_coreml_delegation"], self._say)
        self._partitioners = {name: CoreMLPartitioner(watcher=self._watcher, **self._options) for name in programs}
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


class _Watcher(Watcher):
    """Tells the user which method is being placed, and refuses ops to skip that no method has."""

    def __init__(self, methods: int, skipped: Sequence[str] | None, say: Progress) -> None:
        self._left = methods
        self._unseen = list(skipped or [])
        self._say = say
        self.began = False

    def placing(self, ops: int) -> None:
        self.began = True
        self._say(f"placing {ops} ops")

    def placed(self, record: MethodPlacement, is_skipped: Callable[[str, str], bool]) -> None:
        names = {node.op for node in record.nodes}
        self._unseen = [skip for skip in self._unseen if not any(is_skipped(skip, name) for name in names)]
        self._left -= 1
        if self._unseen and not self._left:
            raise InputError(
                f"no op named {', '.join(self._unseen)} in the model, so there is nothing to skip; "
                f"its ops are {', '.join(sorted(names))}"
            )


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
    return programs


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
