"""For the tests of your own models: does it lower, how much of it to Core ML, and does it give the model's values."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from .lowering import Lowered, Model, lower
from .verify.record import Outcome


def assert_lowers(
    model: Model,
    inputs: tuple[Any, ...] | None = None,
    *,
    share: float | None = None,
    delegates: int | None = None,
    outcome: Collection[Outcome] = ("match", "precision"),
    **lower_options: Any,
) -> Lowered:
    """Lower the model and assert what comes out.

    Args:
        model, inputs: as `coreproof.lower` takes them.
        share: the least share of ops on Core ML, 0 to 1.
        delegates: the number of delegates, exactly.
        outcome: the outcomes of the verification that are good enough.
        lower_options: the options of `coreproof.lower`; `on_mismatch` is `keep` unless given, so that a wrong op fails
            the assertion instead of going to the CPU.

    Returns:
        The program, for further assertions.

    Raises:
        AssertionError: one line for each requirement that is not met, with the refusals or the first wrong op.
        CoreproofError: as `coreproof.lower`.
    """
    lowered = lower(model, inputs, **{"on_mismatch": "keep", **lower_options})
    problems = []
    placement, verification = lowered.placement, lowered.verification
    if share is not None and placement.share < share:
        refused = "; ".join(f"{r.op} ({r.source or r.node}): {r.rule}: {r.reason}" for r in placement.refusals)
        problems.append(f"{placement.share:.1%} of the ops are on Core ML; expected at least {share:.1%}: {refused}")
    if delegates is not None and placement.delegates != delegates:
        problems.append(f"{placement.delegates} delegates; expected {delegates}")
    if verification is not None and verification.outcome not in outcome:
        worst = next(check for check in verification.checks if check.outcome == verification.outcome)
        wrong = verification.first_wrong
        where = f"; it begins at {wrong.op} ({wrong.source or wrong.node}): {wrong.evidence}" if wrong else ""
        problems.append(f"{worst.outcome}, expected {' or '.join(outcome)}: {worst.subject}: {worst.what()}{where}")
    if problems:
        raise AssertionError("\n".join(problems))
    return lowered
