"""Where each mutable buffer lives: Core ML state inside one delegate, or an ExecuTorch buffer.

An ExecuTorch buffer is handed to the delegates that read it and written back
from their outputs, so nobody holds a stale copy. Core ML state is faster and
belongs to one delegate alone.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch.fx import Node

from ..errors import StateError
from .nodes import op_name, source_line, tensors
from .options import PartitionOptions
from .program_view import MutableBuffer, ProgramView
from .record import BufferPlacement

SHARED = "ops in more than one place use it"


@dataclass(frozen=True)
class BufferDecision:
    """A mutable buffer and where it was placed."""

    buffer: MutableBuffer
    record: BufferPlacement


def place_buffers(
    view: ProgramView, delegate: dict[Node, int], options: PartitionOptions, returning: set[int]
) -> list[BufferDecision]:
    """Decide for every mutable buffer of the program; `returning` are the delegates that return more than updates."""
    return [BufferDecision(buffer, _place(buffer, delegate, options, returning)) for buffer in view.buffers]


def _place(
    buffer: MutableBuffer, delegate: dict[Node, int], options: PartitionOptions, returning: set[int]
) -> BufferPlacement:
    value = tensors(buffer.placeholder)[0]
    readers = list(buffer.placeholder.users)
    places = {delegate.get(reader) for reader in readers if reader.op != "output"}
    inside = sorted(place for place in places if place is not None)

    def record(kind: str, reason: str = "", partition: int | None = None) -> BufferPlacement:
        shape = tuple(s if isinstance(s, int) else str(s) for s in value.shape)
        return BufferPlacement(buffer.name, kind, str(value.dtype).removeprefix("torch."), shape, partition, reason)

    if not inside:
        return record("cpu", "no op on Core ML reads it")
    if not options.own_buffers:
        return record("io", "take_over_mutable_buffer is False")
    reason = options.why_no_state(value)
    if reason:
        return record("io", reason)
    if places != {inside[0]} or buffer.placeholder in buffer.placeholder.graph.output_node().all_input_nodes:
        return record("io", SHARED)
    if buffer.update is None or delegate.get(buffer.update) != inside[0]:
        return record("io", "its new value is made outside the delegate that reads it")
    if inside[0] not in returning:
        return record("io", "its delegate would return nothing, and a Core ML program must")
    return record("state", partition=inside[0])


def require_single_place(decisions: list[BufferDecision], delegate: dict[Node, int], reasons: dict[Node, str]) -> None:
    """Refuse a buffer that Core ML state could hold but that ops in more than one place use.

    Raises:
        StateError: naming each op that uses the buffer, where each runs and why, and what to change.
    """
    for decision in decisions:
        if decision.record.reason == SHARED:
            raise StateError(_message(decision.buffer, delegate, reasons))


def _message(buffer: MutableBuffer, delegate: dict[Node, int], reasons: dict[Node, str]) -> str:
    uses = "; ".join(_use(node, delegate, reasons) for node in buffer.placeholder.users)
    return (
        f"the mutable buffer {buffer.name} is used in more than one place and cannot be the state of one Core ML "
        f"delegate: {uses}. Pass take_over_mutable_buffer=False to keep it outside Core ML, or change the model so "
        "that one delegate holds every op that uses it"
    )


def _use(node: Node, delegate: dict[Node, int], reasons: dict[Node, str]) -> str:
    if node.op == "output":
        return "the method returns it"
    where = f"Core ML delegate {delegate[node]}" if node in delegate else "the CPU"
    why = f" because {reasons[node]}" if node in reasons else ""
    line = source_line(node)
    return f"{op_name(node)} ({line or node.name}) on {where}{why}"
