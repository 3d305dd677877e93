"""The one place where coreproof changes how coremltools behaves, for the length of one conversion.

Three things are swapped inside `conversion()` and put back on the way out,
also after an error:

* the registry of torch converters, which is global in coremltools: ours are
  added (condition for removal: coremltools takes a registry as an argument);
* the progress bar of the torch frontend (`ops._tqdm`), which cannot be turned
  off per call (condition for removal: a `progress` argument);
* the level of the coremltools logger, because an attempt that fails is an
  ordinary answer here and must not be logged as an error.

Conversions are serialised by a lock: the registry is shared by all threads.
"""

from __future__ import annotations

import hashlib
import importlib
import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import coremltools
import executorch.backends.apple.coreml.compiler.torch_ops  # noqa: F401  ExecuTorch's own additions come first
import torch
from coremltools.converters.mil.frontend.torch import ops as torch_frontend_ops
from coremltools.converters.mil.frontend.torch.torch_op_registry import _TORCH_OPS_REGISTRY

from .registry import CONVERTERS

_FAMILIES = (
    "activation",
    "elementwise",
    "elementwise_binary",
    "elementwise_unary",
    "linear",
    "fills",
    "normalization",
    "pool",
    "random",
    "reduction",
    "scatter_gather",
    "tensor_operation",
    "tensor_transformation",
)
_LOCK = threading.RLock()
_inside = False


def _load_families() -> None:
    """Import the converter families, which fill `CONVERTERS`."""
    for family in _FAMILIES:
        importlib.import_module(f"{__package__}.{family}")


def _no_progress(iterable: Any, **_: Any) -> Any:
    return iterable


def has_converter(op: torch._ops.OpOverload) -> bool:
    """Whether coremltools or coreproof has a converter of that name at all (it may still refuse the arguments)."""
    with conversion():
        return _TORCH_OPS_REGISTRY.get_func(op.name()) is not None


def converters() -> str:
    """A digest of which function converts which op: other converters, other verdicts."""
    with conversion():
        table = _TORCH_OPS_REGISTRY.name_to_func_mapping
        named = sorted(f"{name} {function.__module__}.{function.__qualname__}" for name, function in table.items())
    return hashlib.sha256("\n".join(named).encode()).hexdigest()


@contextmanager
def conversion() -> Iterator[None]:
    """Use coreproof's converters, silently, in the body; everything is as before afterwards. Scopes may nest."""
    global _inside
    with _LOCK:
        if _inside:  # the lock is held by this thread: an outer scope has made the swap
            yield
            return
        _load_families()
        registry = _TORCH_OPS_REGISTRY.name_to_func_mapping
        progress = torch_frontend_ops._tqdm
        logger: logging.Logger = coremltools._logger
        level = logger.level
        _TORCH_OPS_REGISTRY.name_to_func_mapping = {**registry, **CONVERTERS}
        torch_frontend_ops._tqdm = _no_progress
        logger.setLevel(logging.CRITICAL + 1)
        _inside = True
        try:
            yield
        finally:
            _inside = False
            _TORCH_OPS_REGISTRY.name_to_func_mapping = registry
            torch_frontend_ops._tqdm = progress
            logger.setLevel(level)
