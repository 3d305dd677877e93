"""The table of coreproof's own torch-to-MIL converters, by coremltools' name of the op.

A converter has coremltools' own signature, `function(context, node)`: `node` is
coremltools' view of the torch op (`node.inputs`, `node.kwinputs`, `node.meta`
of the fx node), `context[name]` is a MIL value made earlier, and
`context.add(var, node.name)` records the result. It is used only inside
`convert.scope.conversion()`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Converter = Callable[[Any, Any], None]

CONVERTERS: dict[str, Converter] = {}


def converter(*names: str) -> Callable[[Converter], Converter]:
    """Register the decorated function for the ops `names`, spelt as coremltools' registry spells them.

    Raises:
        ValueError: a name has a converter of ours already.
    """

    def register(function: Converter) -> Converter:
        for name in names:
            if name in CONVERTERS:
                raise ValueError(f"two converters for the op {name}")
            CONVERTERS[name] = function
        return function

    return register
