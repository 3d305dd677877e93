"""A verification as text for a terminal, and as a JSON document."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Any

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from ..verify.precision import float32_ops
from ..verify.record import OUTCOMES, Check, FirstWrong, Hazard, OutputCheck, Verification
from ..version import __version__

SCHEMA = 1
_STYLES = {"match": "green", "precision": "yellow", "unverified": "yellow", "mismatch": "bold red"}
_MEANINGS = {
    "match": "the program gives the model's values",
    "precision": "the conversion is right; the difference is what the declared precision costs",
    "unverified": "nothing shows that the program gives the model's values",
    "mismatch": "the program gives other values than the model",
}


def verdict(verification: Verification) -> Text:
    """The outcome and what it means, on one line."""
    outcome = verification.outcome
    return Text.assemble((outcome, _STYLES[outcome]), f": {_MEANINGS[outcome]}")


def verification_report(verification: Verification, *, verbose: bool = False) -> Group:
    """The whole report: of each output the metrics in declared mode; `exact` is the greatest difference in exact mode.

    Args:
        verification: as `coreproof.verify_program` returns it.
        verbose: every call of every case, instead of the worst one for each output.
    """
    parts: list[RenderableType] = [verdict(verification)]
    for check in verification.checks:
        parts += [Text(), Text.assemble((check.subject, "bold"), "  ", (check.outcome, _STYLES[check.outcome]))]
        if check.reason:
            parts.append(Padding(Text(check.reason), (0, 0, 0, 2)))
        if check.outputs:
            parts.append(Padding(_outputs(check, verbose), (0, 0, 0, 2)))
        if check.first_wrong is not None:
            parts.append(Padding(_first_wrong(check.first_wrong), (0, 0, 0, 2)))
    costs = precision_costs(verification)
    if costs is not None:
        parts += [Text(), Text("What float16 costs", style="bold"), Padding(costs, (0, 0, 0, 2))]
    return Group(*parts)


def precision_costs(verification: Verification) -> Group | None:
    """What float16 does to which op, and the arguments that keep those ops float32; None where nothing was found."""
    found = [one for check in verification.checks for one in check.hazards]
    if not found:
        return None
    names = ", ".join(f'"{name}"' for name in float32_ops(found))
    fix = Text.assemble(("to keep them float32: ", "bold"), f'compute_precision="mixed", float32_ops=[{names}]')
    return Group(_hazards(found), fix)


def verification_document(verification: Verification, **context: Any) -> dict[str, Any]:
    """The document, made of plain values that `json.dumps` takes; numbers that are not finite are strings.

    Args:
        context: further top-level entries, for instance the command's `file` and `source`.
    """
    return {"schema": SCHEMA, "coreproof": __version__, **context, **verification_entry(verification)}


def verification_entry(verification: Verification) -> dict[str, Any]:
    """The outcome, the seconds and every check."""
    checks = [_plain(asdict(check)) for check in verification.checks]
    for check in checks:
        if check["first_wrong"] is not None:
            del check["first_wrong"]["script"]
    return {"outcome": verification.outcome, "seconds": verification.seconds, "checks": checks}


def _outputs(check: Check, verbose: bool) -> Table:
    table = Table(box=None, padding=(0, 1, 0, 0), header_style="dim")
    for name in ("output", "case"):
        table.add_column(name, overflow="fold")
    for name in ("max abs", "max rel", "mean abs", "SNR dB", "cosine", "exact"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("", overflow="fold")
    for output in check.outputs if verbose else _worst_of_each(check):
        table.add_row(*_row(output))
    return table


def _worst_of_each(check: Check) -> list[OutputCheck]:
    worst: dict[str, OutputCheck] = {}
    for one in check.outputs:
        if one.name not in worst or _badness(one) > _badness(worst[one.name]):
            worst[one.name] = one
    return list(worst.values())


def _badness(output: OutputCheck) -> tuple[int, float]:
    return OUTCOMES.index(output.outcome), output.declared.max_abs if output.declared else math.inf


def _row(output: OutputCheck) -> list[Text]:
    case = output.case if not output.step else f"{output.case}, call {output.step + 1}"
    if output.declared is None or output.exact is None:
        return [Text(output.name), Text(case), *[Text("")] * 6, Text(output.problem or output.outcome)]
    of = output.declared
    numbers = [of.max_abs, of.max_rel, of.mean_abs]
    texts = [f"{number:.2g}" for number in numbers] + [f"{of.snr_db:.1f}", f"{of.cosine:.4f}"]
    texts.append(f"{output.exact.max_abs:.2g}")
    strange = "" if of.nonfinite == (0, 0) else f" ({of.nonfinite[1]} not finite, expected {of.nonfinite[0]})"
    return [Text(output.name), Text(case), *map(Text, texts), Text(output.outcome + strange, _STYLES[output.outcome])]


def _first_wrong(wrong: FirstWrong) -> Text:
    place = f" at {wrong.source}" if wrong.source else ""
    what = f"{wrong.op or wrong.node}{place}, MIL {wrong.mil_op} {wrong.value!r} of delegate {wrong.delegate}"
    errors = dict(wrong.growth)
    grows = ""
    if wrong.value in errors:
        last = wrong.growth[-1][1]
        grows = f"\nrelative to the greatest value, the error is {errors[wrong.value]:.2g} there, {last:.2g} in the end"
    return Text.assemble(("first wrong op: ", "bold"), f"{what}\n{wrong.evidence}{grows}")


def _hazards(found: list[Hazard]) -> Table:
    table = Table(box=None, padding=(0, 1, 0, 0), header_style="dim")
    table.add_column("", no_wrap=True)
    table.add_column("op", overflow="fold")
    table.add_column("where", overflow="fold")
    table.add_column("", overflow="fold")
    for one in found:
        values = f"{one.amount:.0f} value{'' if one.amount == 1 else 's'}"
        amount = f"{one.amount:.0%} of the error" if one.kind == "error" else values
        op = one.op or f"{one.mil_op} of {one.node or one.value}"
        table.add_row(one.kind, op, one.source, f"{amount}: {one.example}")
    return table


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value
