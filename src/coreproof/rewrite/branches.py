"""What a branch of control flow returns is memory of its own.

Without gradients, torch.export accepts a `torch.cond` whose branch hands back its input (`lambda x: x`); torch's
decomposition of the exported program then refuses it ("might be aliasing the input or the output"). This runs before
ExecuTorch is given the program.
"""

from __future__ import annotations

import copy

import torch
from torch.export import ExportedProgram
from torch.fx import GraphModule, Node

from .edit import Edit
from .memory import Memory, is_tensor

aten = torch.ops.aten


def separate_branch_outputs(program: ExportedProgram) -> ExportedProgram:
    """Give each value that a branch returns, and that may share memory with an input or another result, a clone.

    Returns:
        `program` itself where no branch does that, else a new program that shares the tensors; exact either way.
    """
    root = program.graph_module
    if not any(_shared_results(branch) for branch in _branches(root)):
        return program
    changed = Edit(program).finish()
    for name, branch in _named_branches(changed.graph_module).items():
        setattr(changed.graph_module, name, _separated(branch))
    return changed


def _separated(branch: GraphModule) -> GraphModule:
    branch = copy.copy(branch)
    branch.graph = copy.deepcopy(branch.graph)
    for name, inner in _named_branches(branch).items():
        setattr(branch, name, _separated(inner))
    output = branch.graph.output_node()
    results = list(output.args[0])
    for index in _shared_results(branch):
        source = results[index]
        with branch.graph.inserting_before(output):
            results[index] = branch.graph.call_function(aten.clone.default, (source,))
        results[index].meta = dict(source.meta)
    output.args = (tuple(results),)
    branch.recompile()
    return branch


def _shared_results(branch: GraphModule) -> list[int]:
    """The places of the results that are an input's or a constant's memory, or an earlier result's."""
    memory = Memory(branch.graph)
    results = branch.graph.output_node().args[0]
    held: set[Node] = set()
    shared = []
    for index, node in enumerate(results if isinstance(results, tuple | list) else ()):
        if not is_tensor(node):
            continue
        base = memory.base[node]
        if base.op in ("placeholder", "get_attr") or base in held:
            shared.append(index)
        held.add(base)
    return shared


def _branches(module: GraphModule) -> list[GraphModule]:
    """The subgraphs that a graph calls, at any depth."""
    called = list(_named_branches(module).values())
    return called + [inner for one in called for inner in _branches(one)]


def _named_branches(module: GraphModule) -> dict[str, GraphModule]:
    names = dict.fromkeys(str(node.target) for node in module.graph.find_nodes(op="get_attr"))
    called = {name: getattr(module, name, None) for name in names}
    return {name: one for name, one in called.items() if isinstance(one, GraphModule)}
