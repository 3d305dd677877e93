"""A pytest fixture for the tests of your own models; installing coreproof is enough to have it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest


@pytest.fixture
def coreml_lowering() -> Callable[..., Any]:
    """`coreproof.testing.assert_lowers`, imported where a test asks for it."""
    from .testing import assert_lowers

    return assert_lowers
