"""The command line with the real `coreproof.lower`, on the bundled example and on models that cannot be lowered."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest

from coreproof import cli

EXAMPLE = Path(__file__).parents[1] / "examples" / "camera_policy.py"
MODELS = """
import torch
from torch import nn
class Branch(nn.Module):
    def forward(self, x):
        return x if x.sum() > 0 else -x
class Acosh(nn.Module):
    def forward(self, x):
        return torch.fmod(x * 2 + 1, 97.0)
def branch():
    return Branch(), (torch.ones(2, 3),)
def acosh():
    return Acosh(), (torch.ones(2, 3),)
"""


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "models.py").write_text(MODELS)
    return tmp_path


def test_the_example_becomes_a_program_with_core_ml_delegates(here, capfd):
    assert cli.main(["lower", f"{EXAMPLE}:policy", "-o", "policy.pte", "--json"]) == 0
    out, err = capfd.readouterr()
    document = json.loads(out)
    assert err == ""
    program = (here / "policy.pte").read_bytes()
    # Bytes 4 to 8 of a flatbuffer are its file identifier; ExecuTorch's starts with ET.
    assert program[4:6] == b"ET" and b"CoreMLBackend" in program
    assert document["output"]["bytes"] == len(program)
    assert document["share"] > 0.9
    refused = {(r["op"], Path(r["source"].rpartition(":")[0]).name) for r in document["methods"]["forward"]["refusals"]}
    assert ("aten.permute_copy.default", "camera_policy.py") in refused


def test_the_readme_prints_what_the_command_prints(here, capfd, monkeypatch):
    readme = EXAMPLE.parents[1].joinpath("README.md").read_text()
    code, shown = re.search(r"this `mine\.py`\n\n```python\n(.*?)```.*?prints\n\n```\n(.*?)```", readme, re.S).groups()
    (here / "mine.py").write_text(code)
    monkeypatch.setenv("COLUMNS", "80")
    assert cli.main(["lower", "mine.py:build", "-o", "mine.pte"]) == 0

    def without_size(text: str) -> str:
        return re.sub(r"\([\d.]+ kB\)", "", text)

    assert without_size(capfd.readouterr().out) == without_size(shown)


def test_a_model_that_torch_export_refuses(here, capfd):
    assert cli.main(["lower", "models.py:branch", "-o", "out.pte"]) == 2
    out, err = capfd.readouterr()
    # The last line: torch prints the graph as well, to a stderr that pytest puts in the place of the real one.
    line = err.splitlines()[-1]
    assert out == "" and line.startswith("coreproof: error: ")
    assert "data-dependent" in line and "torch.export" in line
    assert not (here / "out.pte").exists()


def test_a_full_graph_that_is_not_possible_names_the_op_and_its_line(here, capfd):
    assert cli.main(["lower", "models.py:acosh", "-o", "out.pte", "--full-graph"]) == 1
    out, err = capfd.readouterr()
    line = MODELS.split("\n").index("        return torch.fmod(x * 2 + 1, 97.0)") + 1
    assert out == "" and err.count("\n") == 1
    assert "aten.fmod.Scalar" in err and f"models.py:{line}" in err
    assert not (here / "out.pte").exists()


def test_an_op_to_skip_that_occurs_nowhere(here, capfd):
    assert cli.main(["plan", "models.py:acosh", "--skip-op", "aten.gelu.default"]) == 2
    err = capfd.readouterr().err
    assert "aten.gelu.default" in err and "aten.fmod.Scalar" in err and err.count("\n") == 1


def test_plan_and_skip(here, capfd):
    assert cli.main(["plan", "models.py:acosh", "--skip-op", "aten.mul.Tensor", "--json"]) == 0
    method = json.loads(capfd.readouterr().out)["methods"]["forward"]
    homes = {node["op"]: node["partition"] for node in method["nodes"]}
    assert homes["aten.mul.Tensor"] is None and homes["aten.fmod.Scalar"] is None
    assert homes["aten.add.Tensor"] == 0
