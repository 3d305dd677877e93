"""The options of a lowering, checked once: deployment target, precision, compute units, what delegates own."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import coremltools as ct
import torch
from executorch.backends.apple.coreml.compiler import CoreMLBackend as StockBackend
from executorch.exir.backend.compile_spec_schema import CompileSpec

from ..errors import InputError

MutableBufferState = Literal["auto", "always", "never"]

TARGETS = tuple(name for name in ct.target.__members__ if ct.target[name] >= ct.target.iOS15)
# `mixed` is float16 with ops that stay float32.
PRECISIONS = {
    "float16": ct.precision.FLOAT16,
    "float32": ct.precision.FLOAT32,
    "mixed": ct.precision.FLOAT16,
}
COMPUTE_UNITS = {unit.name.lower(): unit for unit in ct.ComputeUnit}


def parse_target(target: str | ct.target) -> ct.target:
    """`"iOS18"`, `"macOS15"` or a `coremltools.target`, as the latter.

    Raises:
        InputError: no such target, or one below iOS 15, which has no ML Programs.
    """
    if isinstance(target, ct.target):
        name = target.name
    else:
        name = {known.lower(): known for known in TARGETS}.get(str(target).lower(), str(target))
    if name not in TARGETS:
        raise InputError(f"unknown deployment target {name!r}: expected one of {', '.join(TARGETS)}")
    return ct.target[name]


def parse_precision(precision: str | ct.precision) -> ct.precision:
    """`"float16"`, `"float32"`, `"mixed"` or a `coremltools.precision`, as the latter.

    Raises:
        InputError: no such precision.
    """
    if isinstance(precision, ct.precision):
        return precision
    if precision not in PRECISIONS:
        raise InputError(f"unknown compute precision {precision!r}: expected one of {', '.join(PRECISIONS)}")
    return PRECISIONS[precision]


def parse_compute_units(units: str | ct.ComputeUnit) -> ct.ComputeUnit:
    """`"all"`, `"cpu_only"`, ... or a `coremltools.ComputeUnit`, as the latter.

    Raises:
        InputError: no such compute units.
    """
    if isinstance(units, ct.ComputeUnit):
        return units
    if str(units).lower() not in COMPUTE_UNITS:
        raise InputError(f"unknown compute units {units!r}: expected one of {', '.join(COMPUTE_UNITS)}")
    return COMPUTE_UNITS[str(units).lower()]


def compile_specs(
    target: str | ct.target, precision: str | ct.precision, compute_units: str | ct.ComputeUnit
) -> list[CompileSpec]:
    """The compile specs for these choices, as the stock backend makes them."""
    return StockBackend.generate_compile_specs(
        minimum_deployment_target=parse_target(target),
        compute_precision=parse_precision(precision),
        compute_unit=parse_compute_units(compute_units),
    )


def require_mixed(precision: str | ct.precision, float32_ops: Collection[str]) -> None:
    """Raises InputError: `mixed` without ops that stay float32, or such ops without it."""
    if isinstance(float32_ops, str):
        raise InputError(f"float32_ops is a string; expected a list of names: [{float32_ops!r}]")
    if (precision == "mixed") != bool(float32_ops):
        raise InputError(
            "compute_precision='mixed' and float32_ops go together: name the ops that stay float32, for instance "
            "float32_ops=['aten.softmax.int']"
        )


@dataclass(frozen=True)
class PartitionOptions:
    """What placement depends on.

    Attributes:
        target: minimum deployment target, or None for coremltools' own default (iOS 15).
        precision: the compute precision of the delegates.
        skip_ops: ops that the user keeps off Core ML, in lower case.
        own_buffers: whether mutable buffers may become Core ML state.
        own_constants: whether constants move into the delegates.
        full_graph: whether everything must be on Core ML.
        state: `auto` makes a floating-point buffer state where the compute precision is float16 (a state is
            float16), `always` every floating-point buffer, `never` none.
        extra_kernels: ops (`namespace::name` or `namespace::name.overload`) for which the user's own ExecuTorch
            build has kernels.
        refused: what a verification found wrong: names of nodes, or of ops (`aten.mm.default`), each with its reason.
        use_cache: whether verdicts are kept on disk and taken from there.
    """

    target: ct.target | None = None
    precision: ct.precision = ct.precision.FLOAT16
    skip_ops: frozenset[str] = frozenset()
    own_buffers: bool = True
    own_constants: bool = True
    full_graph: bool = False
    state: MutableBufferState = "auto"
    extra_kernels: frozenset[str] = frozenset()
    refused: Mapping[str, str] = field(default_factory=dict, hash=False)
    use_cache: bool = True

    @property
    def effective_target(self) -> ct.target:
        """The target that coremltools will use."""
        return self.target or ct.target.iOS15

    def why_no_state(self, value: torch.Tensor) -> str:
        """Why a mutable buffer like `value` is kept outside Core ML state, or "" where it may be state.

        Core ML states are float16 (ct#2423): an int64 counter sticks at 2048, a float32 value overflows at 65504.
        """
        dtype = value.dtype
        name = str(dtype).removeprefix("torch.")
        if self.effective_target < ct.target.iOS18:
            return f"Core ML state needs iOS 18, the target is {self.effective_target.name}"
        if self.state == "never":
            return "mutable_buffer_state is 'never'"
        if value.dim() == 0:
            return "Core ML has no arrays without dimensions (et#2769, ort#28478)"
        if dtype not in (torch.float16, torch.float32):
            return f"a Core ML state is float16, which does not hold {name} exactly"
        if self.state == "auto" and dtype != torch.float16 and self.precision != ct.precision.FLOAT16:
            return f"a Core ML state is float16, and the compute precision is float32 for this {name} buffer"
        return ""

    def is_skipped(self, name: str) -> bool:
        """Whether the user keeps the op `name` (`aten.mm.default`) off Core ML."""
        return any(names_op(skip, name) for skip in self.skip_ops)


def names_op(skip: str, op: str) -> bool:
    """Whether `skip` (`aten.mm.default`, `mm.default`, `aten.mm` or `mm`, in any case) means `aten.mm.default`."""
    full = op.lower()
    bare = full.rsplit(".", 1)[0]
    return skip.lower() in (full, bare, full.removeprefix("aten."), bare.removeprefix("aten."))


def is_named(node: str, op: str, names: Collection[str]) -> bool:
    """Whether one of the names is the node's (`aten_exp_default_1`), or means its op as `names_op` takes them."""
    return any(name == node or names_op(name, op) for name in names)


def skip_set(names: Sequence[str] | None) -> frozenset[str]:
    """The names of ops to skip, comparable without regard to case."""
    return frozenset(name.lower() for name in names or ())
