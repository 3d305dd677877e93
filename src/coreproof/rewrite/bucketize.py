"""`bucketize` and `searchsorted`, for which ExecuTorch has no kernel, as a count of boundaries."""

from __future__ import annotations

import torch
from torch.export import ExportedProgram
from torch.fx import Node

from .edit import Edit, argument
from .memory import is_tensor

aten = torch.ops.aten

_OPS = {aten.bucketize.Tensor, aten.bucketize.Scalar, aten.searchsorted.Tensor, aten.searchsorted.Scalar}


def count_boundaries(program: ExportedProgram, *, keep: frozenset = frozenset()) -> ExportedProgram:
    """Rewrite each search as the number of boundaries that do not come at or after (`right`: after) the value.

    Exact, dtype included, for boundaries as torch requires them: sorted, and without NaN. The count is of
    `not (boundary >= value)`, the test that torch's binary search makes, so a NaN value gets the last index.
    The comparison holds one element for each pair of value and boundary.
    """
    nodes = [node for node in program.graph.nodes if node.target in _OPS and node.target not in keep]
    if not nodes:
        return program
    edit = Edit(program)
    for node in nodes:
        _count(edit, edit.copy_of[node])
    return edit.finish()


def _count(edit: Edit, node: Node) -> None:
    searchsorted = node.target.overloadpacket is aten.searchsorted
    sequence = argument(node, "sorted_sequence" if searchsorted else "boundaries")
    values = argument(node, "self")
    sorter = argument(node, "sorter")
    after = argument(node, "right") or argument(node, "side") == "right"
    operand = values.meta["val"] if isinstance(values, Node) else values
    dtype = torch.result_type(sequence.meta["val"], operand)
    with edit.at(node):
        if sorter is not None:
            sequence = edit.call(aten.gather.default, sequence, -1, sorter)
        if is_tensor(values):
            values = _cast(edit, values, dtype)
        else:
            values = edit.call(aten.scalar_tensor.default, values, dtype=dtype)
        sequence = _cast(edit, sequence, dtype)
        values = edit.call(aten.unsqueeze.default, values, -1)
        if sequence.meta["val"].dim() > 1:
            sequence = edit.call(aten.unsqueeze.default, sequence, -2)
        beyond = edit.call(aten.gt.Tensor if after else aten.ge.Tensor, sequence, values)
        before = edit.call(aten.logical_not.default, beyond)
        # Counted as integers: Core ML's reduce_sum does not take bool (apple/coremltools#1570).
        index = torch.int32 if argument(node, "out_int32") else torch.int64
        counted = edit.call(aten._to_copy.default, before, dtype=index)
        edit.replace(node, edit.call(aten.sum.dim_IntList, counted, [-1], dtype=index))


def _cast(edit: Edit, node: Node, dtype: torch.dtype) -> Node:
    return node if node.meta["val"].dtype == dtype else edit.call(aten._to_copy.default, node, dtype=dtype)
