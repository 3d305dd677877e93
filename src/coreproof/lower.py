"""The main job, start to end: a model to a `.pte` with Core ML delegates, and the record of what runs where."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

import coremltools as ct
import executorch.exir as exir
import torch
from executorch.exir import EdgeCompileConfig, EdgeProgramManager
from executorch.exir.backend.compile_spec_schema import CompileSpec
from torch.export import ExportedProgram

from .errors import InputError, MissingKernelError
from .files import write_atomically
from .partition.kernels import lacks_kernel
from .partition.nodes import compute_nodes, is_symbol, op_name, source_line
from .partition.options import MutableBufferState, compile_specs as make_compile_specs
from .partition.partitioner import CoreMLPartitioner
from .partition.record import Placement

Progress = Callable[[str], None]
Model = torch.nn.Module | ExportedProgram | dict[str, ExportedProgram]


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
    say = progress or (lambda stage: None)
    specs = compile_specs
    if specs is None:
        specs = make_compile_specs(minimum_deployment_target, compute_precision, compute_units)
    programs = _export(model, example_inputs, dynamic_shapes, say)
    partitioners = {
        name: CoreMLPartitioner(
            skip_ops_for_coreml_delegation=skip_ops_for_coreml_delegation,
            compile_specs=specs,
            take_over_mutable_buffer=take_over_mutable_buffer,
            lower_full_graph=lower_full_graph,
            take_over_constant_data=take_over_constant_data,
            mutable_buffer_state=mutable_buffer_state,
            extra_kernels=extra_kernels,
        )
        for name in programs
    }
    say("lowering")
    manager = exir.to_edge_transform_and_lower(
        programs, partitioner={name: [one] for name, one in partitioners.items()}, compile_config=EdgeCompileConfig()
    )
    placement = Placement({name: one.placement["forward"] for name, one in partitioners.items()})
    say("writing the program")
    buffer = io.BytesIO()
    manager.to_executorch().write_to_file(buffer)
    return Lowered(buffer.getvalue(), placement, manager)
