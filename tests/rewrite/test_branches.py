"""Branches of control flow that hand back what they are given lower, and give what torch gives."""

import pytest
import torch
from lowered import Call

import coreproof

X = torch.tensor([[1.5, -2.0, 0.25], [3.0, -0.5, 8.0]])


def _input(v):
    return v


def _view(v):
    return v.view(3, 2)


def _twice(v):
    doubled = v * 2
    return doubled, doubled


def _kept(m, x):
    return torch.cond(x.sum() > 0, lambda v: m.kept, lambda v: v * 2, (x,))


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (lambda m, x: torch.cond(x.sum() > 0, _input, lambda v: v * 2, (x,)), (X, -2 * X)),
        (lambda m, x: torch.cond(x.sum() > 0, _view, lambda v: _view(v * 2), (x,)), (_view(X), _view(-2 * X))),
        (lambda m, x: torch.cond(x.sum() > 0, lambda v: (v, v), _twice, (x,)), ((X, X), (-2 * X, -2 * X))),
        (_kept, (X + 1, -2 * X)),
    ],
    ids=["input", "view", "twice", "parameter"],
)
def test_what_a_branch_hands_back_is_copied(function, expected):
    """The sum of X is positive. torch refuses these calls but for an export without gradients."""
    model = Call(function, kept=torch.nn.Parameter(X + 1)).eval()
    with torch.no_grad():
        program = torch.export.export(model, (X,), strict=False)
    before = str(program.graph_module.true_graph_0.graph)
    lowered = coreproof.lower(program, verify=False)
    assert str(program.graph_module.true_graph_0.graph) == before
    loaded = coreproof.runtime.load(lowered.pte)
    for x, wanted in zip((X, -X), expected, strict=True):
        wanted = wanted if isinstance(wanted, tuple) else (wanted,)
        for got, want in zip(loaded.run(x), wanted, strict=True):
            torch.testing.assert_close(got, want, rtol=0, atol=0)
