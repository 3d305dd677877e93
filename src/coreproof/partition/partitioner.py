"""`CoreMLPartitioner`: ExecuTorch's partitioner interface over a graph placement."""

from __future__ import annotations

import inspect
import logging
import time
import weakref
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import get_args

import coremltools as ct
import torch
from executorch.backends.apple.coreml.compiler import CoreMLBackend as StockBackend
from executorch.exir.backend.compile_spec_schema import CompileSpec
from executorch.exir.backend.partitioner import DelegationSpec, Partitioner, PartitionResult
from executorch.exir.backend.utils import tag_constant_data
from torch.export import ExportedProgram

from ..backend import marked
from ..errors import InputError, MissingKernelError, RequirementError
from ..rewrite import rewrite, unspent
from .kernels import is_users_own, lacks_kernel
from .nodes import compute_nodes, op_name, source_line
from .options import MutableBufferState, PartitionOptions, names_op, skip_set
from .placement import GraphPlacement
from .program_view import small_values
from .ranges import Ranges, declared_ranges, restore_ranges
from .rare_ops import decompose_rare_ops
from .record import MethodPlacement, Placement, Refusal
from .state import initialised_buffers, require_single_place
from .whole_ops import whole_ops

logger = logging.getLogger(__name__)


class Watcher:
    """What a caller may want to know, or to refuse, between placement and conversion. This one does nothing."""

    def placing(self, ops: int) -> None:
        """A method of so many ops is about to be placed."""

    def placed(self, record: MethodPlacement, is_skipped: Callable[[str, str], bool]) -> None:
        """A method was placed; `is_skipped(skip, op)` says whether the name to skip means the op."""


