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
    for op, rule in rare.items():
        program = _decomposed(program, op, rule)
    return program


def _decomposed(program: ExportedProgram, op: torch._ops.OpOverload, rule: Callable) -> ExportedProgram:
    """The program without `op`, or as it is where torch's rule leads to ops that nobody has either.

    Some rules end in prims, some are not functional (torch asserts that the result is). The op is then better
    named as the user wrote it, by the check for kernels.
    """
    try:
        decomposed = program.run_decompositions({op: rule})
    except AssertionError:
        return program
    ends_in_prims = any(getattr(node.target, "namespace", "") == "prims" for node in decomposed.graph.nodes)
    return program if ends_in_prims else decomposed


def _is_rare(op: torch._ops.OpOverload) -> bool:
    return (
        isinstance(op, torch._ops.OpOverload)
        and torch.Tag.core not in op.tags
        and not op._schema.is_mutable
        and not has_converter(op)
        and not has_kernel(op)
        and op not in _default_decomposition_table()
    )
