"""Values that live across calls."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from .ir import TensorType


@dataclass(eq=False)
class State:
    """One state of a function: its name, declared type, and the carried tensor that it holds now."""

    name: str
    type: TensorType
    tensor: torch.Tensor
