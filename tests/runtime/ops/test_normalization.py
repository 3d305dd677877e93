"""Normalisations, against the formula in float64."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from op_run import run

RANDOM = np.random.default_rng(0)


def draw(*shape):
    return torch.from_numpy(RANDOM.uniform(-2, 2, shape))


@pytest.mark.parametrize("shape", [(2, 3, 4), (2, 3, 4, 5), (1, 3, 2, 4, 5)])
@pytest.mark.parametrize("scaled", [False, True])
def test_batches_and_instances(shape, scaled):
    x, mean, variance = draw(*shape), draw(3), draw(3).square()
    column = (1, 3) + (1,) * (len(shape) - 2)
    gamma, beta = (draw(3), draw(3)) if scaled else (torch.ones(3).double(), torch.zeros(3).double())
    given = {"gamma": gamma, "beta": beta} if scaled else {}
    normal = (x - mean.view(column)) / torch.sqrt(variance.view(column) + 0.1)
    expected = normal * gamma.view(column) + beta.view(column)
    got = run("batch_norm", x=x, mean=mean, variance=variance, epsilon=0.1, **given)
    torch.testing.assert_close(got, expected)
    axes = tuple(range(2, len(shape)))
    own = x.var(axes, keepdim=True, correction=0)
    expected = (x - x.mean(axes, keepdim=True)) / torch.sqrt(own + 0.1) * gamma.view(column) + beta.view(column)
    torch.testing.assert_close(run("instance_norm", x=x, epsilon=0.1, **given), expected)


def test_an_instance_without_extent_is_refused():
    with pytest.raises(ValueError, match="rank 3"):
        run("instance_norm", x=draw(2, 3))


@pytest.mark.parametrize("axes", [None, [-1], [1, 2], [-1, 1], [0, 2], [1]])
def test_layers_over_any_axes(axes):
    x = draw(2, 3, 4)
    chosen = sorted(axis % 3 for axis in (axes or range(3)))
    sizes = [x.shape[axis] for axis in chosen]
    gamma, beta = draw(*sizes), draw(*sizes)
    spread = [x.shape[axis] if axis in chosen else 1 for axis in range(3)]
    variance = x.var(chosen, keepdim=True, correction=0)
    expected = (x - x.mean(chosen, keepdim=True)) / torch.sqrt(variance + 0.01)
    given = {} if axes is None else {"axes": axes}
    torch.testing.assert_close(run("layer_norm", x=x, epsilon=0.01, **given), expected)
    got = run("layer_norm", x=x, gamma=gamma, beta=beta, epsilon=0.01, **given)
    torch.testing.assert_close(got, expected * gamma.reshape(spread) + beta.reshape(spread))


def test_lengths_over_the_last_three_dimensions():
    x = draw(2, 5, 3, 4, 2)
    expected = torch.stack([torch.stack([e / torch.sqrt(e.square().sum() + 0.5) for e in row]) for row in x])
    torch.testing.assert_close(run("l2_norm", x=x, epsilon=0.5), expected)
    torch.testing.assert_close(run("l2_norm", x=x[0, 0], epsilon=0.5), expected[0, 0])


@pytest.mark.parametrize("size", [1, 3, 5])
def test_neighbouring_channels(size):
    x = draw(2, 6, 3, 2)
    expected = torch.empty_like(x)
    for c in range(6):
        near = x[:, max(0, c - size // 2) : c + size // 2 + 1].square().sum(1)
        expected[:, c] = x[:, c] / (2.0 + 0.5 / size * near) ** 0.75
    torch.testing.assert_close(run("local_response_norm", x=x, size=size, alpha=0.5, beta=0.75, k=2.0), expected)
    torch.testing.assert_close(run("local_response_norm", x=x, size=size), F.local_response_norm(x, size))
