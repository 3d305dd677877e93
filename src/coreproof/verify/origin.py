"""From a value of a finished Core ML program back to the torch node that it stands for."""

from __future__ import annotations

import re

from torch.export import ExportedProgram
from torch.fx import Node

from ..partition.nodes import op_name, source_line
from ..runtime import Finding
from ..runtime.ir import Function
from .record import FirstWrong

# What a pass of coremltools puts before the name of a division that it makes a product.
INVERSED = "_inversed_"
_QUOTED = re.compile(r"'([^']+)'$")


def node_of(value: str, program: ExportedProgram) -> Node | None:
    """The node whose name the value has, perhaps with what coremltools' passes append (`_cast_fp16`, `_0`)."""
    value = value.removeprefix(INVERSED)
    named = [n for n in program.graph.nodes if value == n.name or value.startswith(f"{n.name}_")]
    return max(named, key=lambda node: len(node.name), default=None)


def finding_origin(finding: Finding, function: Function, program: ExportedProgram, delegate: str) -> FirstWrong | None:
    """The op that a finding of `coreproof check` is about; None where it is about the whole function."""
    place = finding.where.partition(": ")[2]
    quoted = _QUOTED.search(place)
    name = quoted.group(1) if quoted else place
    made = next((op for op in function.body.walk() if name in (op.name, *(value.name for value in op.outputs))), None)
    node = node_of(name, program)
    if node is None and made is not None:
        node = next((found for value in made.outputs if (found := node_of(value.name, program))), None)
    if node is None:
        return None
    evidence = f"{finding.rule}: {finding.where}: {finding.problem} ({finding.source})"
    mil_op = made.type if made is not None else "input"
    op = op_name(node) if node.op == "call_function" else ""
    return FirstWrong(delegate, mil_op, name, node.name, op, source_line(node), evidence, own=None)
