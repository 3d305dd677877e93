"""Lower PyTorch models to Core ML through ExecuTorch, with a reason for everything that stays on the CPU.

The names below import torch, ExecuTorch and coremltools when they are first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from .errors import CoreproofError, InputError, MissingKernelError, RequirementError, StateError
from .version import __version__

if TYPE_CHECKING:
    from .lowering import Lowered, lower, plan
    from .partition.partitioner import CoreMLPartitioner
    from .partition.record import MethodPlacement, Placement, Refusal

_HOMES = {
    "CoreMLPartitioner": ".partition.partitioner",
    "Lowered": ".lowering",
    "MethodPlacement": ".partition.record",
    "Placement": ".partition.record",
    "Refusal": ".partition.record",
    "lower": ".lowering",
    "plan": ".lowering",
}

__all__ = [
    "CoreMLPartitioner",
    "CoreproofError",
    "InputError",
    "Lowered",
    "MethodPlacement",
    "MissingKernelError",
    "Placement",
    "Refusal",
    "RequirementError",
    "StateError",
    "__version__",
    "lower",
    "plan",
]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOMES[name], __name__), name)
    globals()[name] = value
    return value
