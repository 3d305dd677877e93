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
from typing import Any, get_args

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
from .record import Hazard, Kind

_MOST_SHARES = 16
_LEAST_SHARE = 0.01
# Runs of the delegate in the search for the greatest shares: so many that they do this many roundings. Each op that is
# found in a thousand takes 20 runs.
_MOST_STEPS, _FEWEST_RUNS, _MOST_RUNS = 20_000, 24, 128
# An underflow counts where it alone moves an output, in the root mean square, by one float16 rounding of the greatest.
_NOTICED = 2.0**-11
_WHOLE = 2048  # up to it float16 holds every integer
_KINDS = get_args(Kind)


def hazards(recording: Recording, case: str) -> list[Hazard]:
    """What float16 costs in one case, overflows first; none where the delegate cannot be run."""
    try:
        delegate = recording.load("exact")
        graph = _Graph(delegate.function, recording.edge)
        costs = _Costs(delegate, [inputs for inputs, _ in recording.runs[case]])
        found = [*costs.losses(graph.rounded), *costs.shares([value for value, _ in graph.rounded])]
        return [graph.hazard(one, recording.name) for one in sorted(found, key=lambda one: _KINDS.index(one.kind))]
    except CoreproofError:
        return []


def float32_ops(found: Sequence[Hazard]) -> list[str]:
    """What `float32_ops` of a lowering would have to name to be rid of the hazards, in their order.

    A value that float16 does not hold must stay float32 in the ops that read it too.
    """
    lost = [one for one in found if one.kind != "error"]
    names = [name for one in lost or found for name in ((one.node,) if one.op else ()) + (one.readers if lost else ())]
    return list(dict.fromkeys(names))


@dataclass
class _Found:
    """A hazard before its nodes are known; `amount` and `example` as in `Hazard`."""

    kind: Kind
    value: str
    amount: float
    example: str


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

    def hazard(self, found: _Found, delegate: str) -> Hazard:
        """The hazard with the nodes of its value and of that value's readers."""
        node = self._node(found.value)
        op = op_name(node) if node is not None and node.op == "call_function" else ""
        source = source_line(node) if node is not None else ""
        return Hazard(
            found.kind,
            delegate,
            self._makers[found.value].type,
            found.value,
            node.name if node is not None else "",
            op,
            source,
            found.amount,
            found.example,
            tuple(dict.fromkeys(self._reading(found.value))),
        )

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
        self._outputs = self._run(())

    def of(self, names: Iterable[str]) -> float:
        """The mean square of what the outputs lose where these values are rounded, over their greatest values."""
        differences = [_mean_square(got, want) for got, want in zip(self._run(names), self._outputs, strict=True)]
        return sum(differences) / max(1, len(differences))

    def losses(self, values: list[tuple[str, TensorType]]) -> list[_Found]:
        """What the rounding of each value does not keep; underflows where they alone move an output noticeably."""
        found: dict[tuple[str, Kind], _Found] = {}
        self.delegate.reset()
        for inputs in self.calls:
            made = self.delegate.values(inputs)
            for name, declared in values:
                after = rounded(made[name], declared.element)
                for kind, lost in _lost(made[name], after).items():
                    if bool(lost.any()):
                        one = found.setdefault((name, kind), _Found(kind, name, 0, _example(made[name], after, lost)))
                        one.amount += int(lost.sum())
        tiny = [name for name, kind in found if kind == "underflow"]
        noticed = {name for _, name in self._costliest(tiny, _NOTICED**2)[0]}
        return [one for one in found.values() if one.kind != "underflow" or one.value in noticed]

    def shares(self, names: list[str]) -> list[_Found]:
        """The values whose rounding costs most, with the share of each in the sum over all."""
        single, whole = self._costliest(names, 0.0)
        return [
            _Found(
                "error",
                name,
                cost / whole,
                f"its rounding alone costs the outputs {cost**0.5:.2g} of their greatest values",
            )
            for cost, name in single
            if cost > _LEAST_SHARE * whole
        ]

    def _costliest(self, names: list[str], least: float) -> tuple[list[tuple[float, str]], float]:
        """The values whose rounding costs more than `least`, the costliest first, and the cost of all together.

        The costliest group is halved again and again; the whole is the sum over the groups that are left in the end.
        """
        number = itertools.count()
        waiting = [(-self.of(names), next(number), names)] if names else []
        single: list[tuple[float, str]] = []
        runs = max(_FEWEST_RUNS, min(_MOST_RUNS, _MOST_STEPS // max(1, len(names))))
        while waiting and len(single) < _MOST_SHARES and runs > 1 and -waiting[0][0] > least:
            cost, _, group = heapq.heappop(waiting)
            if len(group) == 1:
                single.append((-cost, group[0]))
                continue
            for half in (group[: len(group) // 2], group[len(group) // 2 :]):
                heapq.heappush(waiting, (-self.of(half), next(number), half))
            runs -= 2
        return single, sum(cost for cost, _ in single) - sum(cost for cost, _, _ in waiting)

    def _run(self, names: Iterable[str]) -> list[torch.Tensor]:
        chosen = frozenset(names)
        self.delegate.reset()
        return [one for inputs in self.calls for one in self.delegate.run(inputs, rounding=chosen)]


def _lost(exact: torch.Tensor, after: torch.Tensor) -> dict[Kind, torch.Tensor]:
    """By kind, where a value does not survive its rounding."""
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
