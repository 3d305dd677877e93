"""`coreproof verify`: its exit codes, its text and its document."""

import json
import sys

import numpy as np
import pytest
from stock import stock_pte

from coreproof import cli, lower

MODELS = """
import torch
from torch import nn

class Gelu(nn.Module):
    def forward(self, x):
        return nn.functional.gelu(x * 2, approximate="tanh")

class Wide(nn.Module):
    def forward(self, x):
        return (x * 300) * (x * 300) * 0.001

class Noisy(nn.Module):
    def forward(self, x):
        return x + torch.randn_like(x)

def gelu():
    return Gelu().eval(), (torch.linspace(-3, 3, 24).reshape(2, 12),)

def wide():
    return Wide().eval(), (torch.linspace(-3, 3, 24).reshape(2, 12),)

def noisy():
    return Noisy().eval(), (torch.ones(2, 12),)
"""


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "mine.py").write_text(MODELS)
    return tmp_path


def model(name):
    namespace: dict = {}
    exec(MODELS, namespace)  # the text above
    return namespace[name]()


def test_match(here, capfd):
    module, inputs = model("gelu")
    lower(module, inputs, verify=False).save("out.pte")
    assert cli.main(["verify", "out.pte", "mine.py:gelu"]) == 0
    assert capfd.readouterr().out.startswith("match: ")


def test_mismatch_names_the_op(here, capfd):
    (here / "stock.pte").write_bytes(stock_pte(*model("gelu")))
    assert cli.main(["verify", "stock.pte", "mine.py:gelu"]) == 1
    out = capfd.readouterr().out
    assert out.startswith("mismatch: ")
    assert "first wrong op: aten.gelu.default at mine.py:7" in out.replace("\n", " ")
    assert cli.main(["verify", "stock.pte", "mine.py:gelu", "--json"]) == 1
    document = json.loads(capfd.readouterr().out)
    assert document["outcome"] == "mismatch"
    # A tanh GELU differs from an exact one by up to 4.73e-4 (the inputs are within 6 of zero).
    assert 1e-4 < document["checks"][-1]["outputs"][0]["exact"]["max_abs"] < 4.8e-4


def test_precision_is_a_warning(here, capfd):
    module, inputs = model("wide")  # 900 * 900 is beyond float16's 65504
    lower(module, inputs, verify=False).save("out.pte")
    assert cli.main(["verify", "out.pte", "mine.py:wide"]) == 0
    assert capfd.readouterr().out.startswith("precision: ")


def test_unverified(here, capfd):
    module, inputs = model("noisy")
    lower(module, inputs).save("out.pte")
    assert cli.main(["verify", "out.pte", "mine.py:noisy"]) == 3
    assert "draws random numbers" in capfd.readouterr().out.replace("\n", " ")


def test_inputs_from_files_and_tolerances(here, capfd):
    (here / "stock.pte").write_bytes(stock_pte(*model("gelu")))
    np.save("zeros.npy", np.zeros((2, 12), np.float32))
    small = ["--inputs", "zeros.npy", "--variations", "0"]
    assert cli.main(["verify", "stock.pte", "mine.py:gelu", *small]) == 0  # both forms are 0 at 0
    assert cli.main(["verify", "stock.pte", "mine.py:gelu", "--rtol", "1e-2", "--atol", "0"]) == 0
    np.save("wrong.npy", np.zeros((2, 12), np.float64))
    assert cli.main(["verify", "stock.pte", "mine.py:gelu", "--inputs", "wrong.npy"]) == 2
    assert "expected torch.float32" in capfd.readouterr().err


def test_other_runtimes(here, capfd):
    module, inputs = model("gelu")
    lower(module, inputs, skip_ops_for_coreml_delegation=["aten.gelu.default", "aten.mul.Tensor"]).save("cpu.pte")
    assert cli.main(["verify", "cpu.pte", "mine.py:gelu", "--runtime", "executorch"]) == 0
    lower(module, inputs).save("out.pte")
    if sys.platform != "darwin":
        assert cli.main(["verify", "out.pte", "mine.py:gelu", "--runtime", "coreml"]) == 2
        assert "needs macOS" in capfd.readouterr().err
        assert cli.main(["verify", "out.pte", "mine.py:gelu", "--runtime", "executorch"]) == 2
        assert "delegate(s)" in capfd.readouterr().err
