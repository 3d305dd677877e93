"""Ops that are another name of an op that ExecuTorch has: `_is_all_true` (`all`) and `_is_any_true` (`any`).

Neither has a decomposition in torch, nor a kernel in ExecuTorch. transformers' mask checks export them.
"""

from __future__ import annotations

import torch
from torch.export import ExportedProgram

from .edit import Edit

aten = torch.ops.aten

_SYNONYMS = {
    aten._is_all_true.default: aten.all.default,
    aten._is_any_true.default: aten.any.default,
}


def use_public_names(program: ExportedProgram, *, keep: frozenset = frozenset()) -> ExportedProgram:
    """Replace each op of `_SYNONYMS` by the op that it is; exact, since both take one bool tensor."""
    found = [node for node in program.graph.nodes if node.target in _SYNONYMS and node.target not in keep]
    if not found:
        return program
    edit = Edit(program)
    for node in found:
        old = edit.copy_of[node]
        with edit.at(old):
            edit.replace(old, edit.call(_SYNONYMS[node.target], *old.args))
    return edit.finish()
