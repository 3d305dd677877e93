"""What was verified and what came out: plain values, that can be kept, compared, printed and written as JSON."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

Kind: TypeAlias = Literal["overflow", "underflow", "integer", "error"]
Outcome: TypeAlias = Literal["match", "precision", "mismatch", "unverified"]

# From the best to the worst: the outcome of several checks is the worst of theirs.
OUTCOMES: tuple[Outcome, ...] = ("match", "precision", "unverified", "mismatch")


def worst(outcomes: Iterable[Outcome]) -> Outcome:
    """The worst of several outcomes; `unverified` where there is none, for nothing was shown."""
    return max(outcomes, key=OUTCOMES.index, default="unverified")


@dataclass(frozen=True)
class Metrics:
    """How far a tensor is from the expected one.

    Positions where both hold the same infinity, or both NaN, count as equal; where one is finite and the other is
    not the error is infinite.

    Attributes:
        max_abs: the greatest absolute difference.
        max_rel: the greatest difference relative to the expected value at that position (inf where that is 0).
        mean_abs: the mean absolute difference.
        snr_db: 10 log10(sum expected² / sum difference²), in decibels; inf where equal.
        cosine: of the angle between the two, as flat vectors; 1.0 where both are zero.
        nonfinite: how many positions hold NaN or infinity in the expected tensor and in the one at hand.
    """

    max_abs: float
    max_rel: float
    mean_abs: float
    snr_db: float
    cosine: float
    nonfinite: tuple[int, int]


@dataclass(frozen=True)
class OutputCheck:
    """One output of one call.

    Attributes:
        name: of the output, or its position as `output 0`; a mutable buffer's new value as `buffer cache`.
        case: which inputs: `example`, or `variation 1` and so on.
        step: number of the call in a sequence that shares its state, from 0.
        outcome: what follows from the metrics and the tolerance.
        exact: the program in exact mode against eager torch; None where they cannot be compared.
        declared: the program in declared mode against eager torch; None where it was not run or compared.
        problem: what is wrong beside the values (dtype, shape, a missing output), or "".
        settled: False where the rounding of float16 constants could explain a difference in exact mode, which only a
            look at each op alone can tell from a wrong conversion.
    """

    name: str
    case: str
    step: int
    outcome: Outcome
    exact: Metrics | None = None
    declared: Metrics | None = None
    problem: str = ""
    settled: bool = True


@dataclass(frozen=True)
class FirstWrong:
    """The first op whose own error, given eager torch's inputs, exceeds the tolerance.

    Attributes:
        delegate: which one holds it, as `forward/0` (method and number).
        mil_op: type of the MIL op, as `gelu`.
        value: name of the MIL value.
        node: name of the torch node that the value stands for.
        op: that node's op, as `aten.gelu.default`.
        source: `file.py:12` of the user's own code, or "".
        evidence: one sentence: where, expected and got.
        own: the op's own error; None where a rule of `coreproof check` names it.
        growth: (MIL value, max_abs error relative to the greatest expected value) along the program, in order.
        script: makes a self-contained Python script that shows the fault; None where no op is wrong by itself.
    """

    delegate: str
    mil_op: str
    value: str
    node: str
    op: str
    source: str
    evidence: str
    own: Metrics | None
    growth: tuple[tuple[str, float], ...] = ()
    script: Callable[[], str] | None = field(default=None, repr=False, compare=False)


@dataclass(frozen=True)
class Hazard:
    """What float16 does to one op's result.

    Attributes:
        kind: `overflow` (finite in float32, infinite in float16), `underflow` (lost below 2**-24 or its
            neighbourhood), `integer` (an integer above 2048 changed), `error` (it contributes most to the final error).
        mil_op, value, node, op, source: as in `FirstWrong`.
        amount: how many positions, or for `error` the share of the final error, 0 to 1: the squared error that the
            rounding of this op alone makes in the outputs, over the sum of those of all ops.
        example: one sentence with a value before and after.
        readers: the torch nodes whose ops read the value.
    """

    kind: Kind
    delegate: str
    mil_op: str
    value: str
    node: str
    op: str
    source: str
    amount: float
    example: str
    readers: tuple[str, ...] = ()


@dataclass
class Check:
    """One finished thing that was held against what it was made from.

    Attributes:
        subject: `program forward`, or `delegate forward/0`.
        outcome: the worst of its outputs', or `unverified`.
        outputs: every output of every call.
        reason: why it is unverified or wrong beside the values (a rule of `coreproof check`, say), or "".
        first_wrong: on a mismatch, where it comes from, if that was found.
        hazards: where declared and exact differ, what float16 costs.
    """

    subject: str
    outcome: Outcome
    outputs: list[OutputCheck] = field(default_factory=list)
    reason: str = ""
    first_wrong: FirstWrong | None = None
    hazards: list[Hazard] = field(default_factory=list)

    @property
    def is_settled(self) -> bool:
        """Whether every output is."""
        return all(one.settled for one in self.outputs)

    def with_settled(self, right: bool) -> Check:
        """The check after each op was looked at: what was not settled keeps its outcome where all were `right`.

        Otherwise it is `precision` at best: the rounding of constants may explain it, and nothing shows that it does.
        """
        outputs = [replace(one, settled=True) if right else _doubted(one) for one in self.outputs]
        outcomes = [one.outcome for one in outputs] + (["unverified"] if self.outcome == "unverified" else [])
        return replace(self, outcome=worst(outcomes), outputs=outputs)

    def what(self) -> str:
        """In one clause: the reason, or the worst output and how far it is off."""
        worst = [one for one in self.outputs if one.outcome == self.outcome]
        if self.reason or not worst:
            return self.reason or self.outcome
        first = max(worst, key=lambda one: one.exact.max_abs if one.exact else float("inf"))
        where = f"{first.name} ({first.case}, call {first.step})"
        if first.problem or first.exact is None:
            return f"{where}: {first.problem}"
        return f"{where} is off by up to {first.exact.max_abs:.3g} (SNR {first.exact.snr_db:.1f} dB)"


def _doubted(output: OutputCheck) -> OutputCheck:
    return output if output.settled else replace(output, settled=True, outcome=worst((output.outcome, "precision")))


@dataclass
class Verification:
    """Every check of one program; `seconds` is the time that they took."""

    checks: list[Check] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def outcome(self) -> Outcome:
        """The worst outcome of all checks."""
        return worst(check.outcome for check in self.checks)

    @property
    def first_wrong(self) -> FirstWrong | None:
        """The first wrong op of the first check that found one."""
        return next((check.first_wrong for check in self.checks if check.first_wrong), None)
