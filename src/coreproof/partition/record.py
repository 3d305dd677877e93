"""What was decided: refusals, nodes, partitions and the placement of a whole program.

Plain values without torch objects, so that they can be kept, compared, printed
and written as JSON after the program is gone.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Refusal:
    """Why one op does not run on Core ML.

    Attributes:
        rule: a stable id, for instance `attempt`, `contract-dtype`, `boundary-dtype`, `user-skip`.
        reason: one sentence for the user, without the op's name.
        op: the op as ExecuTorch names it, for instance `aten.acosh.default`.
        node: the name of the fx node.
        source: `file.py:12` of the user's own code, or "" where torch.export kept none.
        module: the path of the user's module, for instance `encoder.layers.0`, or "".
        tensor: the operand that the reason speaks of, as `frames: uint8[1, 64, 64, 3]`, or "".
        evidence: the probe that told, with the value that torch gives and the one that the conversion gives, or "".
    """

    rule: str
    reason: str
    op: str
    node: str
    source: str = ""
    module: str = ""
    tensor: str = ""
    evidence: str = ""


@dataclass(frozen=True)
class NodePlacement:
    """Where one op runs: `partition` is the delegate's number, or None for the CPU."""

    node: str
    op: str
    partition: int | None
    source: str = ""
    module: str = ""


@dataclass(frozen=True)
class Narrowing:
    """An int64 or float64 tensor that Core ML carries in 32 bits: the node that makes it, and the dtypes."""

    node: str
    op: str
    from_dtype: str
    to_dtype: str
    source: str = ""


@dataclass(frozen=True)
class Unproven:
    """An op on Core ML whose values could not be held against torch's, and why that is allowed."""

    node: str
    op: str
    reason: str
    source: str = ""


@dataclass(frozen=True)
class BufferPlacement:
    """Where a mutable buffer lives.

    Attributes:
        name: the buffer's qualified name in the model.
        kind: `state` (Core ML state inside one delegate), `io` (an ExecuTorch buffer passed to delegates
            and back), or `cpu` (only CPU ops use it).
        partition: the delegate that owns it where kind is `state`.
        reason: why it is not Core ML state, or "".
    """

    name: str
    kind: str
    dtype: str
    shape: tuple[int | str, ...]
    partition: int | None = None
    reason: str = ""


@dataclass(frozen=True)
class Partition:
    """One delegate: its number, how many ops it holds, and the dtype and shape of what crosses its border."""

    id: int
    ops: int
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()


@dataclass
class MethodPlacement:
    """The placement of one method of a program; `seconds` is the time that deciding it took."""

    nodes: list[NodePlacement] = field(default_factory=list)
    partitions: list[Partition] = field(default_factory=list)
    refusals: list[Refusal] = field(default_factory=list)
    buffers: list[BufferPlacement] = field(default_factory=list)
    narrowings: list[Narrowing] = field(default_factory=list)
    unproven: list[Unproven] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def on_coreml(self) -> int:
        """Number of ops inside delegates."""
        return sum(node.partition is not None for node in self.nodes)

    @property
    def share(self) -> float:
        """Share of the ops that run on Core ML, 0 to 1; 1 for a method without ops."""
        return self.on_coreml / len(self.nodes) if self.nodes else 1.0

    def refusals_by_reason(self) -> list[tuple[str, str, Counter, list[Refusal]]]:
        """(rule, reason, count of each op, the refusals), most frequent first."""
        groups: dict[tuple[str, str], list[Refusal]] = {}
        for refusal in self.refusals:
            groups.setdefault((refusal.rule, refusal.reason), []).append(refusal)
        ordered = sorted(groups.items(), key=lambda item: (-len(item[1]), item[0]))
        return [(rule, reason, Counter(r.op for r in group), group) for (rule, reason), group in ordered]


class Placement(dict[str, MethodPlacement]):
    """Method name to its `MethodPlacement`; `forward` is the usual one."""

    @property
    def delegates(self) -> int:
        return sum(len(method.partitions) for method in self.values())

    @property
    def share(self) -> float:
        """Share of all ops, over every method, that run on Core ML, 0 to 1."""
        total = sum(len(method.nodes) for method in self.values())
        return sum(method.on_coreml for method in self.values()) / total if total else 1.0

    @property
    def refusals(self) -> list[Refusal]:
        return [refusal for method in self.values() for refusal in method.refusals]
