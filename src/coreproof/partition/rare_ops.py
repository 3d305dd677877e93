"""Ops that nobody in the chain has, but that torch itself can decompose (`upsample_bicubic2d`, `hypot`, ...).

ExecuTorch decomposes by its own table, which leaves out some ops that are
neither in the core ATen set nor among its kernels. Left alone they would be an
error, although torch has a decomposition of each.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from executorch.exir.tracer import _default_decomposition_table
from torch._decomp import decomposition_table
from torch.export import ExportedProgram

from ..convert.scope import has_converter
from .kernels import has_kernel
from .nodes import compute_nodes, op_name
from .options import PartitionOptions


def decompose_rare_ops(program: ExportedProgram, options: PartitionOptions) -> ExportedProgram:
    """Decompose, by torch's own rules, the ops of an ATen program that neither Core ML nor the CPU could run.

    Returns:
        `program` itself where it has no such op.
    """
    rare = {
        op: decomposition_table[op]
        for node in compute_nodes(program.graph)
        if (op := node.target) in decomposition_table and _is_rare(op) and not options.is_skipped(op_name(node))
    }
    if not rare:
        return program
    decomposed = program.run_decompositions(rare)
    if not any(getattr(node.target, "namespace", "") == "prims" for node in decomposed.graph.nodes):
        return decomposed
    # torch's reference implementations may end in prims, which nobody has either: better to name the op as it is.
    own = {op: rule for op, rule in rare.items() if not _is_reference(rule)}
    return program.run_decompositions(own) if own else program


def _is_reference(rule: Callable) -> bool:
    return getattr(rule, "__module__", "").startswith("torch._refs")


def _is_rare(op: torch._ops.OpOverload) -> bool:
    return (
        isinstance(op, torch._ops.OpOverload)
        and torch.Tag.core not in op.tags
        and not op._schema.is_mutable
        and not has_converter(op)
        and not has_kernel(op)
        and op not in _default_decomposition_table()
    )
