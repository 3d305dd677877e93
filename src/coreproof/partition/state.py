"""Where each mutable buffer lives: Core ML state inside one delegate, or an ExecuTorch buffer.

An ExecuTorch buffer is handed to the delegates that read it and written back
from their outputs, so nobody holds a stale copy. Core ML state is faster and
belongs to one delegate alone.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch._subclasses import FakeTensor
from torch.export import ExportedProgram
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


def initialised_buffers(program: ExportedProgram) -> frozenset[str]:
    """The mutable buffers of a program that do not start at zero, by qualified name."""
    names = program.graph_signature.buffers_to_mutate.values()
    values = {name: program.state_dict.get(name, program.constants.get(name)) for name in names}
    return frozenset(
        name
        for name, value in values.items()
        if isinstance(value, torch.Tensor) and not isinstance(value, FakeTensor) and bool((value != 0).any())
    )


def place_buffers(
    view: ProgramView,
    delegate: dict[Node, int],
    options: PartitionOptions,
    returning: set[int],
    initialised: frozenset[str],
) -> list[BufferDecision]:
    """Decide for every mutable buffer of the program.

    Args:
        returning: the delegates that return more than updates.
        initialised: the buffers that do not start at zero.
    """
    return [BufferDecision(one, _place(one, delegate, options, returning, initialised)) for one in view.buffers]


def _place(
    buffer: MutableBuffer,
    delegate: dict[Node, int],
    options: PartitionOptions,
    returning: set[int],
    initialised: frozenset[str],
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
    if not reason and buffer.name in initialised:
        reason = "it does not start at zero, and a Core ML state does"
    if reason:
        return record("io", reason)
    if places != {inside[0]} or buffer.placeholder in buffer.placeholder.graph.output_node().all_input_nodes:
        return record("io", SHARED)
    if buffer.update is None or delegate.get(buffer.update) != inside[0]:
        return record("io", "its new value is made outside the delegate that reads it")
    if any(user.op != "output" and delegate.get(user) != inside[0] for user in buffer.update.users):
        return record("io", "its new value is used outside the delegate that makes it")
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
