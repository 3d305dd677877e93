"""Undo, inside one delegate, the copies of constants that ExecuTorch makes for readers in different places.

Each copy is a placeholder that names the same parameter or buffer. Where two of
them end up in one delegate, coremltools takes the buffer out of its table for
the first and fails on the second (`KeyError`).
"""

from __future__ import annotations

from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, InputSpec

_CONSTANTS = (InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR)


def merge_copies(program: ExportedProgram) -> None:
    """Let all readers of a constant read its first placeholder, and drop the others (in place)."""
    placeholders = {node.name: node for node in program.graph.nodes if node.op == "placeholder"}
    first: dict[tuple[InputKind, str | None], InputSpec] = {}
    kept = []
    for spec in program.graph_signature.input_specs:
        original = first.setdefault((spec.kind, spec.target), spec) if spec.kind in _CONSTANTS else spec
        if original is spec:
            kept.append(spec)
            continue
        copy = placeholders[spec.arg.name]
        copy.replace_all_uses_with(placeholders[original.arg.name])
        program.graph.erase_node(copy)
    program.graph_signature.input_specs = kept
