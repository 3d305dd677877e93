"""Core ML models that coremltools converted by itself, held against the model."""

import coremltools as ct
import pytest
import torch
from torch import nn

import coreproof
from coreproof.errors import InputError


class Two(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Linear(6, 3)

    def forward(self, left, right):
        return self.net(left - 2 * right), left.argmax(1)


INPUTS = (torch.randn(4, 6), torch.randn(4, 6))


@pytest.fixture
def module():
    torch.manual_seed(0)
    return Two().eval()


def converted(module, precision=ct.precision.FLOAT32):
    program = torch.export.export(module, INPUTS).run_decompositions({})
    return ct.convert(program, minimum_deployment_target=ct.target.iOS18, compute_precision=precision)


@pytest.mark.parametrize("precision", [ct.precision.FLOAT32, ct.precision.FLOAT16])
def test_a_right_model(module, precision, tmp_path):
    model = converted(module, precision)
    assert coreproof.verify_program(model, module, INPUTS).outcome in ("match", "precision")
    model.save(str(tmp_path / "two.mlpackage"))
    found = coreproof.verify_program(tmp_path / "two.mlpackage", module, INPUTS)
    assert found.outcome in ("match", "precision")


def test_other_weights_are_a_mismatch(module):
    model = converted(module)
    with torch.no_grad():
        module.net.bias += 0.01
    assert coreproof.verify_program(model, module, INPUTS).outcome == "mismatch"


def test_another_number_of_inputs(module):
    with pytest.raises(InputError, match="2 inputs"):
        coreproof.verify_program(converted(module), nn.Linear(6, 3).eval(), INPUTS[:1])
