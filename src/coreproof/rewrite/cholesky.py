"""Small Cholesky factorisations, for which ExecuTorch has no kernel, unrolled into slices and elementwise ops."""

from __future__ import annotations

import operator

import torch
from torch.export import ExportedProgram
from torch.fx import Node

from .edit import Edit, argument
from .solve import reads, replace_tuple, small_square, transposed

aten = torch.ops.aten

_OPS = {aten.linalg_cholesky_ex.default, aten.linalg_cholesky.default, aten.cholesky.default}


def unroll_cholesky(program: ExportedProgram, *, keep: frozenset = frozenset()) -> ExportedProgram:
    """Rewrite `linalg_cholesky_ex`, `linalg_cholesky` and `cholesky` of a static size of at most 32, column by column.

    Exact up to the order of float operations: the factor L' satisfies |L'L'^T - A| <= g |L'||L'^T| with
    g = (n+1)u/(1 - (n+1)u), as torch's does (Higham, Accuracy and Stability of Numerical Algorithms, theorem 10.3).
    `info` is the 1-based order of the first leading minor that is not positive (NaN is not), else 0, as in torch.

    A device has no exception to raise: where `linalg_cholesky` and `cholesky` raise for a matrix that is not positive
    definite, the factor is NaN from the failing diagonal element on.
    """
    nodes = [node for node in program.graph.nodes if node.target not in keep and _applies(node)]
    if not nodes:
        return program
    edit = Edit(program)
    for node in nodes:
        _unroll(edit, edit.copy_of[node])
    return edit.finish()


def _applies(node: Node) -> bool:
    if node.target not in _OPS or not small_square(argument(node, "self")):
        return False
    ex = node.target is aten.linalg_cholesky_ex.default
    return not ex or all(user.target is operator.getitem for user in node.users)


def _unroll(edit: Edit, node: Node) -> None:
    matrix, upper = argument(node, "self"), argument(node, "upper")
    with edit.at(node):
        # The upper factor is read from the upper triangle, and is the transpose of the lower one.
        factor, pivots = _factor(edit, transposed(edit, matrix) if upper else matrix)
        if upper:
            factor = transposed(edit, factor)
        if node.target is not aten.linalg_cholesky_ex.default:
            edit.replace(node, factor)
            return
        # The check that functionalisation makes of `linalg_cholesky` has no kernel either; the NaN stands in for it.
        for user in [user for item in node.users for user in item.users]:
            if user.target is aten._linalg_check_errors.default:
                edit.graph.erase_node(user)
        replace_tuple(edit, node, (factor, _info(edit, pivots) if reads(node, 1) else None))


def _factor(edit: Edit, matrix: Node) -> tuple[Node, list[Node]]:
    """The lower factor (*, n, n), and n tensors (*, 1, 1): whether each pivot is positive."""
    n = matrix.meta["val"].shape[-1]
    rest, columns, positive = matrix, [], []
    for i in range(n):
        column = edit.call(aten.slice.Tensor, rest, -1, 0, 1)
        pivot = edit.call(aten.slice.Tensor, column, -2, 0, 1)
        positive.append(edit.call(aten.gt.Scalar, pivot, 0))
        root = edit.call(aten.sqrt.default, edit.call(aten.where.ScalarOther, positive[i], pivot, float("nan")))
        if i < n - 1:
            below = edit.call(aten.div.Tensor, edit.call(aten.slice.Tensor, column, -2, 1, n - i), root)
            rest = edit.call(aten.slice.Tensor, edit.call(aten.slice.Tensor, rest, -1, 1, n - i), -2, 1, n - i)
            rest = edit.call(aten.sub.Tensor, rest, edit.call(aten.mul.Tensor, below, transposed(edit, below)))
            root = edit.call(aten.cat.default, [root, below], -2)
        columns.append(edit.call(aten.constant_pad_nd.default, root, [0, 0, i, 0]) if i else root)
    return edit.call(aten.cat.default, columns, -1), positive


def _info(edit: Edit, positive: list[Node]) -> Node:
    """int32 (*): 1 + the index of the first pivot that is not positive, 0 where all are."""
    info: Node | None = None
    for order in range(len(positive), 0, -1):
        ok = edit.call(aten.squeeze.dims, positive[order - 1], [-2, -1])
        if info is None:
            info = edit.call(aten.zeros_like.default, ok, dtype=torch.int32)
        failed = edit.call(aten.full_like.default, ok, order, dtype=torch.int32)
        info = edit.call(aten.where.self, ok, info, failed)
    assert info is not None
    return info
