"""Makes the helpers beside this folder importable, and names the marker of the longer runs."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "models: lowers a whole model; left out of CI, run by `pytest tests/models`")
