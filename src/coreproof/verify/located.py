"""Where a wrong delegate begins to be wrong."""

from __future__ import annotations

from .delegates import Recording
from .record import Check, FirstWrong


def first_wrong_op(recording: Recording, check: Check) -> FirstWrong | None:
    """The first op of the delegate that is wrong by itself, on the calls of the case that shows it; None: not found."""
    return None
