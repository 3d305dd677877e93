"""The Core ML backend: one partition's edge program to Core ML delegate bytes.

ExecuTorch finds a backend by the name of its class, which must stay
`CoreMLBackend`, the delegate id that the runtime on iOS and macOS knows. This
class therefore answers for both: a delegate that coreproof's partitioner marked
is converted here, anything else is passed on to the stock backend unchanged.
"""

from __future__ import annotations

import copy
import json
import logging
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import coremltools as ct
import coremltools.optimize as cto
import torch
from executorch.backends.apple.coreml.compiler import CoreMLBackend as StockBackend
from executorch.backends.apple.coreml.compiler.coreml_preprocess import (
    COMPILE_SPEC_KEYS,
    MULTIMETHOD_WEIGHT_SHARING_STRATEGY,
    _gathers_sharing_a_weight,
)
from executorch.backends.apple.coreml.compiler.enumerated_shape_utils import _get_ct_inputs
from executorch.exir.backend.backend_details import BackendDetails, PreprocessResult
from executorch.exir.backend.compile_spec_schema import CompileSpec
from torch.export import ExportedProgram
from torch.fx import Node

from .convert.copies import merge_copies
from .convert.program import to_mlmodel
from .partition.nodes import op_name
from .partition.options import is_named

logger = logging.getLogger(__name__)

_MARK = "coreproof"
_FLOAT32_OPS = "coreproof_float32_ops"
_report: ContextVar[Callable[[str], None] | None] = ContextVar("coreproof_progress", default=None)
_empty: ContextVar[bool] = ContextVar("coreproof_empty_delegates", default=False)


def marked(specs: list[CompileSpec], float32_ops: Collection[str] = ()) -> list[CompileSpec]:
    """The compile specs with the mark that tells coreproof's delegates apart, and the ops that stay float32.

    The runtime ignores keys that it does not know.
    """
    kept = [CompileSpec(_FLOAT32_OPS, json.dumps(sorted(float32_ops)).encode())] if float32_ops else []
    return [*specs, CompileSpec(_MARK, b"1"), *kept]


def is_marked(specs: list[CompileSpec]) -> bool:
    """Whether the specs are of a delegate that coreproof's partitioner made."""
    return any(spec.key == _MARK for spec in specs)


@contextmanager
def reporting(say: Callable[[str], None]) -> Iterator[None]:
    """Tell `say` in the body which delegate is being converted."""
    token = _report.set(_Counter(say))
    try:
        yield
    finally:
        _report.reset(token)


@contextmanager
def empty_delegates() -> Iterator[None]:
    """Convert nothing in the body: delegates hold no bytes, only the edge programs that partitioners chose for them."""
    token = _empty.set(True)
    try:
        yield
    finally:
        _empty.reset(token)


