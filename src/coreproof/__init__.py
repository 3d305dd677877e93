"""Lower PyTorch models to Core ML through ExecuTorch, with a reason for everything that stays on the CPU.

The names below import torch, ExecuTorch and coremltools when they are first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from .errors import CoreproofError, InputError, MismatchError, MissingKernelError, RequirementError, StateError
from .version import __version__

if TYPE_CHECKING:
    from .lowering import Lowered, lower, plan
    from .partition.partitioner import CoreMLPartitioner
    from .partition.record import MethodPlacement, Placement, Refusal
    from .verify.api import verify_program
    from .verify.record import Verification

_HOMES = {
    "CoreMLPartitioner": ".partition.partitioner",
    "Lowered": ".lowering",
    "MethodPlacement": ".partition.record",
    "Placement": ".partition.record",
    "Refusal": ".partition.record",
    "Verification": ".verify.record",
    "lower": ".lowering",
    "plan": ".lowering",
    "verify_program": ".verify.api",
}

__all__ = [
    "CoreMLPartitioner",
    "CoreproofError",
    "InputError",
    "Lowered",
    "MethodPlacement",
    "MismatchError",
    "MissingKernelError",
    "Placement",
    "Refusal",
    "RequirementError",
    "StateError",
    "Verification",
    "__version__",
    "lower",
    "plan",
    "verify_program",
]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOMES[name], __name__), name)
    globals()[name] = value
    return value
