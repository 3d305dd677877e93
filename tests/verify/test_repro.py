"""The script of a wrong op runs by itself, shows the fault, and no longer does once the op is right."""

import subprocess
import sys

import pytest
import torch
from stock import stock_pte
from torch import nn
from verify.mutations import faulty_check
from verify.test_planted_faults import FAULTS

from coreproof.cli import main
from coreproof.verify.script import shows

# Coremltools' builder refuses these programs.
NOT_BUILT = ("bounds of clip swapped", "gamma of layer_norm")

SOURCE = """
import torch
from torch import nn


def build():
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(6, 16), nn.GELU(approximate="tanh"), nn.Linear(16, 3)).eval()
    return module, (torch.randn(4, 6) * 3,)
"""


@pytest.fixture
def script(tmp_path, capsys):
    """The path of the script that `coreproof verify --repro` writes of a tanh GELU made an exact one."""
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(6, 16), nn.GELU(approximate="tanh"), nn.Linear(16, 3)).eval()
    inputs = (torch.randn(4, 6) * 3,)
    (tmp_path / "model.py").write_text(SOURCE)
    (tmp_path / "model.pte").write_bytes(stock_pte(module, inputs))
    path = tmp_path / "repro.py"
    source = f"{tmp_path / 'model.py'}:build"
    assert main(["verify", str(tmp_path / "model.pte"), source, "--repro", str(path), "--quiet"]) == 1
    return path


def test_the_script_shows_the_fault(script):
    text = script.read_text()
    assert "aten.gelu.default" in text and "mb.gelu(" in text and "mb.linear" not in text
    assert ".reshape((1, 1))" in text  # of [4, 16]
    ran = subprocess.run([sys.executable, str(script)], capture_output=True, text=True)
    assert ran.returncode == 1, ran.stderr
    assert ran.stdout.startswith("expected [[") and "reference runtime: got [[" in ran.stdout
    script.write_text(text.replace("EXACT'", "TANH_APPROXIMATION'"))
    ran = subprocess.run([sys.executable, str(script)], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr


# Every sixth in `make test`.
SOME = [
    fault if number % 6 == 0 else pytest.param(fault, marks=pytest.mark.slow) for number, fault in enumerate(FAULTS)
]


@pytest.mark.parametrize("fault", SOME, ids=lambda fault: f"{fault.model}: {fault.name}")
def test_the_script_of_every_planted_fault_shows_it(fault):
    wrong = faulty_check(fault).first_wrong
    moved = "as output" in wrong.evidence or "as the new value" in wrong.evidence or "makes shape" in wrong.evidence
    assert (wrong.script is None) == moved
    assert moved or fault.name in NOT_BUILT or shows(wrong.script())


def test_no_script_of_what_no_op_does(tmp_path, caplog):
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(6, 16), nn.GELU(), nn.Linear(16, 3)).eval()
    (tmp_path / "model.pte").write_bytes(stock_pte(module, (torch.randn(4, 6),)))
    (tmp_path / "model.py").write_text(SOURCE.replace('approximate="tanh"', ""))
    path = tmp_path / "repro.py"
    source = f"{tmp_path / 'model.py'}:build"
    assert main(["verify", str(tmp_path / "model.pte"), source, "--repro", str(path), "--quiet"]) == 0
    assert not path.exists() and "no op is wrong by itself" in caplog.text
