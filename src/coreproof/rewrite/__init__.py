"""Exact rewrites of an ATen program, before ExecuTorch decomposes it.

Each takes a pattern that ExecuTorch or Core ML cannot lower to one that they
can, with the same values. They run on training IR (in-place ops and all) as
well as on functional programs.
"""

from __future__ import annotations

from torch.export import ExportedProgram

from .bucketize import count_boundaries
from .casts import fold_casts
from .cholesky import unroll_cholesky
from .edit import unspent
from .list_readers import separate_list_readers
from .outputs import separate_updates
from .solve import unroll_solves
from .synonyms import use_public_names

# The searches cast boundaries, which may be small integers; a folded cast is a constant that readers may share.
REWRITES = (
    use_public_names,
    count_boundaries,
    unroll_solves,
    unroll_cholesky,
    fold_casts,
    separate_updates,
    separate_list_readers,
)


def rewrite(program: ExportedProgram, *, keep: frozenset = frozenset()) -> ExportedProgram:
    """Run every rewrite, in order.

    Args:
        program: an ATen program, training IR or functional; it is never changed.
        keep: op overloads (`torch.ops.aten.bucketize.Tensor`) that no rewrite replaces or gives other operands.

    Returns:
        `program` itself where nothing applies, else a new program that shares the tensors.
    """
    for step in REWRITES:
        program = step(program, keep=keep)
    return program


__all__ = ["REWRITES", "rewrite", "unspent"]
