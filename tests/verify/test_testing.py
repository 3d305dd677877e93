"""What other people's tests call, and the fixture that they get it by."""

from importlib.metadata import entry_points

import pytest
import torch
from lowered import Call

from coreproof.testing import assert_lowers

pytest_plugins = ["pytester"]
X = torch.tensor([[1.5, -2.0, 0.25], [3.0, -0.5, 8.0]])


def test_a_model_that_lowers_whole():
    lowered = assert_lowers(Call(lambda m, x: x.relu() * 2).eval(), (X,), share=1.0, delegates=1, outcome=["match"])
    assert lowered.verification.outcome == "match"


def test_each_requirement_that_is_not_met_is_a_line():
    module = Call(lambda m, x: torch.exp(1 + x.abs()) * 2).eval()
    kept = {"skip_ops_for_coreml_delegation": ["aten.exp.default"]}
    with pytest.raises(AssertionError) as raised:
        assert_lowers(module, (X,), share=1.0, delegates=7, outcome=["mismatch"], **kept)
    share, delegates, outcome = str(raised.value).split("\n")
    assert "expected at least 100.0%" in share and "aten.exp.default" in share
    assert delegates == "2 delegates; expected 7"
    assert outcome.startswith("match, expected mismatch: ")


def test_the_fixture(pytester):
    pytester.makepyfile(
        """
        import torch
        def test_mine(coreml_lowering):
            coreml_lowering(torch.nn.ReLU().eval(), (torch.ones(2, 3),), delegates=1)
        """
    )
    plugin = "coreproof.pytest_plugin"  # an installed coreproof brings it by itself, and pytest takes no plugin twice
    installed = any(entry.value == plugin for entry in entry_points(group="pytest11"))
    result = pytester.runpytest_inprocess(*(() if installed else ("-p", plugin)))
    result.assert_outcomes(passed=1)
