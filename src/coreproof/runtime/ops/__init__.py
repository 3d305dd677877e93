"""The ops, one plain function each, in files that follow coremltools' families.

A function bears the op's name and its parameters are the op's operands with the
defaults of the specification. What differs from iOS 16, 17 or 18 on is a second
function with that suffix (`gather_ios17`); an opset uses the newest one that is
not newer than itself. Annotations say what a parameter wants (see convert.py):

    Tensor          the carried tensor (half floats are float32 here)
    int, float ...  a Python scalar;  Ints, Floats, Bools  a list of them
    Tensors         the values of a variadic operand

A function may also ask, by keyword-only parameter, for what is no operand:
`results` (declared types of the outputs), `generator` (of the random ops),
`blocks` (callables, for control flow), `declared` (whether half types round),
`in_place` (whether it may change its first operand, see ../in_place.py).
"""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import Any, get_type_hints

import torch

from ...errors import ModelError
from .convert import Tensors, Values

FAMILIES = (
    "activation",
    "attention",
    "classify",
    "compression",
    "control_flow",
    "conv",
    "detection",
    "elementwise",
    "image_resizing",
    "linear",
    "normalization",
    "pool",
    "quantization",
    "random",
    "recurrent",
    "reduction",
    "scatter_gather",
    "states",
    "tensor_operation",
    "tensor_transformation",
)

# Opsets in a file, oldest first, and the suffix of the functions that came with each.
OPSETS = ("CoreML5", "CoreML6", "CoreML7", "CoreML8", "CoreML9")
_SUFFIXES = ("", "_ios16", "_ios17", "_ios18", "_ios26")
_SUFFIX = re.compile(r"_ios(?:16|17|18|26)$")
EXTRAS = frozenset(("results", "generator", "blocks", "declared", "in_place"))
RUNNING_EXTRAS = frozenset(("generator", "blocks", "in_place"))  # those that differ from run to run


@dataclass
class Context:
    """What lives for one run: the random generator, the tapped and the rounded values, how to run a nested block."""

    generator: torch.Generator | None = None
    kept: dict[str, Any] = field(default_factory=dict)
    wanted: set[str] = field(default_factory=set)
    stop_after: str | None = None
    rounding: Collection[str] = ()
    run_block: Callable = lambda *_: []


@dataclass(frozen=True)
class Parameter:
    """One operand of an op function: what it wants, whether it must be given, whether it takes several values."""

    kind: Any
    required: bool
    variadic: bool


@dataclass(frozen=True)
class OpFunction:
    """An op function with what its signature says.

    Attributes:
        extras: the keyword-only parameters it asks for.
        moves_data: it only moves values, so that its result needs no rounding.
        many: a tuple that it returns is several results (and not one).
        no_result: it may declare no output.
    """

    call: Callable[..., Any]
    parameters: dict[str, Parameter]
    extras: frozenset[str]
    moves_data: bool
    many: bool = True
    no_result: bool = False

    @cached_property
    def running_extras(self) -> tuple[str, ...]:
        """The extras that differ from run to run."""
        return tuple(sorted(self.extras & RUNNING_EXTRAS))


# Ops whose float results are values of their operands: rounding them again would change nothing.
MOVES_DATA = frozenset(
    [
        "concat",
        "expand_dims",
        "gather",
        "gather_along_axis",
        "gather_nd",
        "identity",
        "max_pool",
        "maximum",
        "minimum",
        "pad",
        "pixel_shuffle",
        "read_state",
        "reduce_max",
        "reduce_min",
        "relu",
        "reshape",
        "reshape_like",
        "reverse",
        "reverse_sequence",
        "select",
        "slice_by_index",
        "slice_by_size",
        "sliding_windows",
        "space_to_depth",
        "depth_to_space",
        "split",
        "squeeze",
        "stack",
        "tile",
        "transpose",
        "band_part",
        "topk",
        "sort",
        "non_zero",
        "shape",
        "batch_to_space",
        "flatten2d",
        "list_gather",
        "list_read",
        "pixel_unshuffle",
        "slice_update",
        "space_to_batch",
    ]
)

# Ops that may declare no output.
NO_RESULT = frozenset(("write_state", "coreml_update_state"))


@cache
def all_ops() -> dict[str, dict[str, OpFunction]]:
    """Every op by name, and for each the opset suffixes that it has a function for."""
    found: dict[str, dict[str, OpFunction]] = {}
    for family in FAMILIES:
        module = importlib.import_module(f"{__name__}.{family}")
        for name, function in vars(module).items():
            own = inspect.isfunction(function) and function.__module__ == module.__name__ and not name.startswith("_")
            if own:
                base = _SUFFIX.sub("", name.rstrip("_"))
                suffix = name.rstrip("_").removeprefix(base)
                found.setdefault(base, {})[suffix] = _described(base, function)
    return found


def find_op(op: str, opset: str, where: str) -> OpFunction:
    """The function of `op` in `opset` (`CoreML5` ... `CoreML9`).

    Raises:
        ModelError: there is no such op, or not in that opset.
    """
    versions = all_ops().get(op)
    if versions is None:
        raise ModelError(f"{where}: no op of this name is in Core ML's specification (coremltools 9.0)")
    if opset not in OPSETS:
        raise ModelError(f"{where}: unknown opset {opset!r}; expected one of {', '.join(OPSETS)}")
    for suffix in reversed(_SUFFIXES[: OPSETS.index(opset) + 1]):
        if suffix in versions:
            return versions[suffix]
    raise ModelError(f"{where}: not in the opset {opset}; it came with {min(versions)[1:]}")


def _described(name: str, function: Callable) -> OpFunction:
    hints = get_type_hints(function)
    parameters: dict[str, Parameter] = {}
    extras = set()
    for parameter in inspect.signature(function).parameters.values():
        if parameter.name in EXTRAS and parameter.kind is inspect.Parameter.KEYWORD_ONLY:
            extras.add(parameter.name)
            continue
        kind = hints[parameter.name]
        required = parameter.default is inspect.Parameter.empty
        parameters[parameter.name] = Parameter(kind, required, kind in (Tensors, Values))
    return OpFunction(
        function,
        parameters,
        frozenset(extras),
        name in MOVES_DATA,
        hints.get("return") is not object,
        name in NO_RESULT,
    )
