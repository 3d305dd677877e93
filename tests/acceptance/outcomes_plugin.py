"""A pytest plugin that writes the outcome of each test to a file, one JSON line each: `--outcomes=FILE`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--outcomes", type=Path)


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(_Writer(config.getoption("--outcomes")))


class _Writer:
    def __init__(self, path: Path) -> None:
        self.path = path

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" or report.outcome != "passed":
            crash = getattr(report.longrepr, "reprcrash", None)
            error = "" if report.outcome == "passed" else str(crash.message if crash else report.longrepr)
            line = {"test": report.nodeid, "outcome": report.outcome, "error": error[:2000]}
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")
