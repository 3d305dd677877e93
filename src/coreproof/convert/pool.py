"""Converters of the pool family."""

from __future__ import annotations

import copy
from typing import Any

from coremltools.converters.mil.frontend.torch import ops

from .arguments import literal
from .registry import converter


@converter(*(f"max_pool{n}d{suffix}" for n in (1, 2, 3) for suffix in ("", "_with_indices")))
def max_pool(context: Any, node: Any) -> None:
    """max_pool2d(Tensor self, int[2] kernel_size, int[2] stride=[], int[2] padding=0, ...) -> Tensor

    A stride left out is the kernel's size; coremltools' converter wants it as an argument.
    """
    explicit = copy.copy(node)
    stride = literal(node, "stride", 2, default=()) or literal(node, "kernel_size", 1)
    explicit.inputs = [*node.inputs[:2], stride, *node.inputs[3:]]
    ops.max_pool1d(context, explicit)
