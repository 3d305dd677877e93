"""What every command of the command line returns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass
class Result:
    """What a command found: the JSON document, the text for a reader (made when asked for), and the exit code."""

    document: dict[str, Any]
    text: Callable[[], str]
    exit_code: int = 0
