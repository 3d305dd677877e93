"""A pytest plugin that lets coremltools' own tests predict, with coreproof's reference runtime as Core ML.

Loaded by `coremltools_tests.py` with `-p predict_plugin`. coremltools' helpers
ask for macOS before they predict; while the tests run they are told that they
are on macOS 15.
"""

from __future__ import annotations

import random
from typing import Any

import coremltools._deps as deps
import coremltools.models.model as model
import coremltools.models.utils as utils
import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--fixed-sample", type=int, default=0, help="run so many of the tests, chosen by a fixed seed")


def pytest_configure(config: pytest.Config) -> None:
    deps._IS_MACOS = True
    for module in (utils, model):
        module._is_macos = lambda: True
        module._macos_version = lambda: (15, 0)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep the ML Program parameters, and a sample of them where one is asked for."""
    kept = [item for item in items if not is_neural_network(item)]
    size = config.getoption("--fixed-sample")
    if size and size < len(kept):
        chosen = set(random.Random(0).sample(range(len(kept)), size))
        kept = [item for number, item in enumerate(kept) if number in chosen]
    config.hook.pytest_deselected(items=[item for item in items if item not in set(kept)])
    items[:] = kept


def is_neural_network(item: pytest.Item) -> bool:
    """Whether the test's parameters say that it converts to a neural network."""
    parameters: dict[str, Any] = getattr(getattr(item, "callspec", None), "params", {})
    return any(_backend(value) == "neuralnetwork" for value in parameters.values())


def _backend(value: Any) -> Any:
    return getattr(value, "backend", value[0] if isinstance(value, tuple) and value else None)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Any:
    from coreproof.runtime import coremltools_predict

    with coremltools_predict():
        return (yield)
