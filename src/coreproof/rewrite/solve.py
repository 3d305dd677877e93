"""Small triangular solves, for which ExecuTorch has no kernel, unrolled into slices and elementwise ops."""

from __future__ import annotations

import operator

import torch
from torch.export import ExportedProgram
from torch.fx import Node

from .edit import Edit, argument
from .memory import same_sizes

aten = torch.ops.aten

# Eight ops an unknown: a larger system is left alone, its graph would cost more than it is worth.
LIMIT = 32


def unroll_solves(program: ExportedProgram, *, keep: frozenset = frozenset()) -> ExportedProgram:
    """Rewrite `linalg_solve_triangular` and `triangular_solve` of a static size of at most `LIMIT` by substitution.

    Exact up to the order of float operations: each unknown is its right-hand side minus the products with the
    unknowns before it, one at a time, divided by the diagonal. Like torch's, the result has the error bound of
    substitution, |x - x'| <= g |T^-1||T||x| with g = nu/(1 - nu) and u the dtype's unit round-off (Higham, Accuracy
    and Stability of Numerical Algorithms, theorem 8.5). Only the triangle that torch reads is read.
    """
    nodes = [node for node in program.graph.nodes if node.target not in keep and _applies(node)]
    if not nodes:
        return program
    edit = Edit(program)
    for node in nodes:
        new = edit.copy_of[node]
        if new.target is aten.triangular_solve.default:
            _triangular_solve(edit, new)
        else:
            _linalg_solve_triangular(edit, new)
    return edit.finish()


def _applies(node: Node) -> bool:
    if node.target is aten.linalg_solve_triangular.default:
        return small_square(argument(node, "self"))
    if node.target is aten.triangular_solve.default:
        return small_square(argument(node, "A")) and all(user.target is operator.getitem for user in node.users)
    return False


def small_square(matrix: Node) -> bool:
    """Whether a (*, n, n) operand is real and has a static n from 1 to `LIMIT`."""
    value = matrix.meta["val"]
    n = value.shape[-1]
    return isinstance(n, int) and 1 <= n <= LIMIT and not value.dtype.is_complex


def _linalg_solve_triangular(edit: Edit, node: Node) -> None:
    """linalg_solve_triangular(Tensor self, Tensor B, *, bool upper, bool left=True, bool unitriangular=False)"""
    matrix, right_side = argument(node, "self"), argument(node, "B")
    upper, unit = argument(node, "upper"), argument(node, "unitriangular")
    with edit.at(node):
        if argument(node, "left"):
            solution = _substitute(edit, matrix, right_side, upper=upper, unit=unit)
        else:
            # x a = b is the transpose of a' x' = b'.
            matrix, right_side = transposed(edit, matrix), transposed(edit, right_side)
            solution = transposed(edit, _substitute(edit, matrix, right_side, upper=not upper, unit=unit))
    edit.replace(node, solution)


def _triangular_solve(edit: Edit, node: Node) -> None:
    """triangular_solve(Tensor self, Tensor A, bool upper=True, bool transpose=False, bool unitriangular=False)"""
    right_side, matrix = argument(node, "self"), argument(node, "A")
    upper, unit = argument(node, "upper"), argument(node, "unitriangular")
    with edit.at(node):
        coefficient = None
        if reads(node, 1):
            coefficient = edit.call(aten.clone.default, _broadcast(edit, matrix, right_side))
        if argument(node, "transpose"):
            matrix, upper = transposed(edit, matrix), not upper
        solution = _substitute(edit, matrix, right_side, upper=upper, unit=unit)
    replace_tuple(edit, node, (solution, coefficient))


def _substitute(edit: Edit, matrix: Node, right_side: Node, *, upper: bool, unit: bool) -> Node:
    """x of `matrix` x = `right_side`: (*, n, n) and (*, n, k) to (*, n, k)."""
    n = matrix.meta["val"].shape[-1]
    rest = _broadcast(edit, right_side, matrix)
    solved: list[Node] = []
    for i in reversed(range(n)) if upper else range(n):
        # `rest` has the rows not yet solved: 0..i of an upper triangle, i..n-1 of a lower one.
        size = i + 1 if upper else n - i
        pivot, others = (size - 1, (0, size - 1)) if upper else (0, (1, size))
        rows = (0, i) if upper else (i + 1, n)
        column = edit.call(aten.slice.Tensor, matrix, -1, i, i + 1)
        unknown = edit.call(aten.slice.Tensor, rest, -2, pivot, pivot + 1)
        if not unit:
            diagonal = edit.call(aten.slice.Tensor, column, -2, i, i + 1)
            unknown = edit.call(aten.div.Tensor, unknown, diagonal)
        solved.append(unknown)
        if size > 1:
            factors = edit.call(aten.slice.Tensor, column, -2, *rows)
            known = edit.call(aten.mul.Tensor, factors, unknown)
            rest = edit.call(aten.sub.Tensor, edit.call(aten.slice.Tensor, rest, -2, *others), known)
    return edit.call(aten.cat.default, solved[::-1] if upper else solved, -2)


def transposed(edit: Edit, matrix: Node) -> Node:
    """The last two dimensions swapped."""
    return edit.call(aten.transpose.int, matrix, -2, -1)


def reads(node: Node, index: int) -> bool:
    """Whether an op reads result `index` of `node`."""
    return any(item.args[1] == index and item.users for item in node.users)


def replace_tuple(edit: Edit, node: Node, results: tuple[Node | None, ...]) -> None:
    """Let every `getitem` of `node` read its result, which is None where nothing reads it."""
    for item in list(node.users):
        result = results[item.args[1]]
        if result is not None:
            item.replace_all_uses_with(result)
        edit.graph.erase_node(item)
    edit.graph.erase_node(node)


def _broadcast(edit: Edit, matrix: Node, other: Node) -> Node:
    """`matrix` with the batch dimensions that it and `other` have together."""
    if same_sizes(matrix.meta["val"].shape[:-2], other.meta["val"].shape[:-2]):
        return matrix
    corner = edit.call(aten.slice.Tensor, edit.call(aten.slice.Tensor, other, -1, 0, 1), -2, 0, 1)
    pair = edit.call(aten.broadcast_tensors.default, [matrix, corner])
    return edit.call(operator.getitem, pair, 0)
