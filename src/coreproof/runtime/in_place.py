"""Which updates of a state may write into the state's own memory.

A cache is read, changed at a few positions and written back. Values are never
changed in place otherwise, so the change would copy the whole cache for one
position. It need not where nobody can see the difference: the state's first
read goes, through casts and updates that nobody else reads, to the state's
next write.
"""

from __future__ import annotations

from collections.abc import Iterable

from .ir import Operation

# Op and the operand whose memory its result may take.
UPDATES = {"slice_update": "x", "scatter": "data", "scatter_along_axis": "data", "scatter_nd": "data"}
_WRITES = {"write_state": ("input", "data"), "coreml_update_state": ("state", "value")}


def updates_in_place(operations: list[Operation], states: Iterable[str]) -> set[int]:
    """The `id` of each of a function's top-level operations that may change its operand in place."""
    readers: dict[str, list[Operation]] = {}
    for operation in operations:
        for name in reads(operation):
            readers.setdefault(name, []).append(operation)
    return {id(one) for state in states for one in _chain(readers, state)}


def reads(operation: Operation) -> Iterable[str]:
    """The values that an operation reads, in its operands or in its blocks."""
    for given in operation.inputs.values():
        yield from (one for one in given if isinstance(one, str))
    for block in operation.blocks:
        yield from block.outputs
        for inner in block.operations:
            yield from reads(inner)


def _chain(readers: dict[str, list[Operation]], state: str) -> list[Operation]:
    """The updates between the state's first read and its next write, or none."""
    touching = readers.get(state, [])
    if len(touching) < 2 or touching[0].type != "read_state" or touching[1].type not in _WRITES:
        return []
    value, written, found = touching[0].outputs[0].name, _written(touching[1], state), []
    while value != written:
        following = readers.get(value, [])
        ending = [one for one in following if one.type == "cast" and one.outputs[0].name == written]
        if ending:
            break
        if len(following) != 1 or not following[0].outputs:
            return []
        (operation,) = following
        if operation.type in UPDATES and operation.inputs.get(UPDATES[operation.type]) == [value]:
            found.append(operation)
        elif operation.type != "cast":
            return []
        value = operation.outputs[0].name
    return found


def _written(write: Operation, state: str) -> str | None:
    """The value that the state takes."""
    target, data = _WRITES[write.type]
    given = write.inputs.get(data, [])
    named = write.inputs.get(target) == [state] and len(given) == 1 and isinstance(given[0], str)
    return given[0] if named else None  # type: ignore[return-value]
