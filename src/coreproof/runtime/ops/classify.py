"""The class label of a classifier."""

from __future__ import annotations

import torch
from torch import Tensor


def classify(probabilities: Tensor, classes: list) -> list[object]:
    """The class of the greatest probability, and the probability of every class"""
    flat = probabilities.reshape(-1)
    labels = [one if isinstance(one, str) else int(one) for one in classes]
    if len(labels) != flat.numel():
        raise ValueError(f"{len(labels)} classes for {flat.numel()} probabilities")
    best = labels[int(flat.argmax())]
    label = best if isinstance(best, str) else torch.tensor(best, dtype=torch.int64)
    return [label, dict(zip(labels, flat.tolist(), strict=True))]
