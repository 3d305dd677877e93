"""The delegates of a `.pte` that was made elsewhere, against edge programs that are made again from the model."""

from __future__ import annotations

from torch.export import ExportedProgram

from .compare import Tolerance
from .lowered import Method
from .record import Check


def check_delegates_of(
    data: bytes, name: str, method: Method, programs: dict[str, ExportedProgram], tolerance: Tolerance
) -> list[Check]:
    """Each delegate of the method."""
    return []
