"""Facts about Apple's runtime that keep a node off Core ML though it converts."""

import pytest
import torch
from lowered import Call
from torch import nn

import coreproof

X = torch.randn(2, 3, 4)

NODES = {
    "rank": lambda m, x: x.view(1, 1, 1, 2, 3, 4) * 2,
    "integer-matmul": lambda m, x: x.int() @ x.int().mT,
    "norm-rank": lambda m, x: m.net(x.view(1, 2, 3, 4, 1)),
    "zero-size": lambda m, x: (x[:, :0] * 2, x * 2),
}


@pytest.mark.parametrize("rule", NODES)
def test_a_node_is_refused_by_its_rule_with_a_source(rule):
    module = Call(NODES[rule], net=nn.BatchNorm3d(2)).eval()
    refusals = coreproof.plan(module, (X,)).refusals
    matching = [r for r in refusals if r.rule == rule]
    assert matching, refusals
    assert all("#" in r.reason for r in matching)  # the issue that states the fact


def test_dropout_in_training_mode_is_not_dropped_in_silence():
    module = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5))
    (refusal,) = coreproof.plan(module.train(), (X,)).refusals
    assert refusal.rule == "dropout"
    assert coreproof.plan(module.eval(), (X,)).refusals == []


def test_what_coreproof_converts_itself_stays():
    """coremltools ignores alpha, gives another diagonal, and flattens in argmax in a way that crashes now and then."""
    placement = coreproof.plan(
        Call(lambda m, x: (torch.add(x, x, alpha=3), x.diagonal(dim1=1, dim2=2) * 2, x.argmax(), x.argmax(1))).eval(),
        (X,),
    )
    assert placement.refusals == []
