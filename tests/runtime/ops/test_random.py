"""Random ops: distributions by their moments, and what a seed fixes."""

import pytest
import torch
from op_run import run

SHAPE = [40, 50]  # 2,000 values: a mean lies within 4 / sqrt(2000) = 0.09 standard deviations


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize(
    "op, operands, mean, deviation",
    [
        ("random_uniform", {"low": -1.0, "high": 3.0}, 1.0, 4 / 12**0.5),
        ("random_normal", {"mean": 5.0, "stddev": 0.5}, 5.0, 0.5),
        ("random_bernoulli", {"prob": 0.2}, 0.2, 0.4),
        ("random_uniform", {}, 0.5, 1 / 12**0.5),
        ("random_normal", {}, 0.0, 1.0),
        ("random_bernoulli", {}, 0.5, 0.5),
    ],
)
def test_distributions_and_seeds(op, operands, mean, deviation):
    got = run(op, shape=SHAPE, **operands, generator=generator())
    assert got.dtype == torch.float32 and list(got.shape) == SHAPE
    assert abs(float(got.mean()) - mean) < 0.09 * deviation
    assert abs(float(got.std()) - deviation) < 0.09 * deviation
    if op == "random_uniform":
        assert got.min() >= operands.get("low", 0.0) and got.max() <= operands.get("high", 1.0)
    first, second = (run(op, shape=SHAPE, **operands, seed=3, generator=generator(k)) for k in (0, 1))
    assert torch.equal(first, second)  # a seed of its own: whatever the run's generator is
    assert not torch.equal(first, run(op, shape=SHAPE, **operands, seed=4, generator=generator()))
    shared = generator()
    first, second = (run(op, shape=SHAPE, **operands, generator=shared) for _ in range(2))
    assert not torch.equal(first, second)


def test_categories_come_as_often_as_their_probabilities():
    chances = torch.tensor([[0.1, 0.0, 0.9], [0.5, 0.5, 0.0]])
    for mode, x in (("probs", chances), ("logits", chances.log())):
        got = run("random_categorical", x=x, mode=mode, size=2000, generator=generator())
        assert got.shape == (2, 2000) and got.dtype == torch.float32
        shares = torch.stack([torch.bincount(row.long(), minlength=3) / 2000 for row in got])
        assert (shares - chances).abs().max() < 0.05 and shares[0, 1] == shares[1, 2] == 0
    assert run("random_categorical", x=chances[0], mode="probs", generator=generator()).shape == (1,)
    with pytest.raises(ValueError, match="unknown mode"):
        run("random_categorical", x=chances, mode="odds", generator=generator())
