"""Programs as ExecuTorch's own Core ML backend writes them."""

from __future__ import annotations

from typing import Any

import coremltools as ct
import executorch.exir as exir
import torch
from executorch.backends.apple.coreml.compiler import CoreMLBackend
from executorch.backends.apple.coreml.partition import CoreMLPartitioner


def stock_pte(
    module: torch.nn.Module, inputs: tuple[Any, ...], precision: ct.precision = ct.precision.FLOAT16
) -> bytes:
    """The module's `.pte`, lowered by the stock partitioner and backend for iOS 18."""
    specs = CoreMLBackend.generate_compile_specs(minimum_deployment_target=ct.target.iOS18, compute_precision=precision)
    program = torch.export.export(module.eval(), inputs)
    manager = exir.to_edge_transform_and_lower(
        program,
        partitioner=[CoreMLPartitioner(compile_specs=specs)],
        compile_config=exir.EdgeCompileConfig(_check_ir_validity=False),
    )
    return bytes(manager.to_executorch().buffer)
