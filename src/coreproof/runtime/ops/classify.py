"""The class label of a classifier."""

from __future__ import annotations

from torch import Tensor


def classify(probabilities: Tensor, classes: list) -> list[object]:
    """The class of the greatest probability, and the probability of every class"""
    flat = probabilities.reshape(-1)
    labels = [one if isinstance(one, str) else int(one) for one in classes]
    if len(labels) != flat.numel():
        raise ValueError(f"{len(labels)} classes for {flat.numel()} probabilities")
    return [labels[int(flat.argmax())], dict(zip(labels, flat.tolist(), strict=True))]
