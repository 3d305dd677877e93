"""Converters of the tensor_transformation family."""

from __future__ import annotations

import copy
from typing import Any

from coremltools.converters.mil.frontend.torch import ops

from .arguments import literal
from .registry import converter


@converter("roll")
def roll(context: Any, node: Any) -> None:
    """roll(Tensor self, SymInt[1] shifts, int[1] dims=[]) -> Tensor; coremltools' converter wants all three"""
    explicit = copy.copy(node)
    explicit.inputs = [node.inputs[0], literal(node, "shifts", 1), literal(node, "dims", 2, default=())]
    ops.roll(context, explicit)