class CoreMLPartitioner(Partitioner):
    """Decides what runs on Core ML; a drop-in for ExecuTorch's class of this name.

    Args:
        skip_ops_for_coreml_delegation: ops to keep off Core ML, as `aten.mm.default` or `aten.mm`.
        compile_specs: as the stock `CoreMLBackend.generate_compile_specs` and its siblings make them.
        take_over_mutable_buffer: whether mutable buffers may become Core ML state.
        lower_full_graph: raise unless every op runs on Core ML.
        take_over_constant_data: whether delegates own the constants that they read.
        mutable_buffer_state: `auto` makes a floating-point buffer Core ML state (which is float16) where the
            compute precision is float16; `always` every floating-point buffer; `never` none.
        extra_kernels: ops (`namespace::name`) for which your own ExecuTorch build has CPU kernels.
        float32_ops: nodes (`aten_exp_default_1`), or ops as `aten.exp.default`, that stay float32 in float16 delegates.
        refused: nodes, or ops as `aten.mm.default`, to keep off Core ML because a verification found them wrong, each
            with the evidence.
        use_cache: whether verdicts are kept in the user's cache folder (see `verdict_cache`) and taken from there.
        watcher: told before and after a method is placed; with one, ops that are skipped by name and custom ops need
            a kernel too (without, they are the caller's own responsibility, as with the stock partitioner).
        plan_only: place and record, but hand nothing to Core ML.

    Attributes:
        placement: after a lowering, the `MethodPlacement` of each method, in the order of lowering.

    Raises:
        InputError: options that exclude one another.
    """

    def __init__(
        self,
        *,
        skip_ops_for_coreml_delegation: Sequence[str] | None = None,
        compile_specs: list[CompileSpec] | None = None,
        take_over_mutable_buffer: bool | None = True,
        lower_full_graph: bool = False,
        take_over_constant_data: bool = True,
        mutable_buffer_state: MutableBufferState = "auto",
        extra_kernels: Collection[str] = (),
        float32_ops: Collection[str] = (),
        refused: Mapping[str, str] | None = None,
        use_cache: bool = True,
        watcher: Watcher | None = None,
        plan_only: bool = False,
    ) -> None:
        specs = list(compile_specs or [])
        _check_arguments(skip_ops_for_coreml_delegation, mutable_buffer_state, extra_kernels)
        self.options = PartitionOptions(
            target=StockBackend.min_deployment_target_from_compile_specs(specs),
            precision=StockBackend.model_compute_precision_from_compile_specs(specs),
            skip_ops=skip_set(skip_ops_for_coreml_delegation),
            own_buffers=bool(take_over_mutable_buffer),
            own_constants=take_over_constant_data,
            full_graph=lower_full_graph,
            state=mutable_buffer_state,
            extra_kernels=frozenset(extra_kernels),
            refused=dict(refused or {}),
            use_cache=use_cache,
        )
        if float32_ops and self.options.precision != ct.precision.FLOAT16:
            raise InputError("float32_ops needs the compute precision float16, in which they are the exceptions")
        _check(self.options, StockBackend.enumerated_shapes_from_compile_specs(specs) is not None)
        self.skip_ops_for_coreml_delegation = list(skip_ops_for_coreml_delegation or [])
        self.take_over_mutable_buffer = self.options.own_buffers
        self.take_over_constant_data = take_over_constant_data
        self.lower_full_graph = lower_full_graph
        self.delegation_spec = DelegationSpec(StockBackend.__name__, marked(specs, float32_ops))
        self.placement = Placement()
        self._watcher = watcher
        self._plan_only = plan_only
        self._seconds = 0.0  # spent on deciding, for the method at hand
        self._small_values: dict[str, torch.Tensor] = {}
        self._declared: Ranges = {}
        self._whole_ops: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()

    def transform_for_pre_decomposition(self, program: ExportedProgram) -> ExportedProgram:
        """Apply the exact rewrites and decompose rare ops; the caller's program is not changed."""
        self._declared = declared_ranges(self._declared, program)
        return decompose_rare_ops(rewrite(unspent(program)), self.options)

    def ops_to_not_decompose(
        self, ep: ExportedProgram
    ) -> tuple[list[torch._ops.OpOverload], Callable[[torch.fx.Node], bool] | None]:
        """The ops to keep whole. ExecuTorch asks several times about one program: the answer is kept."""
        if ep.dialect == "EDGE":  # the question after the lowering: nothing was left whole that has to go
            return [], None
        if ep not in self._whole_ops:
            start = time.perf_counter()
            self._small_values = small_values(ep)
            self._whole_ops[ep] = whole_ops(ep, self.options, self._small_values)
            self._seconds += time.perf_counter() - start
        return self._whole_ops[ep], None

    def partition(self, exported_program: ExportedProgram) -> PartitionResult:
        """Tag each node that runs on Core ML with its delegate.

        Raises:
            RequirementError: `lower_full_graph` and an op that cannot run on Core ML (all are listed).
            StateError: a mutable buffer is used in more than one place.
            MissingKernelError: an op is left to the CPU that ExecuTorch has no kernel for.
            InputError: called through the single-program `to_backend`, which always takes the stock backend.
        """
        real = _check_entry_point()
        values = self._small_values | (small_values(real) if real else {})
        initialised = initialised_buffers(real or exported_program)
        watcher = self._watcher or Watcher()
        watcher.placing(sum(1 for _ in compute_nodes(exported_program.graph)))
        start = time.perf_counter()
        placed = GraphPlacement(exported_program, self.options, values, initialised)
        record = placed.record()
        record.seconds = self._seconds + time.perf_counter() - start
        self._seconds = 0.0
        self.placement[self._method_name()] = record
        _log(record.refusals)
        reasons = {node: refusal.reason for node, refusal in placed.refusals.items()}
        if self.options.full_graph:
            require_full_graph(record.refusals)
        require_single_place(placed.buffers, placed.delegate, reasons)
        watcher.placed(record, names_op)
        self._require_kernels(placed)
        if self._plan_only:
            return PartitionResult(exported_program, {})
        restore_ranges(exported_program, self._declared)
        return PartitionResult(exported_program, self._tag(exported_program, placed))

    def _tag(self, program: ExportedProgram, placed: GraphPlacement) -> dict[str, DelegationSpec]:
        for node, number in placed.delegate.items():
            node.meta["delegation_tag"] = f"coreml_{number}"
        if self.options.own_constants:
            tag_constant_data(program)
        for decision in placed.buffers:
            if decision.record.kind == "state":
                decision.buffer.placeholder.meta["delegation_tag"] = f"coreml_{decision.record.partition}"
        return {f"coreml_{number}": self.delegation_spec for number in sorted(set(placed.delegate.values()))}

    def _require_kernels(self, placed: GraphPlacement) -> None:
        missing = [
            node
            for node in placed.cpu_nodes()
            if lacks_kernel(node, self.options.extra_kernels)
            and (self._watcher is not None or not (self.options.is_skipped(op_name(node)) or is_users_own(node)))
        ]
        if missing:
            raise MissingKernelError(
                _missing_message(missing, placed), tuple(placed.refusals[n] for n in missing if n in placed.refusals)
            )

    def _method_name(self) -> str:
        return f"method_{len(self.placement)}" if self.placement else "forward"


