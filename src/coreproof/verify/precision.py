"""What float16 costs a delegate, op by op: overflow, underflow, integers that change, and shares of the final error.

All of it is seen in exact mode, from which declared mode differs by its roundings alone: a value that does not survive
its own rounding is the op's hazard, whatever was lost before it; the share of an op is what the outputs lose where
only its result is rounded.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.fx import Node

from ..errors import CoreproofError
from ..partition.nodes import maker, op_name, source_line
from ..runtime.dtypes import rounded
from ..runtime.in_place import reads
from ..runtime.ir import Function, Operation, TensorType
from ..runtime.ops import find_op
from ..runtime.pte.delegates import CoreMLDelegate
from .delegates import Recording
from .origin import node_of
from .record import Hazard

_MOST_SHARES = 16
_LEAST_SHARE = 0.01
# Runs of the delegate in the search for the greatest shares: so many that they do this many roundings. Each op that is
# found in a thousand takes 20 runs.
_MOST_STEPS, _FEWEST_RUNS, _MOST_RUNS = 20_000, 24, 128
# An underflow counts where it alone moves an output, in the root mean square, by one float16 rounding of the greatest.
_NOTICED = 2.0**-11
_WHOLE = 2048  # up to it float16 holds every integer


def hazards(recording: Recording, case: str) -> list[Hazard]:
    """What float16 costs in one case, overflows first; none where the delegate cannot be run."""
    try:
        delegate = recording.load("exact")
        graph = _Graph(delegate.function, recording.edge)
        costs = _Costs(delegate, [inputs for inputs, _ in recording.runs[case]])
        losses = [loss for value, declared in graph.rounded for loss in _losses(value, declared, costs)]
        shares = costs.shares([value for value, _ in graph.rounded])
        order = ("overflow", "underflow", "integer")
        found = sorted(losses, key=lambda loss: order.index(loss[0]))
        return [
            *(graph.hazard(kind, value, amount, example, recording.name) for kind, value, amount, example in found),
            *(graph.hazard("error", value, share, example, recording.name) for value, share, example in shares),
        ]
    except CoreproofError:
        return []


def float32_ops(found: Sequence[Hazard]) -> list[str]:
    """What `float32_ops` of a lowering would have to name to be rid of the hazards, in their order.

    A value that float16 does not hold must stay float32 in the ops that read it too.
    """
    lost = [one for one in found if one.kind != "error"]
    names = [name for one in lost or found for name in ((one.node,) if one.op else ()) + (one.readers if lost else ())]
    return list(dict.fromkeys(names))


class _Graph:
    """A function with the torch nodes that its values stand for."""

    def __init__(self, function: Function, program: ExportedProgram) -> None:
        self._program, self._opset = program, function.opset
        self._makers = {value.name: op for op in function.body.operations for value in op.outputs}
        self._readers: dict[str, list[Operation]] = {}
        for op in function.body.operations:
            for name in dict.fromkeys(reads(op)):
                self._readers.setdefault(name, []).append(op)
        # The half values of ops that compute, in order, with their types.
        self.rounded = [
            (value.name, value.type)
            for op in function.body.operations
            if op.type not in ("const", "read_state") and not op.type.startswith("constexpr_")
            for value in op.outputs
            if isinstance(value.type, TensorType) and value.type.dtype in ("fp16", "bf16")
            if not self._moves(op)
        ]

    def hazard(self, kind: Any, value: str, amount: float, example: str, delegate: str) -> Hazard:
        node = self._node(value)
        op = op_name(node) if node is not None and node.op == "call_function" else ""
        source = source_line(node) if node is not None else ""
        name, readers = node.name if node is not None else "", tuple(dict.fromkeys(self._reading(value)))
        return Hazard(kind, delegate, self._makers[value].type, value, name, op, source, amount, example, readers)

    def _node(self, value: str) -> Node | None:
        node = node_of(value, self._program)
        return None if node is None else maker(node)

    def _moves(self, op: Operation) -> bool:
        return find_op(op.type, self._opset, op.name).moves_data

    def _reading(self, value: str) -> Iterator[str]:
        """The nodes whose ops read the value, and those that read it from an op which only moves it."""
        for op in self._readers.get(value, ()):
            nodes = [node for made in op.outputs if (node := self._node(made.name)) is not None]
            if op.type == "cast" or not nodes or self._moves(op):
                for made in op.outputs:
                    yield from self._reading(made.name)
            yield from (node.name for node in nodes if op.type != "cast" and node.op == "call_function")


@dataclass
class _Costs:
    """Runs of a delegate on the same calls, with some of its values rounded."""

    delegate: CoreMLDelegate
    calls: list[list[Any]]

    def __post_init__(self) -> None:
        self.delegate.reset()
        self.values = [self.delegate.values(inputs) for inputs in self.calls]
        self._outputs = self._run(())

    def of(self, names: Iterable[str]) -> float:
        """The mean square of what the outputs lose where these values are rounded, over their greatest values."""
        differences = [_mean_square(got, want) for got, want in zip(self._run(names), self._outputs, strict=True)]
        return sum(differences) / max(1, len(differences))

    def shares(self, names: list[str]) -> list[tuple[str, float, str]]:
        """The values whose rounding costs most, with the share of each: the costliest group is halved again and again.

        The whole is the sum over the groups that are left in the end.
        """
        number = itertools.count()
        waiting = [(-self.of(names), next(number), names)] if names else []
        single: list[tuple[float, str]] = []
        runs = max(_FEWEST_RUNS, min(_MOST_RUNS, _MOST_STEPS // max(1, len(names))))
        while waiting and len(single) < _MOST_SHARES and runs > 1:
            cost, _, group = heapq.heappop(waiting)
            if len(group) == 1:
                single.append((-cost, group[0]))
                continue
            for half in (group[: len(group) // 2], group[len(group) // 2 :]):
                heapq.heappush(waiting, (-self.of(half), next(number), half))
            runs -= 2
        whole = sum(cost for cost, _ in single) - sum(cost for cost, _, _ in waiting)
        return [
            (name, cost / whole, f"its rounding alone costs the outputs {cost**0.5:.2g} of their greatest values")
            for cost, name in single
            if cost > _LEAST_SHARE * whole
        ]

    def _run(self, names: Iterable[str]) -> list[torch.Tensor]:
        chosen = frozenset(names)
        self.delegate.reset()
        return [one for inputs in self.calls for one in self.delegate.run(inputs, rounding=chosen)]


def _losses(name: str, declared: TensorType, costs: _Costs) -> Iterator[tuple[str, str, float, str]]:
    """(kind, value, number of positions, example) for what the rounding of one value does not keep, over all calls."""
    found: dict[str, tuple[int, str]] = {}
    for values in costs.values:
        exact = values[name]
        after = rounded(exact, declared.element)
        for kind, lost in _lost(exact, after).items():
            count, example = found.get(kind, (0, ""))
            if bool(lost.any()):
                found[kind] = count + int(lost.sum()), example or _example(exact, after, lost)
    for kind, (count, example) in found.items():
        if kind != "underflow" or costs.of([name]) > _NOTICED**2:
            yield kind, name, count, example


def _lost(exact: torch.Tensor, after: torch.Tensor) -> dict[str, torch.Tensor]:
    finite = torch.isfinite(exact)
    whole = bool((exact[finite] == exact[finite].round()).all())
    changed = finite & (after != exact)
    tiny = (exact != 0) & (exact.abs() < torch.finfo(torch.float16).smallest_normal)
    return {
        "overflow": finite & torch.isinf(after),
        "underflow": tiny & changed,
        "integer": changed & (exact.abs() > _WHOLE) & torch.isfinite(after) & whole,
    }


def _example(exact: torch.Tensor, after: torch.Tensor, lost: torch.Tensor) -> str:
    at = [int(i) for i in lost.nonzero()[0]]
    return f"at {at} {exact[tuple(at)].item():.9g} becomes {after[tuple(at)].item():.9g}"


def _mean_square(got: torch.Tensor, expected: torch.Tensor) -> float:
    """Of the differences over the greatest expected value; one that is not finite counts as the whole of it."""
    if not expected.numel():
        return 0.0
    want, have = expected.double(), got.double()
    size = want.abs().nan_to_num(nan=0.0, posinf=0.0)
    same = (want == have) | (want.isnan() & have.isnan())
    difference = torch.where(same, 0.0, (have - want).abs() / (float(size.max()) or 1.0))
    return float(difference.nan_to_num(nan=1.0, posinf=1.0).clamp(max=1.0).square().mean())
