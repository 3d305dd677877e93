from __future__ import annotations

import ast
import importlib
import inspect
import re
from pathlib import Path

from coreproof.partition.quirks import QUIRKS

CHECK = importlib.import_module("coreproof.runtime.check")  # the package's name `check` is the function
ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "refusals.md").read_text()
RULE = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")


def op_rules() -> str:
    """The source of the rules of `coreproof check` that the partitioner asks about one op."""
    return "\n".join(inspect.getsource(rule) for rule in CHECK._OP_RULES) + inspect.getsource(CHECK._power_of_two)


def rules_in_code() -> set[str]:
    """The first text argument of each `Verdict`, `Quirk` and `refusal` call, and what a function `_refusal` returns.

    Of the rules of `coreproof check` those about one op.
    """
    found = []
    texts = [path.read_text() for path in (ROOT / "src" / "coreproof" / "partition").glob("*.py")]
    for text in (*texts, op_rules()):
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") in (
                "Verdict",
                "Quirk",
                "refusal",
                "Finding",
            ):
                found.append(node.args)
            elif isinstance(node, ast.FunctionDef) and node.name == "_refusal":
                returns = [n.value for n in ast.walk(node) if isinstance(n, ast.Return)]
                found += [value.elts for value in returns if isinstance(value, ast.Tuple)]
    texts = [[a.value for a in args if isinstance(a, ast.Constant) and isinstance(a.value, str)] for args in found]
    return {text[0] for text in texts if text and RULE.fullmatch(text[0])}


def rows() -> dict[str, str]:
    return dict(re.findall(r"^\| `([^`]+)` \| (.*) \|$", PAGE, re.MULTILINE))


def test_the_page_has_a_row_for_every_rule_and_no_other():
    assert {"user-skip", "no-converter", "boundary-dtype", "rank"} <= rules_in_code()
    assert set(rows()) == rules_in_code()


def test_every_row_is_complete_and_names_the_sources_of_its_rule():
    for rule, row in rows().items():
        cells = [cell.strip() for cell in row.split(" | ")]
        assert len(cells) == 3 and all(cells), rule
    for quirk in QUIRKS:
        assert f"| {quirk.source} |" in rows()[quirk.rule], quirk.rule
