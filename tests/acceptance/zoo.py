"""Lowers every model of a zoo, each in a process of its own, and prints one row a model and precision.

    python tests/acceptance/zoo.py --zoo path/to/zoo.py [--only NAME ...] [--precision float16 float32] [--json FILE]
        [--table FILE]

The zoo is a Python file with `ZOO`, a dict of functions that return
`(module, inputs, dynamic_shapes)`. With `--json` the rows are kept in a file
after each model; a model whose rows are there is not run again. The exit code
is 1 where a model that torch.export accepts does not lower, leaves an op
without a kernel, or changes the model's values.
"""

from __future__ import annotations

import argparse
import copy
import importlib.util
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # for pte.py


@dataclass
class Row:
    """What became of one model at one precision.

    `error` starts with the step that failed: export, lower, check or process.
    `difference` is the largest difference between the eager model and the lowered graph with each delegate run by
    its edge program on torch, over the largest eager value; None where it was not measured, or the model samples.
    """

    model: str
    precision: str
    exported: bool = False
    delegates: int = 0
    nodes: int = 0
    on_coreml: int = 0
    refusals: list[tuple[str, str, dict[str, int]]] = field(default_factory=list)
    buffers: dict[str, int] = field(default_factory=dict)
    missing_kernels: list[str] = field(default_factory=list)
    difference: float | None = None
    seconds: float = 0.0
    error: str = ""

    @property
    def passed(self) -> bool:
        return not self.error and not self.missing_kernels

    @property
    def acceptable(self) -> bool:
        return self.passed or self.error.startswith("export: ")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--zoo", type=Path, required=True, help="the Python file with ZOO")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="the models to run (all)")
    parser.add_argument("--precision", nargs="+", choices=("float16", "float32"), default=["float16", "float32"])
    parser.add_argument("--json", type=Path, help="file that keeps the rows; rows already there are not run again")
    parser.add_argument("--table", type=Path, help="file to write the rows to as a Markdown table")
    parser.add_argument("--jobs", type=int, default=2, help="processes at a time (2)")
    parser.add_argument("--timeout", type=float, default=900, help="seconds a model may take (900)")
    parser.add_argument("--memory", type=float, default=10, help="GiB of address space a process may use (10)")
    parser.add_argument("--worker", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if not options.zoo.is_file():
        parser.error(f"no such file: {options.zoo}")
    if options.worker:
        (name,) = options.only
        limit = int(options.memory * 2**30)
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        work(load_zoo(options.zoo)[name], name, options.precision, options.worker)
        return 0

    known = list(load_zoo(options.zoo))
    names = options.only or known
    if unknown := sorted(set(names) - set(known)):
        parser.error(f"not in the zoo: {', '.join(unknown)}")
    rows = read(options.json) if options.json and options.json.is_file() else []
    done = {(row.model, row.precision) for row in rows}
    with ThreadPoolExecutor(options.jobs) as pool:
        todo = {name: [p for p in options.precision if (name, p) not in done] for name in names}
        jobs = [pool.submit(run, name, precisions, options) for name, precisions in todo.items() if precisions]
        for job in as_completed(jobs):
            rows += job.result()
            print(*map(describe, job.result()), sep="\n", flush=True)
            if options.json:
                options.json.write_text(json.dumps([asdict(row) for row in rows], indent=1), encoding="utf-8")

    chosen = [row for row in rows if row.model in names and row.precision in options.precision]
    chosen.sort(key=lambda row: (known.index(row.model), row.precision))
    report(chosen)
    if options.table:
        options.table.write_text(table(chosen), encoding="utf-8")
    return 0 if all(row.acceptable for row in chosen) else 1


def load_zoo(path: Path) -> dict[str, Callable[[], tuple]]:
    spec = importlib.util.spec_from_file_location("coreproof_zoo", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module.ZOO


def read(path: Path) -> list[Row]:
    return [Row(**row) for row in json.loads(path.read_text(encoding="utf-8"))]


def run(name: str, precisions: list[str], options: argparse.Namespace) -> list[Row]:
    """The rows of one model, from a process of its own; a precision that it never reached gets a row that says why."""
    with tempfile.TemporaryDirectory() as scratch:
        out = Path(scratch) / "rows.jsonl"
        command = [sys.executable, __file__, "--zoo", str(options.zoo), "--only", name]
        command += ["--memory", str(options.memory), "--worker", str(out), "--precision", *precisions]
        try:
            process = subprocess.run(command, timeout=options.timeout, capture_output=True, text=True, check=False)
            lines = process.stderr.strip().splitlines()
            ending = f"process: exit code {process.returncode}: {lines[-1] if lines else ''}"
        except subprocess.TimeoutExpired:
            ending = f"process: took more than {options.timeout:g} s"
        text = out.read_text(encoding="utf-8") if out.is_file() else ""
    rows = [Row(**json.loads(line)) for line in text.splitlines()]
    reached = {row.precision for row in rows}
    return rows + [Row(name, precision, error=ending) for precision in precisions if precision not in reached]


def work(build: Callable[[], tuple], name: str, precisions: list[str], out: Path) -> None:
    """In the process of one model: export once, lower at each precision, append each row to `out` at once."""
    import torch

    torch.set_num_threads(1)
    module, inputs, dynamic_shapes = build()
    program, refused = export(module, inputs, dynamic_shapes)
    with torch.no_grad():
        # A copy, for the buffers of `program.module()` are the program's own: a call would change its initial state.
        expected = None if program is None else copy.deepcopy(program).module()(*inputs)
    for precision in precisions:
        row = Row(name, precision, exported=program is not None, error=refused)
        start = time.perf_counter()
        if program is not None:
            lower_into(row, program, inputs, expected)
        row.seconds = round(time.perf_counter() - start, 1)
        with out.open("a", encoding="utf-8") as file:
            file.write(json.dumps(asdict(row)) + "\n")


def export(module: Any, inputs: tuple, dynamic_shapes: Any) -> tuple[Any, str]:
    """(exported program, ""), or (None, why torch.export refuses); strict export is tried second, as `lower` does."""
    import torch

    try:
        program = torch.export.export(module, inputs, dynamic_shapes=dynamic_shapes)
        with torch.no_grad():
            program.run_decompositions({})
        return program, ""
    except Exception as refused:
        try:
            return torch.export.export(module, inputs, dynamic_shapes=dynamic_shapes, strict=True), ""
        except Exception:
            return None, f"export: {brief(refused)}"


def lower_into(row: Row, program: Any, inputs: tuple, expected: Any) -> None:
    """Lower `program` and fill the row: what is where, what has no kernel, and whether a value changed."""
    from pte import delegates, missing_kernels

    import coreproof
    from coreproof.verify.lowered_graph import run_lowered

    try:
        lowered = coreproof.lower(program, inputs, compute_precision=row.precision)
    except Exception as failed:
        row.error = f"lower: {brief(failed)}"
        return
    method = lowered.placement["forward"]
    row.nodes, row.on_coreml = len(method.nodes), method.on_coreml
    row.refusals = [(rule, reason, dict(ops)) for rule, reason, ops, _ in method.refusals_by_reason()]
    for buffer in method.buffers:
        row.buffers[buffer.kind] = row.buffers.get(buffer.kind, 0) + 1
    row.delegates = len(delegates(lowered.pte))
    row.missing_kernels = sorted(missing_kernels(lowered.pte))
    if draws_random_numbers(program):
        return
    try:
        row.difference = difference(expected, run_lowered(lowered.edge_program_manager, inputs))
    except Exception as failed:
        row.error = f"check: {brief(failed)}"
        return
    if row.difference > (5e-2 if any_bfloat16(program) else 1e-4):
        row.error = f"check: values differ by {row.difference:.2g} of the largest"


def difference(expected: Any, got: list) -> float:
    """The largest |expected - got| over the largest |expected|, over all outputs; infinite where NaN or inf differ."""
    import torch
    from torch.utils import _pytree as pytree

    worst = 0.0
    for want, have in zip(pytree.tree_leaves(expected), got, strict=True):
        want, have = torch.as_tensor(want).double(), torch.as_tensor(have).double()
        if want.shape != have.shape or not torch.equal(want.isfinite(), have.isfinite()):
            return float("inf")
        finite = want.isfinite()
        if finite.any():
            scale = max(want[finite].abs().max().item(), 1e-6)
            worst = max(worst, (want - have)[finite].abs().max().item() / scale)
    return worst


def draws_random_numbers(program: Any) -> bool:
    """Whether the model samples, so that no two runs have the same values (`difference` is then not measured)."""
    return any(is_random(node) for node in program.graph.nodes)


def is_random(node: Any) -> bool:
    """Whether the node draws numbers; attention and dropout have torch's tag for it even where they drop nothing."""
    import torch

    if torch.Tag.nondeterministic_seeded not in getattr(node.target, "tags", ()):
        return False
    given = dict(zip((a.name for a in node.target._schema.arguments), node.args, strict=False)) | node.kwargs
    if "scaled_dot_product" in node.target._schema.name:
        return bool(given.get("dropout_p", 0))
    return bool(given.get("train", True))


def any_bfloat16(program: Any) -> bool:
    """Whether the model computes in bfloat16, whose rounding the rewrites may spare."""
    import torch

    return any(getattr(node.meta.get("val"), "dtype", None) == torch.bfloat16 for node in program.graph.nodes)


def brief(error: BaseException) -> str:
    """The exception's type and the first line of its message that is not empty."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0] if lines else ''}"[:600]


def describe(row: Row) -> str:
    if not row.exported:
        state = "not exported" if row.error.startswith("export") else "FAILED"
    else:
        state = "ok" if row.passed else "FAILED"
    share = f"{row.on_coreml / row.nodes:6.1%}" if row.nodes else "     -"
    change = "-" if row.difference is None else f"{row.difference:.1e}"
    return (
        f"{row.model:32} {row.precision} {state:12} {row.delegates:3} delegates "
        f"{row.on_coreml:5}/{row.nodes:<5} {share}  difference {change:8} {row.seconds:6.1f} s"
    )


def report(rows: list[Row]) -> None:
    """One line a row, with its failure, its ops without kernels and its refusals below; then the counts."""
    print()
    for row in rows:
        print(describe(row))
        if row.error:
            print(f"      {row.error}")
        if row.missing_kernels:
            print(f"      no kernel: {', '.join(row.missing_kernels)}")
        if row.buffers:
            print(f"      buffers: {', '.join(f'{count} {kind}' for kind, count in sorted(row.buffers.items()))}")
        for rule, reason, ops in row.refusals:
            named = ", ".join(f"{op} x{count}" for op, count in sorted(ops.items()))
            print(f"      {sum(ops.values()):3} on the CPU: [{rule}] {reason}: {named}")
    exported = [row for row in rows if row.exported]
    passed = sum(row.passed for row in exported)
    print(f"\n{len(rows)} rows, {len(exported)} exported, {passed} of those lowered with a kernel for every CPU op")


def table(rows: list[Row]) -> str:
    """The rows in Markdown: delegates, share on Core ML, difference from eager, and what runs on the CPU and why."""
    lines = [
        "# What becomes of real models",
        "",
        "Written by `python tests/acceptance/zoo.py --zoo ZOO --table docs/zoo.md`. Ops: those on Core ML of all.",
        "Difference: the largest between eager torch and the lowered graph (a delegate runs its edge program), over",
        "the largest eager value; models that sample have none.",
        "",
        "| model | precision | delegates | ops | share | difference | on the CPU |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        if row.error:
            lines.append(f"| {row.model} | {row.precision} | | | | | {row.error.replace('|', '/')} |")
            continue
        refused = "; ".join(
            f"{', '.join(f'{op} x{count}' for op, count in sorted(ops.items()))} [{rule}]"
            for rule, _, ops in row.refusals
        )
        share = f"{row.on_coreml / row.nodes:.1%}" if row.nodes else ""
        difference = "" if row.difference is None else f"{row.difference:.1e}"
        cells = (row.model, row.precision, row.delegates, f"{row.on_coreml}/{row.nodes}", share, difference, refused)
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
