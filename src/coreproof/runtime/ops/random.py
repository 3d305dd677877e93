"""Random values. A seed of its own makes an op repeat its values; -1 leaves them to the run's generator.

The values themselves are torch's: Core ML's generator is not documented.
"""

from __future__ import annotations

import torch
from torch import Generator, Tensor

from ..memory import require_elements
from .convert import Ints


def _generator(seed: int, generator: Generator) -> Generator:
    return generator if seed == -1 else torch.Generator().manual_seed(seed)


def random_bernoulli(shape: Ints, prob: float = 0.5, seed: int = -1, *, generator: Generator) -> Tensor:
    """1 with the probability, else 0"""
    require_elements(shape, "random_bernoulli")
    return (torch.rand(shape, generator=_generator(seed, generator)) < prob).float()


def random_categorical(
    x: Tensor, mode: str = "logits", size: int = 1, seed: int = -1, *, generator: Generator
) -> Tensor:
    """Indices drawn from each row of logits or probabilities"""
    if mode not in ("logits", "probs"):
        raise ValueError(f"unknown mode {mode!r}; expected logits or probs")
    chances = torch.softmax(x, -1) if mode == "logits" else x
    require_elements([*x.shape[:-1], size], "random_categorical")
    drawn = torch.multinomial(
        chances.reshape(-1, x.shape[-1]), size, replacement=True, generator=_generator(seed, generator)
    )
    return drawn.reshape(*x.shape[:-1], size).float()


def random_normal(
    shape: Ints, mean: float = 0.0, stddev: float = 1.0, seed: int = -1, *, generator: Generator
) -> Tensor:
    """Normally distributed"""
    require_elements(shape, "random_normal")
    return torch.randn(shape, generator=_generator(seed, generator)) * stddev + mean


def random_uniform(shape: Ints, low: float = 0.0, high: float = 1.0, seed: int = -1, *, generator: Generator) -> Tensor:
    """Uniformly distributed from low to high"""
    require_elements(shape, "random_uniform")
    return torch.rand(shape, generator=_generator(seed, generator)) * (high - low) + low
