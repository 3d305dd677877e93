"""Settings of every test: seeded, and hypothesis without a deadline."""

from __future__ import annotations

import os

import hypothesis
import pytest
import torch

# The first example pays for imports and first calls, which a deadline would take for a slow test.
hypothesis.settings.register_profile("coreproof", deadline=None, derandomize=True)
hypothesis.settings.load_profile("coreproof")


@pytest.fixture(autouse=True, scope="session")
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> None:
    os.environ["COREPROOF_CACHE"] = str(tmp_path_factory.mktemp("cache"))


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)
