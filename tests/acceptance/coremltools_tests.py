"""Runs coremltools' own tests, from the installed wheel, with predictions by coreproof's reference runtime.

    python tests/acceptance/coremltools_tests.py [--suite ops torch quantization stateful] [--sample N] [-k EXPRESSION]

Only ML Program parameters run. Printed are the counts and every failure with its
error's first line, most frequent errors first; the exit code is 1 where a test
fails that is not in `EXPECTED`, or one in it passes.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

HERE = Path(__file__).resolve().parent
SUITES = {
    "ops": "converters/mil/mil/ops/tests",
    "torch": "converters/mil/frontend/torch/test/test_torch_ops.py",
    "quantization": "converters/mil/frontend/torch/test/test_torch_quantization_ops.py",
    "stateful": "converters/mil/frontend/torch/test/test_torch_stateful_model.py",
    "export_quantization": "converters/mil/frontend/torch/test/test_torch_export_quantization.py",
}

# Tests that cannot pass here, as a pattern of their ids, and why.
EXPECTED: dict[str, str] = {}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--suite", nargs="+", choices=SUITES, default=list(SUITES))
    parser.add_argument("--sample", type=int, default=0, help="run so many tests of each suite, by a fixed seed (all)")
    parser.add_argument("--keyword", "-k", default="", help="pytest's expression that selects tests")
    parser.add_argument("--json", type=Path, help="file to write every outcome to")
    options = parser.parse_args()
    worst, kept = 0, {}
    for suite in options.suite:
        outcomes = run(suite, options.sample, options.keyword)
        kept[suite] = outcomes
        worst = max(worst, report(suite, outcomes))
    if options.json:
        options.json.write_text(json.dumps(kept, indent=1), encoding="utf-8")
    return worst


def run(suite: str, sample: int, keyword: str) -> dict[str, dict[str, str]]:
    """The outcome and error of each test of a suite, from one pytest process."""
    spec = importlib.util.find_spec("coremltools")
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit("coremltools is not installed")
    path = Path(spec.submodule_search_locations[0]) / SUITES[suite]
    with tempfile.TemporaryDirectory() as scratch:
        log = Path(scratch) / "log.jsonl"
        command = [sys.executable, "-m", "pytest", "-q", "-p", "predict_plugin", "-p", "no:cacheprovider"]
        command += ["-p", "outcomes_plugin", f"--outcomes={log}", "--tb=short", f"--rootdir={path.parent}", str(path)]
        command += [f"--fixed-sample={sample}"] if sample else []
        command += ["-k", keyword] if keyword else []
        environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")])}
        done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False, cwd=scratch)
        if not log.is_file():
            raise SystemExit(f"{suite}: pytest did not start\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
        lines = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
    return {line["test"]: line for line in lines}


def report(suite: str, outcomes: dict[str, dict[str, str]]) -> int:
    """Print one suite; 1 where an outcome is not as expected."""
    counts = Counter(one["outcome"] for one in outcomes.values())
    failed = {test: one["error"] for test, one in outcomes.items() if one["outcome"] == "failed"}
    surprises = {test: error for test, error in failed.items() if not reason(test)}
    print(f"\n{suite}: " + ", ".join(f"{count} {outcome}" for outcome, count in sorted(counts.items())))
    kinds: dict[str, list[str]] = {}
    for test, error in surprises.items():
        kinds.setdefault(re.sub(r"[\d.]+", "#", error.splitlines()[0] if error else "")[:110], []).append(test)
    for kind, tests in sorted(kinds.items(), key=lambda item: -len(item[1])):
        print(f"  {len(tests):5} x {kind}\n          {tests[0]}")
    return 1 if surprises else 0


def reason(test: str) -> str:
    """Why a test is expected to fail, or "" where it is not."""
    return next((why for pattern, why in EXPECTED.items() if re.search(pattern, test)), "")


if __name__ == "__main__":
    sys.exit(main())