def require_full_graph(refusals: Sequence[Refusal]) -> None:
    """Raise if anything was refused, naming every op, its reason and its source line.

    Raises:
        RequirementError: with the refusals.
    """
    if refusals:
        lines = "; ".join(f"{r.op} ({r.source or r.node}): {r.reason}{_about(r)}" for r in refusals)
        raise RequirementError(
            f"lower_full_graph=True, and {len(refusals)} op(s) cannot run on Core ML: {lines}. "
            "lower_full_graph=False runs them outside Core ML",
            tuple(refusals),
        )


def _about(refusal: Refusal) -> str:
    return "".join(f" [{text}]" for text in (refusal.tensor, refusal.evidence) if text)


def _missing_message(nodes: list[torch.fx.Node], placed: GraphPlacement) -> str:
    lines = []
    for node in nodes:
        refusal = placed.refusals.get(node)
        why = f", not on Core ML because {refusal.reason}" if refusal else ""
        lines.append(f"{op_name(node)} ({source_line(node) or node.name}){why}")
    return (
        f"{len(nodes)} op(s) would run on the CPU and ExecuTorch has no kernel for them, so the program could not "
        f"load on a device: {'; '.join(lines)}. Rewrite the op in the model (or do not skip it), or "
        "name it in extra_kernels if your own ExecuTorch build has a kernel"
    )


def _check_arguments(skip_ops: object, state: str, extra_kernels: object) -> None:
    for name, value in (("skip_ops_for_coreml_delegation", skip_ops), ("extra_kernels", extra_kernels)):
        if isinstance(value, str):
            raise InputError(f"{name} is the string {value!r}; expected a list of names")
    if state not in get_args(MutableBufferState):
        expected = ", ".join(get_args(MutableBufferState))
        raise InputError(f"unknown mutable_buffer_state {state!r}; expected one of {expected}")


def _check(options: PartitionOptions, enumerated_shapes: bool) -> None:
    if enumerated_shapes and not options.full_graph:
        raise InputError("enumerated shapes need lower_full_graph=True")
    if not options.full_graph:
        return
    if options.skip_ops:
        raise InputError("lower_full_graph=True excludes skip_ops_for_coreml_delegation: set one of them")
    if not options.own_constants or not options.own_buffers:
        raise InputError("lower_full_graph=True needs take_over_constant_data=True and take_over_mutable_buffer=True")


def _log(refusals: Sequence[Refusal]) -> None:
    for op, reason in dict.fromkeys((r.op, r.reason) for r in refusals):
        logger.info("%s runs outside Core ML: %s", op, reason)


def _check_entry_point() -> ExportedProgram | None:
    """Refuse ExecuTorch's single-program `to_backend`, and warn where ops were decomposed before the partitioner.

    `to_backend(program, partitioner)` looks the backend up by name and takes the first one, the stock one: what it
    would convert is neither checked nor coreproof's. Every other entry point takes the last one. ExecuTorch tells a
    partitioner nothing about its caller, so the stack is asked.

    Returns:
        The program that the caller holds: the partitioner gets a copy of it without values, and numbers that became
        tensors on the way to the edge dialect are known nowhere else.
    """
    frame = inspect.currentframe()
    callers = []
    while frame is not None:
        callers.append(frame)
        frame = frame.f_back
    nearest = next((c for c in callers if c.f_code.co_filename.endswith("backend_api.py")), None)
    if nearest is not None and "method_to_edge_program" not in nearest.f_locals:
        raise InputError(
            "to_backend(program, CoreMLPartitioner(...)) always takes ExecuTorch's own Core ML backend: "
            "use to_edge_transform_and_lower(...) or EdgeProgramManager.to_backend(...)"
        )
    if not any(caller.f_code.co_name == "to_edge_transform_and_lower" for caller in callers):
        logger.warning(
            "to_edge() followed by to_backend() decomposes ops that Core ML has whole, such as attention; "
            "use to_edge_transform_and_lower()"
        )
    real = nearest.f_locals.get("edge_program") if nearest is not None else None
    return real if isinstance(real, ExportedProgram) else None
