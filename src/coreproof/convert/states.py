"""A MIL pass that puts every state update right behind the op that makes its value.

coremltools' own `canonicalize_inplace_pattern` does so too, but looks up the
place in a list that it made before it removed updates: two states whose new
values are made one after the other, or that get the same value, end in
`KeyError: coreml_update_state_0`. Run before it, this pass leaves it nothing to
move. It can go when that pass re-reads its list.
"""

from __future__ import annotations

from coremltools.converters.mil.mil import Builder as mb
from coremltools.converters.mil.mil import Function, Operation, Program

from .outputs import unscoped


def order_state_updates(mil: Program) -> None:
    """Give each `coreml_update_state` a value of its own, made by the op right before it (in place)."""
    for function in mil.functions.values():
        _order(function)


def _order(function: Function) -> None:
    taken: set[str] = set()  # names of values that a state has
    with function:
        for update in [op for op in function.operations if op.op_type == "coreml_update_state"]:
            value = update.value
            if value.op is None or value.op.op_type == "const" or value.name in taken:
                with unscoped():
                    value = mb.identity(x=value, before_op=update)
            taken.add(value.name)
            _move(function, update, value)


def _move(function: Function, update: Operation, value: object) -> None:
    operations = list(function.operations)
    following = operations[operations.index(value.op) + 1]  # type: ignore[attr-defined]
    if following is update and update.value is value:
        return
    with unscoped():
        moved = mb.coreml_update_state(state=update.state, value=value, before_op=following)
    function.replace_uses_of_var_after_op(anchor_op=update, old_var=update.outputs[0], new_var=moved)
    function.remove_ops([update])
