"""The delegates of a `.pte` that was made elsewhere, against edge programs that are made again from the model.

ExecuTorch keeps no edge program in a `.pte`. The model is therefore partitioned again, by coreproof's partitioner and
by ExecuTorch's own, with nothing converted; the partitions whose tensors have the names of the delegates' are theirs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

import coremltools as ct
import executorch.exir as exir
import torch
from executorch.backends.apple.coreml.compiler import CoreMLBackend as StockBackend
from executorch.backends.apple.coreml.partition import CoreMLPartitioner as StockPartitioner
from executorch.exir import EdgeCompileConfig, EdgeProgramManager
from executorch.exir.backend.partitioner import Partitioner
from executorch.exir.lowered_backend_module import get_lowered_backend_modules
from torch.export import ExportedProgram

from ..backend import empty_delegates
from ..errors import CoreproofError
from ..partition.partitioner import CoreMLPartitioner
from ..rewrite import unspent
from ..runtime import PteProgram
from ..runtime.pte.delegates import CoreMLDelegate, Loader
from .compare import Tolerance
from .delegates import check_delegate, record, rounds
from .lowered import Method, explained
from .record import Check


def check_delegates_of(data: bytes, name: str, method: Method, tolerance: Tolerance) -> list[Check]:
    """Each delegate of the method; none where no partitioning of the model has the tensors of these delegates."""
    program = PteProgram(data).program
    held = program.methods[name].delegates
    if not held or method.program is None or not method.cases:
        return []
    loader = Loader(program.named_data, "exact")
    delegates = [loader.load(one, f"delegate {name}/{number}") for number, one in enumerate(held)]
    manager = _partitioned_alike(name, method.program, delegates)
    if manager is None:
        return []
    reference = method.reference
    recordings = record(manager, name, method.cases, floats=reference.floats, zeros=reference.zeros)
    filled = [
        replace(recording, data=one, named=program.named_data) for recording, one in zip(recordings, held, strict=True)
    ]
    return [explained(one, check_delegate(one, tolerance)) for one in filled]


def _partitioned_alike(
    name: str, program: ExportedProgram, delegates: list[CoreMLDelegate]
) -> EdgeProgramManager | None:
    best: tuple[float, EdgeProgramManager] | None = None
    for make in _partitioners(delegates):
        try:
            manager = _partitioned(name, program, make())
        except (CoreproofError, RuntimeError, AssertionError, ValueError):  # a partitioner that refuses the model
            continue
        share = _likeness(manager.exported_program(name), delegates)
        if share > (best[0] if best else 0.0):
            best = share, manager
    return best[1] if best else None


def _partitioners(delegates: list[CoreMLDelegate]) -> Iterator[Callable[[], Partitioner]]:
    """Those that could have made the delegates, the likeliest first."""
    version = max(delegate.program.specification or 0 for delegate in delegates)
    target = next((one for one in ct.target if one.value == version and one.name.startswith("iOS")), ct.target.iOS18)
    half = any(rounds(delegate.function) for delegate in delegates)
    precision = ct.precision.FLOAT16 if half else ct.precision.FLOAT32
    specs = StockBackend.generate_compile_specs(minimum_deployment_target=target, compute_precision=precision)
    stateful = any(len(delegate.function.inputs) > len(delegate.inputs) for delegate in delegates)
    for owned in (stateful, not stateful):
        for kind in (CoreMLPartitioner, StockPartitioner):
            yield partial(kind, compile_specs=specs, take_over_mutable_buffer=owned)


def _partitioned(name: str, program: ExportedProgram, partitioner: Partitioner) -> EdgeProgramManager:
    with torch.no_grad(), empty_delegates():
        return exir.to_edge_transform_and_lower(
            {name: unspent(program)},
            partitioner={name: [partitioner]},
            compile_config=EdgeCompileConfig(_check_ir_validity=False),
        )


def _likeness(program: ExportedProgram, delegates: list[CoreMLDelegate]) -> float:
    """The share of the edge programs' nodes that the delegates name; 0 where a border differs."""
    modules = get_lowered_backend_modules(program.graph_module)
    if len(modules) != len(delegates):
        return 0.0
    named = total = 0
    for module, delegate in zip(modules, delegates, strict=True):
        edge = module.original_module
        if list(edge.graph_signature.user_inputs) != delegate.inputs:
            return 0.0
        values = {value.name.removesuffix("_cast_fp16") for op in delegate.function.body.walk() for value in op.outputs}
        nodes = [node.name for node in edge.graph.nodes if node.op == "call_function"]
        named += sum(name in values for name in nodes)
        total += len(nodes)
    return (named + 1) / (total + 1)
