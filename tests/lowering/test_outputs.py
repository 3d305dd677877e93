"""Every output of a Core ML program comes from an op of its own and has its own name."""

import pytest
import torch
from lowered import TARGETS, lower_and_check, on_cpu, output_producers, specs

X = torch.randn(2, 3)


def _double_twice(m, x):
    y = x * 2
    return y, y.clone()


FORMS = {
    "input returned": lambda m, x: (x.clone(), x * 2),
    "value twice": _double_twice,
    "clone before a CPU op": lambda m, x: (on_cpu(x.clone()), x * 2),
    "views that convert to nothing": lambda m, x: (x.view(2, 3), x.reshape(2, 3), x.expand(2, 3), x + 1),
    "value thrice through views": lambda m, x: [v for v in [x * 2] for _ in range(3)] + [(x * 2).view(2, 3)],
    "constant": lambda m, x: (torch.ones(3), x * 2, torch.ones(3)),
    "identity alone": lambda m, x: x.clone(),
    "dropout and no-ops": lambda m, x: (torch.nn.functional.dropout(x, training=False) + 0, x.contiguous(), x * 1),
}


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("precision", ["float16", "float32"])
def test_outputs_are_made_by_ops_of_their_own(name, precision, tmp_path):
    lowered = lower_and_check(FORMS[name], (X,), compute_precision=precision)
    for spec in specs(lowered, tmp_path):
        names = [o.name for o in spec.description.output]
        inputs = {i.name for i in spec.description.input}
        assert len(set(names)) == len(names)
        assert not inputs & set(names)
        producers = output_producers(spec)  # raises KeyError for an output that no op makes
        assert "const" not in producers


@pytest.mark.parametrize("target", TARGETS, ids=lambda t: t.name)
def test_at_every_target(target, tmp_path):
    lowered = lower_and_check(FORMS["input returned"], (X,), minimum_deployment_target=target)
    (spec,) = specs(lowered, tmp_path)
    assert len(set(output_producers(spec))) >= 1
    assert {o.name for o in spec.description.output}.isdisjoint(i.name for i in spec.description.input)
