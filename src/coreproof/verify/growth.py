"""How an error grows along a delegate: its values beside torch's, both run from the same inputs on their own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.fx import Node

from ..runtime.pte.delegates import CoreMLDelegate
from .compare import greatest_difference
from .delegates import Recording
from .lowered_graph import ProgramRun
from .matching import Matching


def growth(recording: Recording, delegate: CoreMLDelegate, calls: Sequence[list[Any]]) -> tuple[tuple[str, float], ...]:
    """For each value that stands for a torch node, in program order: its greatest error over the greatest value of it.

    Args:
        delegate: of the recording; its states are reset.
        calls: the inputs of each call from the initial state on; the last one counts.
    """
    delegate.reset()
    alone = _Alone(recording, delegate)
    for inputs in calls:
        alone.compare(inputs)
    return tuple(alone.errors)


class _Alone(ProgramRun):
    """The edge program on its own; notes how far the delegate's values are from it."""

    def __init__(self, recording: Recording, delegate: CoreMLDelegate) -> None:
        super().__init__(recording.edge, floats=torch.float32, zeros=recording.zeros)
        self._finished = delegate
        self._matching = Matching(delegate.function, recording.edge)

    def compare(self, inputs: list[Any]) -> None:
        self._values = self._finished.values(inputs)
        self.errors: list[tuple[str, float]] = []
        self.run(inputs)

    def replaced(self, node: Node, made: Any) -> Any:
        """Called by the run with each node's result."""
        name, got = self._matching.made_for(node, self._values)
        both = isinstance(made, torch.Tensor) and isinstance(got, torch.Tensor)
        if both and name in self._values and got.shape == made.shape and made.numel():
            finite = made.double()[torch.isfinite(made)]
            scale = float(finite.abs().max()) if finite.numel() else 0.0
            self.errors.append((name, greatest_difference(got, made) / (scale or 1.0)))
        return made
