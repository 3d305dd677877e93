"""Runs ExecuTorch's own Core ML tests, from the installed package, with coreproof's partitioner in place of theirs.

    python tests/acceptance/stock_tests.py [test_torch_ops.py ...]

Each side (stock, coreproof) is one pytest process. Printed is every test that
does not pass on both, with the error's first line; the exit code is 1 where
coreproof fails a test that the stock partitioner passes, unless `INTENDED`
says why. Tests that would download trained weights keep random ones, on both
sides.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
SIDES = ("stock", "coreproof")

# Tests of the stock partitioner's behaviour that coreproof does not share on purpose, and why.
INTENDED = {
    "test_coreml_partitioner.py::TestCoreMLPartitioner::test_deprecation_warning_for_to_backend_workflow": (
        "reads ExecuTorch's own logger, where coreproof does not write"
    ),
    "test_torch_ops.py::TestTorchOps::test_dequantize_affine_below_ios18_raises_with_hint": (
        "wants a ValueError that names CoreMLPartitioner; coreproof's error says the target too, in its own words"
    ),
}


@dataclass
class Outcome:
    """How one test ended: passed, failed, skipped or crashed (the process died in it)."""

    result: str
    error: str = ""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", nargs="*", help="names of the test files to run (all of them)")
    parser.add_argument("--keyword", "-k", default="", help="pytest's expression that selects tests")
    parser.add_argument("--stock", type=Path, help="outcomes of the stock side: read if the file exists, else written")
    options = parser.parse_args()

    folder = installed_tests()
    files = [folder / name for name in options.files] or sorted(folder.glob("test_*.py"))
    missing = [path.name for path in files if not path.is_file()]
    if missing:
        parser.error(f"no such test file in {folder}: {', '.join(missing)}")

    with tempfile.TemporaryDirectory() as scratch:
        paths = {side: Path(scratch) / f"{side}.jsonl" for side in SIDES}
        paths["stock"] = options.stock or paths["stock"]
        for side in SIDES:
            if side == "coreproof" or not paths[side].is_file():
                run(side, files, paths[side], options.keyword)
        stock, ours = (read(paths[side]) for side in SIDES)
    return report(stock, ours)


def installed_tests() -> Path:
    """The folder of ExecuTorch's Core ML tests."""
    (package,) = importlib.util.find_spec("executorch").submodule_search_locations
    return Path(package) / "backends/apple/coreml/test"


def run(side: str, files: list[Path], outcomes: Path, keyword: str) -> None:
    """Run the tests with one side's partitioner; the outcomes are in the file, pytest's own output is discarded."""
    print(f"running {len(files)} files with the {side} partitioner ...", file=sys.stderr, flush=True)
    given = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    search = os.pathsep.join([str(HERE), *map(os.path.abspath, given)])  # pytest runs in another folder
    with tempfile.TemporaryDirectory() as elsewhere:
        command = [sys.executable, "-m", "pytest", "-q", "-p", "stock_plugin", "-p", "no:cacheprovider"]
        command += ["-c", os.devnull, "--rootdir", str(files[0].parent), "-k", keyword]
        command += ["--partitioner", side, "--outcomes", str(outcomes.resolve()), *map(str, files)]
        done = subprocess.run(
            command,
            cwd=elsewhere,
            env={**os.environ, "PYTHONPATH": search},
            check=False,
            capture_output=True,
            text=True,
            errors="replace",
        )
    if not outcomes.is_file():
        raise SystemExit(f"pytest ran no test (exit code {done.returncode}):\n{done.stdout}\n{done.stderr}")


def read(path: Path) -> dict[str, Outcome]:
    """Test name to its outcome; the worst of its phases and subtests counts."""
    found: dict[str, Outcome] = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        event = json.loads(line)
        if event["outcome"] == "started":
            found[event["test"]] = Outcome("crashed", "the process died in this test")
        elif found.get(event["test"], Outcome("crashed")).result != "failed":
            found[event["test"]] = Outcome(event["outcome"], event["error"])
    return found


def report(stock: dict[str, Outcome], ours: dict[str, Outcome]) -> int:
    """Print what does not pass on both sides, then the counts; 1 where only coreproof fails."""
    worse = 0
    for test in sorted(stock | ours):
        pair = [side.get(test, Outcome("not run")) for side in (stock, ours)]
        if all(outcome.result == "passed" for outcome in pair):
            if test in INTENDED:
                print(f"{test} passes: take it out of INTENDED")
            continue
        worse += pair[0].result == "passed" and test not in INTENDED
        print(test, f"    (intended: {INTENDED[test]})" if test in INTENDED else "", sep="")
        for side, outcome in zip(SIDES, pair, strict=True):
            first = (outcome.error.strip().splitlines() or [""])[0]
            print(f"    {side:9} {outcome.result:8} {first[:400]}")
    for side, outcomes in zip(SIDES, (stock, ours), strict=True):
        results = [outcome.result for outcome in outcomes.values()]
        counts = ", ".join(f"{results.count(result)} {result}" for result in sorted(set(results)))
        print(f"{side:9} {len(results)} tests: {counts}")
    return 1 if worse else 0


if __name__ == "__main__":
    sys.exit(main())
