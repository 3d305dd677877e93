"""A pytest plugin for ExecuTorch's own Core ML tests: it picks the partitioner and writes each outcome to a file.

Loaded with `-p stock_plugin`, before anything is collected. The substitution
lives in that one process only; nothing installed is changed.
"""

from __future__ import annotations

import json
import sys
import warnings
from pathlib import Path

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("coreproof")
    group.addoption("--partitioner", choices=("stock", "coreproof"), default="stock")
    group.addoption("--outcomes", type=Path, required=True, help="file to append one JSON line a test to")


def pytest_configure(config: pytest.Config) -> None:
    warnings.filterwarnings("ignore")
    load_torchvision()
    leave_weights_random()
    if config.getoption("--partitioner") == "coreproof":
        substitute_partitioner()
    config.pluginmanager.register(Recorder(config.getoption("--outcomes")))


def load_torchvision() -> None:
    """Import torchvision, declaring two operators first if its compiled library does not load beside this torch.

    On import torchvision registers fake kernels for `nms` and `qnms`, which needs their schemas. They keep no
    implementation: calling them raises.
    """
    import torch

    try:
        import torchvision
    except RuntimeError:
        for name in [name for name in sys.modules if name.split(".")[0] == "torchvision"]:
            del sys.modules[name]
        library = torch.library.Library("torchvision", "FRAGMENT")
        for op in ("nms", "qnms"):
            library.define(f"{op}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        import torchvision

        torchvision.operator_schemas = library  # they last as long as this object


def leave_weights_random() -> None:
    """Let torchvision's models that ask for trained weights keep random ones: these tests look at graphs only."""
    from torchvision.models import VisionTransformer, WeightsEnum

    WeightsEnum.get_state_dict = lambda self, *args, **kwargs: {}
    VisionTransformer.load_state_dict = lambda self, state, *args, **kwargs: None


def substitute_partitioner() -> None:
    """Put coreproof's partitioner where the tests and the recipe provider import the stock one from."""
    import executorch.backends.apple.coreml.partition as package
    import executorch.backends.apple.coreml.partition.coreml_partitioner as module

    from coreproof import CoreMLPartitioner

    package.CoreMLPartitioner = module.CoreMLPartitioner = CoreMLPartitioner
    import executorch.backends.apple.coreml.recipes.coreml_recipe_provider as provider

    provider.CoreMLPartitioner = CoreMLPartitioner


class Recorder:
    """Appends `{"test", "when", "outcome", "error", "seconds"}` for each phase of a test that says something.

    Lines are written at once, so that a crash of the process loses only the test that crashed.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._write(test=nodeid, when="start", outcome="started", error="", seconds=0.0)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when != "call" and report.outcome == "passed":
            return
        self._write(
            test=report.nodeid,
            when=report.when,
            outcome=report.outcome,
            error=_error(report),
            seconds=round(report.duration, 2),
        )

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self._write(test=report.nodeid, when="collect", outcome="failed", error=_error(report), seconds=0.0)

    def _write(self, **line: object) -> None:
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")


def _error(report: pytest.TestReport | pytest.CollectReport) -> str:
    """The failure's last line that names an exception, or "" for a test that passed."""
    if report.outcome == "passed" or not report.longrepr:
        return ""
    crash = getattr(report.longrepr, "reprcrash", None)
    if crash is not None:
        return str(crash.message)
    lines = [line[1:].strip() for line in str(report.longrepr).splitlines() if line.startswith("E ")]
    return lines[-1] if lines else str(report.longrepr).strip().splitlines()[-1]
