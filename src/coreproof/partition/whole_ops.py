"""Which ATen ops ExecuTorch should keep whole instead of decomposing them.

An op that Core ML takes is best kept whole. But keeping is by op, not by node:
where one node of a kept op ends up on the CPU, ExecuTorch would need a kernel
for the whole op (`aten::matmul.out` does not exist). Then the op is dropped from
the list and decomposes everywhere.
"""

from __future__ import annotations

import torch
from executorch.exir.tracer import _default_decomposition_table
from torch.export import ExportedProgram

from .kernels import has_kernel
from .nodes import compute_nodes, is_view, op_name, tensors
from .options import PartitionOptions
from .placement import GraphPlacement

# Kept whole these convert badly; decomposed they convert well (coremltools 9.0: triu and tril fail under their
# edge names, repeat_interleave becomes a slow program).
BETTER_DECOMPOSED = frozenset(
    (
        torch.ops.aten.triu.default,
        torch.ops.aten.tril.default,
        torch.ops.aten.repeat_interleave.self_int,
        torch.ops.aten.repeat_interleave.self_Tensor,
    )
)


def whole_ops(
    program: ExportedProgram, options: PartitionOptions, small_values: dict[str, torch.Tensor]
) -> list[torch._ops.OpOverload]:
    """The ops of the (functional, ATen) program to keep whole.

    The program is placed as it is. Only where that leaves something in doubt (a uint8 or int8 tensor, or a
    refused op that has a decomposition) is a decomposed copy placed too, again and again until every kept op
    that is left to the CPU has a kernel or cannot be decomposed.
    """
    placement = GraphPlacement(program, options, small_values)
    kept = {
        op
        for node in compute_nodes(program.graph)
        if isinstance(op := node.target, torch._ops.OpOverload)
        and not is_view(node)  # ExecuTorch rewrites views to copies of its own
        and _may_be_kept(op)
        and (node in placement.delegate or options.is_skipped(op_name(node)))
    }
    table = _default_decomposition_table()
    if not _is_in_doubt(program, placement, table):
        return _ordered(kept)
    while True:
        copy = program.run_decompositions({op: rule for op, rule in table.items() if op not in kept})
        left = GraphPlacement(copy, options, small_values).cpu_nodes()
        dropped = {
            node.target
            for node in left
            if node.target in kept
            and node.target in table
            and not options.is_skipped(op_name(node))
            and not has_kernel(node.target, options.extra_kernels)
        }
        if not dropped:
            return _ordered(kept)
        kept -= dropped


def _may_be_kept(op: torch._ops.OpOverload) -> bool:
    return op not in BETTER_DECOMPOSED and not op._schema.is_mutable


def _is_in_doubt(program: ExportedProgram, placement: GraphPlacement, table: dict) -> bool:
    small_integers = (torch.int8, torch.uint8)
    return any(
        node.target in table  # slow to ask
        for node in placement.cpu_nodes()
    ) or any(
        t.dtype in small_integers
        for node in program.graph.nodes
        if not placement.view.is_constant(node)
        for t in tensors(node)
    )


def _ordered(ops: set[torch._ops.OpOverload]) -> list[torch._ops.OpOverload]:
    return sorted(ops, key=str)
