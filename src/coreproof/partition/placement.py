"""From a verdict for each node to the placement of the whole graph.

A node runs on Core ML if it can alone, and if nothing that crosses the border
of its delegate is something that Core ML cannot take or return. Taking a node
off Core ML moves borders, so the two are repeated until nothing changes; the
set only shrinks.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator

import coremltools as ct
import sympy
import torch
from torch.export import ExportedProgram
from torch.fx import Node

from ..convert.scope import conversion
from .attempt import INSIDE_ONLY, MIL_DTYPES, NARROWED, Attempts, Verdict
from .levels import levels
from .nodes import (
    asks_for_layout,
    branch_nodes,
    compute_nodes,
    describe,
    dtype_name,
    is_getitem,
    is_in_order,
    is_symbol,
    module_path,
    op_name,
    source_line,
    tensors,
)
from .options import PartitionOptions
from .program_view import ProgramView
from .quirks import quirk_of
from .record import MethodPlacement, Narrowing, NodePlacement, Partition, Refusal, Unproven
from .state import BufferDecision, place_buffers

_IN_A_BRANCH = Verdict(
    False, "control-flow", "it lies in a subgraph of control flow, which coremltools does not convert"
)


class GraphPlacement:
    """Where each node of one program runs.

    Attributes:
        view: the program.
        branches: the ops inside subgraphs of control flow, all on the CPU.
        delegate: number of the delegate for each node on Core ML (getitems and sizes included).
        refusals: why, for each op that is not.
        buffers: where each mutable buffer lives.

    Raises:
        ConverterBug: a converter of coreproof's own broke.
    """

    def __init__(
        self,
        program: ExportedProgram,
        options: PartitionOptions,
        small_values: dict[str, torch.Tensor],
        initialised: frozenset[str] = frozenset(),
    ) -> None:
        self.options = options
        self.view = ProgramView(program, small_values, options.own_constants)
        self.sizes = {node for node in self.view.graph.nodes if is_symbol(node)}
        self.attempts = Attempts(options.target, options.use_cache)
        self.refusals: dict[Node, Refusal] = {}
        self._unproven: dict[Node, str] = {}
        self.delegate: dict[Node, int] = {}
        self.branches = branch_nodes(self.view.graph)
        for node in self.branches:
            if _is_op(node):
                self._refuse(node, _IN_A_BRANCH)
        with conversion():  # once, not for each attempt
            self._place()
        self.buffers: list[BufferDecision] = place_buffers(
            self.view, self.delegate, options, self._returning(), initialised
        )

    # ------------------------------------------------------------------ deciding

    def _place(self) -> None:
        on_coreml: set[Node] = set()
        constant: set[Node] = set()
        for node in compute_nodes(self.view.graph):
            if self._accept(node, on_coreml, constant):
                on_coreml.add(node)
                if self._folds(node, constant):
                    constant.add(node)
        while True:
            self.delegate = levels(self.view.graph, on_coreml, self._floating(constant))
            refused = dict(self._refused_at_borders(constant))
            if not refused:
                return
            for node, verdict in refused.items():
                on_coreml.discard(node)
                self._refuse(node, verdict)
            self._drop_getitems(on_coreml)
            constant &= on_coreml

    def _accept(self, node: Node, on_coreml: set[Node], constant: set[Node]) -> bool:
        if is_getitem(node):
            return node.args[0] in on_coreml
        verdict = self._verdict_alone(node, on_coreml, constant)
        if not verdict.ok:
            self._refuse(node, verdict)
        elif verdict.reason:
            self._unproven[node] = verdict.reason
        return verdict.ok

    def _verdict_alone(self, node: Node, on_coreml: set[Node], constant: set[Node]) -> Verdict:
        if self.options.is_skipped(op_name(node)):
            return Verdict(False, "user-skip", "you asked to keep it off Core ML")
        wrong = self.options.refused.get(node.name) or self.options.refused.get(op_name(node))
        if wrong:
            return Verdict(False, "verified-wrong", wrong)
        if any(operand.op == "get_attr" for operand in node.all_input_nodes):
            return Verdict(False, "control-flow", "it calls subgraphs, which coremltools does not convert")
        if asks_for_layout(node):
            return Verdict(False, "boundary-layout", "it lays its result out otherwise than in order")
        quirk = quirk_of(node)
        if quirk is not None:
            return Verdict(False, quirk.rule, f"{quirk.reason} ({quirk.source})")
        for operand in node.all_input_nodes:
            if operand not in on_coreml and not self.view.is_owned(operand):
                outside = _why_not_from_outside(operand)
                if outside is not None:
                    return outside
        return self.attempts.verdict(node, self.view, on_coreml, constant)

    def _folds(self, node: Node, constant: set[Node]) -> bool:
        return not self.view.is_random(node) and all(
            self.view.is_owned(i) or i in constant for i in node.all_input_nodes
        )

    def _floating(self, constant: set[Node]) -> set[Node]:
        """What may run as late as it is used. A node that makes several tensors stays where its getitems are."""
        alone = {n for n in constant if not is_getitem(n) and isinstance(n.meta.get("val"), torch.Tensor)}
        return alone | self.sizes

    def _drop_getitems(self, on_coreml: set[Node]) -> None:
        for node in [n for n in on_coreml if is_getitem(n) and n.args[0] not in on_coreml]:
            on_coreml.discard(node)

    def _refuse(self, node: Node, verdict: Verdict) -> None:
        self.refusals[node] = Refusal(
            verdict.rule,
            verdict.reason,
            op_name(node),
            node.name,
            source_line(node),
            module_path(node),
            verdict.tensor,
            verdict.evidence,
        )

    # ------------------------------------------------------------------ borders

    def _refused_at_borders(self, constant: set[Node]) -> Iterator[tuple[Node, Verdict]]:
        for number, nodes in self.partitions().items():
            members = set(nodes)
            inputs = self.inputs_of(nodes, members)
            if not any(tensors(i) for i in inputs) and self.options.effective_target < ct.target.iOS18:
                reason = "its partition has no inputs, which needs iOS 18 (ct#2578)"
                yield from ((n, Verdict(False, "no-inputs", reason)) for n in nodes if not is_getitem(n))
                continue
            if not inputs and self._only_feeds_cpu(nodes, members):
                reason = "its value is constant and only ops on the CPU use it"
                yield from ((n, Verdict(False, "constant-for-cpu", reason)) for n in nodes if not is_getitem(n))
                continue
            for operand in inputs:
                verdict = _why_not_an_input(operand, self.view.is_laid_out(operand))
                if verdict is not None:
                    yield from ((_producer(n), verdict) for n in nodes if operand in n.all_input_nodes)
            for node in self._outputs_of(nodes, members):
                verdict = _why_not_an_output(node, self.view.is_laid_out(node))
                if verdict is not None:
                    yield _producer(node), verdict
            yield from self._refused_without_constants(number, nodes, constant)

    def _refused_without_constants(
        self, number: int, nodes: list[Node], constant: set[Node]
    ) -> Iterator[tuple[Node, Verdict]]:
        """Nodes that need an operand to be constant which another delegate, or the CPU, computes."""
        near = {c for c in constant if self.delegate.get(c) == number}
        for node in nodes:
            far = any(i in constant and i not in near for i in node.all_input_nodes)
            if far and not is_getitem(node):
                verdict = self._verdict_alone(node, set(self.delegate), near)
                if not verdict.ok:
                    yield node, verdict

    def partitions(self) -> dict[int, list[Node]]:
        """The nodes of each delegate, in graph order."""
        found: dict[int, list[Node]] = defaultdict(list)
        for node in self.view.graph.nodes:
            if node in self.delegate:
                found[self.delegate[node]].append(node)
        return dict(sorted(found.items()))

    def inputs_of(self, nodes: list[Node], members: set[Node]) -> list[Node]:
        """What the delegate gets from outside: everything that its nodes read but neither make nor own."""
        found = dict.fromkeys(i for n in nodes for i in n.all_input_nodes)
        return [i for i in found if i not in members and not self.view.is_owned(i) and i.op != "get_attr"]

    def _returning(self) -> set[int]:
        """The delegates that return something else than new values of buffers: a Core ML program needs an output."""
        updates = {buffer.update for buffer in self.view.buffers}
        returned = self.view.user_outputs
        return {
            number
            for number, nodes in self.partitions().items()
            for node in self._outputs_of(nodes, set(nodes))
            if node not in updates or node in returned or any(u.op != "output" and u not in nodes for u in node.users)
        }

    def _outputs_of(self, nodes: list[Node], members: set[Node]) -> list[Node]:
        return [n for n in nodes if n in self.view.outputs or any(u not in members for u in n.users)]

    def _only_feeds_cpu(self, nodes: list[Node], members: set[Node]) -> bool:
        users = {user for n in self._outputs_of(nodes, members) for user in n.users} - members
        return all(user.op == "call_function" and user not in self.delegate for user in users)

    # ------------------------------------------------------------------ the record

    def cpu_nodes(self) -> list[Node]:
        """The ops that are left to the CPU, arithmetic on sizes included, in graph order (no getitems).

        Those inside branches of control flow come last.
        """
        left = (n for n in compute_nodes(self.view.graph) if n not in self.delegate)
        return [n for n in (*left, *self.branches) if not is_getitem(n)]

    def record(self) -> MethodPlacement:
        """The placement as plain values."""
        ops = [n for n in (*compute_nodes(self.view.graph), *self.branches) if _is_op(n)]
        return MethodPlacement(
            nodes=[
                NodePlacement(n.name, op_name(n), self.delegate.get(n), source_line(n), module_path(n)) for n in ops
            ],
            partitions=[self._partition(number, nodes) for number, nodes in self.partitions().items()],
            refusals=[self.refusals[n] for n in ops if n in self.refusals],
            buffers=[decision.record for decision in self.buffers],
            narrowings=[found for n in ops if n in self.delegate for found in _narrowings(n)],
            unproven=[
                Unproven(n.name, op_name(n), why, source_line(n))
                for n, why in self._unproven.items()
                if n in self.delegate
            ],
        )

    def _partition(self, number: int, nodes: list[Node]) -> Partition:
        members = set(nodes)
        states = {d.buffer.placeholder for d in self.buffers if d.record.kind == "state"}
        inputs = [i for i in self.inputs_of(nodes, members) if i not in states]
        return Partition(
            id=number,
            ops=sum(_is_op(n) for n in nodes),
            inputs=tuple(describe(i) for i in inputs),
            outputs=tuple(describe(n) for n in self._outputs_of(nodes, members)),
        )


def _is_op(node: Node) -> bool:
    return not is_getitem(node) and not is_symbol(node)


def _producer(node: Node) -> Node:
    return node.args[0] if is_getitem(node) else node


def _why_not_an_input(operand: Node, laid_out: bool) -> Verdict | None:
    """Why no delegate can get `operand` from outside, or None."""

    def refusal(rule: str, what: str) -> Verdict:
        return Verdict(False, rule, f"it reads {what} from outside Core ML", describe(operand))

    if is_symbol(operand):
        return refusal("size-input", "a size, which is no tensor,")
    for value in tensors(operand):
        if any(isinstance(s, torch.SymInt) and not isinstance(s.node.expr, sympy.Symbol) for s in value.shape):
            return refusal("boundary-size", "a tensor whose size is computed from other sizes")
        if laid_out and not is_in_order(value):
            return refusal("boundary-layout", f"a tensor laid out as {tuple(value.dim_order())}, not in order,")
    return _why_not_from_outside(operand)


def _why_not_from_outside(operand: Node) -> Verdict | None:
    """The part of `_why_not_an_input` that is the operand's dtype."""
    for value in tensors(operand):
        name = dtype_name(value.dtype)
        if value.dtype in INSIDE_ONLY:
            reason = f"it reads a {name} tensor from outside Core ML, which takes none (ct#2495, ort#28595)"
            return Verdict(False, "boundary-dtype", reason, describe(operand))
        if value.dtype not in MIL_DTYPES:
            return Verdict(False, "dtype", f"Core ML has no {name} tensors", describe(operand))
    return None


def _why_not_an_output(node: Node, laid_out: bool) -> Verdict | None:
    if is_symbol(node):
        return Verdict(False, "size-output", "its size is used outside Core ML, which returns tensors only")
    for value in tensors(node):
        if value.dtype in INSIDE_ONLY:
            reason = (
                f"it makes a {dtype_name(value.dtype)} tensor for use outside Core ML, which returns none (et#24317)"
            )
            return Verdict(False, "boundary-dtype", reason, describe(node))
        if laid_out and not is_in_order(value):
            reason = f"it makes a tensor laid out as {tuple(value.dim_order())} for use outside Core ML, not in order"
            return Verdict(False, "boundary-layout", reason, describe(node))
    return None


def _narrowings(node: Node) -> Iterable[Narrowing]:
    for value in tensors(node)[:1]:
        if value.dtype in NARROWED:
            yield Narrowing(
                node.name,
                op_name(node),
                dtype_name(value.dtype),
                dtype_name(NARROWED[value.dtype]),
                source_line(node),
            )
