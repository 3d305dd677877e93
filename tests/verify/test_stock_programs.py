"""The faults of ExecuTorch's own Core ML backend, found in the `.pte` that it writes, at the op that has them."""

import coremltools as ct
import pytest
import torch
from lowered import Call
from stock import stock_pte
from torch import nn

import coreproof

X = torch.tensor([[1.5, -2.0, 0.25], [3.0, -0.5, 8.0]])
PRECISIONS = [ct.precision.FLOAT16, ct.precision.FLOAT32]


class Gelu(nn.Module):
    def __init__(self, factor):
        super().__init__()
        self.factor = factor
        self.up, self.down = nn.Linear(6, 16), nn.Linear(16, 3)

    def forward(self, x):
        hidden = self.up(x) if self.factor == 1 else self.up(x) * self.factor
        return self.down(nn.functional.gelu(hidden, approximate="tanh"))


@pytest.mark.parametrize("factor", [1, 2])  # without a product coremltools names no value before the GELU
@pytest.mark.parametrize("precision", PRECISIONS)
def test_a_tanh_gelu_that_runs_as_an_exact_one(precision, factor):
    module, inputs = Gelu(factor).eval(), (torch.randn(4, 6) * 3,)
    found = coreproof.verify_program(stock_pte(module, inputs, precision), module, inputs)
    assert found.outcome == "mismatch"
    assert found.first_wrong.op == "aten.gelu.default"
    assert found.first_wrong.source.startswith("tests/verify/test_stock_programs.py:")


FILLS = {
    "added": lambda m, x: torch.full((1, 3), 4099) + x.long(),
    "chosen": lambda m, x: torch.where(x > 0, torch.full((2, 3), 4099), torch.full((2, 3), -5)),
}


@pytest.mark.parametrize("name", FILLS)
def test_an_integer_fill_that_is_made_as_float16(name):
    module, inputs = Call(FILLS[name]), (X,)
    found = coreproof.verify_program(stock_pte(module, inputs), module, inputs)
    assert found.outcome == "mismatch"
    assert found.first_wrong.op == "aten.full.default"


def test_a_value_that_is_returned_twice():
    module, inputs = Call(lambda m, x: (x.exp(), x * 3, x.exp())), (X,)
    found = coreproof.verify_program(stock_pte(module, inputs), module, inputs)
    assert found.outcome == "mismatch"
    assert found.first_wrong.op == "aten.exp.default"
    assert "repeated-output" in found.first_wrong.evidence
