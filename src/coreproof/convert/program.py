"""One exported program to a MIL program, and that to a Core ML model.

The steps are coremltools' own (frontend, three pass pipelines, protobuf), called
one by one instead of through `ct.convert`, for two reasons: coremltools
validates the whole program after each of about 110 passes, a third of its
conversion time, where one validation at the end suffices; and the pass that
gives every output an op of its own must run last.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from typing import Any

import coremltools as ct
from coremltools.converters._converters_entry import _record_build_metadata
from coremltools.converters.mil.converter import _construct_other_pipelines, _reset_conversion_state
from coremltools.converters.mil.frontend.torch.load import load as load_frontend
from coremltools.converters.mil.mil import Program
from coremltools.converters.mil.mil.passes.pass_registry import PASS_REGISTRY
from coremltools.models.utils import _create_mlpackage
from torch.export import ExportedProgram
from torch.fx import Node

from .origins import Origins
from .outputs import give_outputs_their_own_ops
from .scope import conversion
from .states import order_state_updates

# coremltools' own default where no deployment target is given (specification version 6).
DEFAULT_TARGET = ct.target.iOS15
_HALF_PASS = "common::add_fp16_cast"


def to_mil(
    program: ExportedProgram,
    target: ct.target | None = None,
    *,
    inputs: list | None = None,
    float16: bool = False,
) -> Program:
    """Convert an exported program (ATen or edge dialect) to a MIL program, before any pass ran.

    Args:
        program: every op in it must have a converter.
        target: the minimum deployment target; its opset is used. None means iOS 15.
        inputs: coremltools input types, one for each user input; None takes them from the program.
        float16: whether the model will compute in float16, which makes its float outputs float16 from iOS 16 on.

    Raises:
        Exception: whatever the converter of an op raises; coremltools has no type of its own for it.
    """
    target = target or DEFAULT_TARGET
    with conversion():
        try:
            return load_frontend(
                program,
                inputs=inputs,
                specification_version=target.value,
                use_default_fp16_io=float16 and target >= ct.target.iOS16,
            )
        finally:
            _reset_conversion_state()


def complete(mil: Program) -> None:
    """Replace the ops that coremltools' frontend leaves for a pass of its own (`torch_upsample_...`), in place.

    Raises:
        Exception: whatever the pass raises, for instance on a size that it cannot trace back.
    """
    if any(op.op_type.startswith("torch_") for function in mil.functions.values() for op in function.operations):
        with conversion():
            for name in ct.PassPipeline.get_pipeline("frontend_pytorch").passes:
                if name.startswith("torch::"):
                    PASS_REGISTRY[name](mil)


def run_passes(mil: Program, pipeline: ct.PassPipeline, is_half: Callable[[Any], bool] | None = None) -> None:
    """Run the frontend, main and backend pass pipelines on `mil` in place, then validate it once.

    Args:
        is_half: whether a MIL op is cast to float16, where the pipeline casts; None leaves that to the pipeline.
    """
    frontend, backend = _construct_other_pipelines(pipeline, "pytorch", "mlprogram")
    with conversion():
        for stage in (frontend, pipeline, backend):
            stage.validate()
            for name in stage.passes:
                if name == "common::canonicalize_inplace_pattern":
                    order_state_updates(mil)
                graph_pass = PASS_REGISTRY[name]
                graph_pass.set_options(stage.get_options(name))
                if name == _HALF_PASS and is_half is not None:
                    graph_pass.op_selector = is_half
                graph_pass(mil)
        give_outputs_their_own_ops(mil)
        mil.validate(check_essential_scope=True)
        mil._check_early_error_out_for_invalid_program()


def to_mlmodel(
    program: ExportedProgram,
    target: ct.target | None = None,
    *,
    precision: ct.precision = ct.precision.FLOAT16,
    compute_units: ct.ComputeUnit = ct.ComputeUnit.ALL,
    pipeline: ct.PassPipeline | None = None,
    inputs: list | None = None,
    is_float32: Callable[[Node], bool] | None = None,
    skip_model_load: bool = True,
) -> ct.models.MLModel:
    """Convert an exported program to a Core ML ML Program.

    Args:
        program: the edge program of one partition.
        target: minimum deployment target; None means iOS 15.
        precision: float16 adds coremltools' casts of float32 and int32 values to 16 bits.
        compute_units: recorded in the model object (it does not change the file).
        pipeline: the main pass pipeline; None is coremltools' default one.
        inputs: coremltools input types, for enumerated shapes; None takes them from the program.
        is_float32: which nodes stay float32 at precision float16, None for none; with some, so do the outputs.
        skip_model_load: False compiles and loads the model, which needs macOS.

    Raises:
        Exception: whatever coremltools raises; nothing is left on disk.
    """
    target_or_default = target or DEFAULT_TARGET
    float16 = precision == ct.precision.FLOAT16
    if pipeline is None:
        pipeline = ct.PassPipeline.DEFAULT
        # It narrows the data of gather, topk and squeeze to 16 bits, and 70000 becomes 4464 (ct#2222, ct#2626).
        pipeline.remove_passes({"common::add_int16_cast"})
    if not float16:
        pipeline.remove_passes({_HALF_PASS, "common::add_int16_cast"})
    origins = Origins(program)
    with origins.numbered():
        mil = to_mil(program, target, inputs=inputs, float16=float16 and is_float32 is None)
    try:
        origins.name_results(mil)
        run_passes(mil, pipeline, _half_ops(origins, is_float32))
        origins.restore_handles(mil)
        with tempfile.TemporaryDirectory() as weights, conversion():
            proto = _to_proto(mil, weights, target_or_default)
            package = _create_mlpackage(proto, weights)
            model = ct.models.MLModel(
                package,
                is_temp_package=True,
                mil_program=mil,
                skip_model_load=skip_model_load,
                compute_units=compute_units,
            )
    finally:
        _reset_conversion_state()
    return _record_build_metadata(model, "pytorch", source_dialect=f"TorchExport::{program.dialect}")


def _half_ops(origins: Origins, is_float32: Callable[[Node], bool] | None) -> Callable[[Any], bool] | None:
    """Whether a MIL op may be cast to float16; what no node made may."""
    if is_float32 is None:
        return None
    return lambda op: (node := origins.node(op)) is None or not is_float32(node)


def _to_proto(mil: Program, weights: str, target: ct.target) -> Any:
    from coremltools.converters.mil.backend.mil.load import load as load_backend

    return load_backend(
        mil, weights, specification_version=target.value, convert_to="mlprogram", convert_from="pytorch"
    )
