"""From a verification to the ops that are kept off Core ML when the lowering is repeated."""

from __future__ import annotations

from executorch.exir import EdgeProgramManager
from executorch.exir.lowered_backend_module import get_lowered_backend_modules
from torch.export import ExportedProgram
from torch.fx import Node

from ..partition.kernels import lacks_kernel
from ..partition.nodes import compute_nodes, is_getitem, op_name
from .record import Check, Verification


def refused_by(verification: Verification, manager: EdgeProgramManager) -> dict[str, dict[str, str]]:
    """By method, what `CoreMLPartitioner` takes as `refused`.

    Of each delegate that is wrong the first wrong op; every op of it where none was found.
    """
    refused: dict[str, dict[str, str]] = {}
    for check in verification.checks:
        kind, _, name = check.subject.partition(" ")
        if kind != "delegate" or check.outcome != "mismatch":
            continue
        method, _, number = name.rpartition("/")
        modules = get_lowered_backend_modules(manager.exported_program(method).graph_module)
        refused.setdefault(method, {}).update(_refused(check, modules[int(number)].original_module))
    return refused


def _refused(check: Check, program: ExportedProgram) -> dict[str, str]:
    nodes = [node for node in compute_nodes(program.graph) if not is_getitem(node)]
    wrong = check.first_wrong
    named = [node for node in nodes if wrong is not None and node.name == wrong.node]
    reason = f"the finished delegate gave other values than torch: {check.what()}"
    if wrong is not None and named:
        reason = f"in the finished delegate it gave other values than torch: {wrong.evidence}"
    return {_name(node): reason for node in named or nodes}


def _name(node: Node) -> str:
    """The node's name, or its op's where ExecuTorch has no kernel for the op: that decomposes it everywhere."""
    return op_name(node) if lacks_kernel(node, frozenset()) else node.name