class _Counter:
    """Numbers the delegates in the order of their conversion."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._count = 0

    def __call__(self, what: str) -> None:
        self._count += 1
        self._say(f"converting delegate {self._count} ({what})")


class CoreMLBackend(BackendDetails):
    """Converts marked delegates with coreproof's converters; everything else is the stock backend's.

    ExecuTorch forbids subclasses of a backend, so what the stock `preprocess_multimethod` asks of its class is
    named here.
    """

    model_type_from_compile_specs = staticmethod(StockBackend.model_type_from_compile_specs)
    multimethod_weight_sharing_strategy_from_compile_specs = staticmethod(
        StockBackend.multimethod_weight_sharing_strategy_from_compile_specs
    )
    save_model_metadata = staticmethod(StockBackend.save_model_metadata)

    @classmethod
    def copy_exported_program_for_preprocess(
        cls, edge_program: ExportedProgram, compile_specs: list[CompileSpec]
    ) -> ExportedProgram:
        """A copy whose graph may be changed and whose weights are shared (a conversion only reads them)."""
        if not is_marked(compile_specs):
            return StockBackend.copy_exported_program_for_preprocess(edge_program, compile_specs)
        graph = torch.fx.Graph()
        graph.output(graph.graph_copy(edge_program.graph, {}))
        module = torch.fx.GraphModule(edge_program.graph_module, graph)
        return ExportedProgram(
            root=module,
            graph=graph,
            graph_signature=copy.deepcopy(edge_program.graph_signature),
            state_dict=dict(edge_program.state_dict),
            range_constraints=edge_program.range_constraints,
            module_call_graph=edge_program.module_call_graph,
            constants=dict(edge_program.constants),
            verifiers=[edge_program.verifier],
        )

    @staticmethod
    def preprocess(edge_program: ExportedProgram, compile_specs: list[CompileSpec]) -> PreprocessResult:
        """Core ML delegate bytes for one partition."""
        if not is_marked(compile_specs):
            return StockBackend.preprocess(edge_program, compile_specs)
        model_type = StockBackend.model_type_from_compile_specs(compile_specs)
        model = CoreMLBackend._convert_to_mlmodel(
            edge_program, compile_specs, skip_model_load=model_type != StockBackend.MODEL_TYPE.COMPILED_MODEL
        )
        return StockBackend.preprocess_model(model, model_type=model_type)

    @classmethod
    def preprocess_multimethod(
        cls,
        edge_programs: dict[str, list[ExportedProgram]],
        compile_specs: dict[str, list[list[CompileSpec]]],
    ) -> dict[str, list[PreprocessResult]]:
        """Delegate bytes for every partition of every method; several methods share their weights where asked to.

        Methods that the stock partitioner placed are the stock backend's, and share nothing with ours.

        Raises:
            ValueError: the compile specs ask for weights shared by position, and the methods have different numbers
                of partitions. (Where nobody asked, such methods share nothing.)
        """
        if _empty.get():
            return {name: [PreprocessResult(b"") for _ in programs] for name, programs in edge_programs.items()}
        ours = {name for name, specs in compile_specs.items() if specs and is_marked(specs[0])}
        stock = [name for name in edge_programs if name not in ours]
        results: dict[str, list[PreprocessResult]] = {}
        if stock:
            results |= StockBackend.preprocess_multimethod(
                {name: edge_programs[name] for name in stock}, {name: compile_specs[name] for name in stock}
            )
        mine = [name for name in edge_programs if name in ours]
        if mine:
            results |= cls._preprocess_marked(
                {name: edge_programs[name] for name in mine}, {name: compile_specs[name] for name in mine}
            )
        return {name: results[name] for name in edge_programs}

    @classmethod
    def _preprocess_marked(
        cls,
        edge_programs: dict[str, list[ExportedProgram]],
        compile_specs: dict[str, list[list[CompileSpec]]],
    ) -> dict[str, list[PreprocessResult]]:
        first = next(iter(compile_specs.values()))[0]
        strategy = StockBackend.multimethod_weight_sharing_strategy_from_compile_specs(first)
        asked = any(spec.key == COMPILE_SPEC_KEYS.MULTIMETHOD_WEIGHT_SHARING_STRATEGY.value for spec in first)
        fits = len({len(programs) for programs in edge_programs.values()}) == 1
        positional = strategy == MULTIMETHOD_WEIGHT_SHARING_STRATEGY.POSITIONAL
        if positional and not fits and not asked:
            logger.warning("the methods have different numbers of delegates, so that they share no weights")
        elif len(edge_programs) > 1 and positional:
            return StockBackend.preprocess_multimethod.__func__(cls, edge_programs, compile_specs)
        return super().preprocess_multimethod(edge_programs, compile_specs)

    @staticmethod
    def _convert_to_mlmodel(
        edge_program: ExportedProgram, compile_specs: list[CompileSpec], skip_model_load: bool = True
    ) -> ct.models.MLModel:
        """The model of one partition; the stock `preprocess_multimethod` calls this too."""
        if not is_marked(compile_specs):
            return StockBackend._convert_to_mlmodel(edge_program, compile_specs, skip_model_load)
        merge_copies(edge_program)
        report = _report.get()
        if report is not None:
            report(f"{len(edge_program.graph.nodes)} nodes")
        shapes = StockBackend.enumerated_shapes_from_compile_specs(compile_specs)
        model = to_mlmodel(
            edge_program,
            StockBackend.min_deployment_target_from_compile_specs(compile_specs),
            precision=StockBackend.model_compute_precision_from_compile_specs(compile_specs),
            compute_units=StockBackend.compute_unit_from_compile_specs(compile_specs),
            pipeline=_own_pipeline(compile_specs),
            inputs=_get_ct_inputs(edge_program, shapes) if shapes is not None else None,
            is_float32=_float32_nodes(compile_specs),
            skip_model_load=skip_model_load,
        )
        config = StockBackend.op_linear_quantizer_config_from_compile_specs(compile_specs)
        return model if config is None else _quantize(model, config)


def _float32_nodes(compile_specs: list[CompileSpec]) -> Callable[[Node], bool] | None:
    """Which nodes stay float32 in a float16 delegate; None where nobody named any."""
    names = next((json.loads(bytes(spec.value)) for spec in compile_specs if spec.key == _FLOAT32_OPS), None)
    return None if names is None else lambda node: is_named(node.name, op_name(node), names)


def _own_pipeline(compile_specs: list[CompileSpec]) -> ct.PassPipeline | None:
    """The pass pipeline that the user named, or None."""
    named = any(spec.key == COMPILE_SPEC_KEYS.PASS_PIPELINE.value for spec in compile_specs)
    return StockBackend.pass_pipeline_from_compile_specs(compile_specs) if named else None


def _quantize(model: ct.models.MLModel, config: cto.coreml.OpLinearQuantizerConfig) -> ct.models.MLModel:
    """Quantise the weights; an embedding table only where another op shares it (it is one constant for both)."""
    shared = {name: config for name in _gathers_sharing_a_weight(model)}
    return cto.coreml.linear_quantize_weights(
        model,
        config=cto.coreml.OptimizationConfig(
            global_config=config, op_type_configs={"gather": None}, op_name_configs=shared
        ),
    )
