"""`lower_full_graph=True` names every offender."""

import logging

import pytest
import torch
from lowered import lower, on_cpu

import coreproof


def test_every_offender_is_named_with_reason_and_line():
    def three(m, x):
        y = on_cpu(x)
        z = torch.erfinv(y)
        return z * 2, x.view(1, 1, 1, 1, 1, 3) + 1

    with pytest.raises(coreproof.RequirementError) as caught:
        lower(three, (torch.randn(3),), lower_full_graph=True)
    message = str(caught.value)
    assert "lower_full_graph=False runs them outside Core ML" in message
    for name in ("aten.fmod.Scalar", "aten.erfinv.default", "aten.view_copy.default"):
        assert name in message
    assert message.count("lowered.py:") >= 3
    assert "coremltools 9.0 has no converter" in message and "fmod of floats" in message
    assert "at most 5 dimensions" in message
    assert "Core ML does not support" not in message and "schema" not in message
    assert {r.op for r in caught.value.refusals} >= {"aten.fmod.Scalar", "aten.erfinv.default"}


@pytest.mark.parametrize(
    "options",
    [
        {"skip_ops_for_coreml_delegation": ["aten.mul.Tensor"]},
        {"take_over_mutable_buffer": False},
        {"take_over_constant_data": False},
    ],
)
def test_options_that_exclude_one_another(options):
    with pytest.raises(coreproof.InputError, match="lower_full_graph=True"):
        lower(lambda m, x: x * 2, (torch.randn(3),), lower_full_graph=True, **options)


def test_refusals_are_logged_by_op_name(caplog):
    with caplog.at_level(logging.INFO, logger="coreproof"):
        lower(lambda m, x: on_cpu(x) * 2, (torch.randn(3),))
    lines = [r.getMessage() for r in caplog.records if "fmod" in r.getMessage()]
    assert lines and all(line.startswith("aten.fmod.Scalar runs outside Core ML") for line in lines)
    assert not any("Tensor self" in line for line in lines)
