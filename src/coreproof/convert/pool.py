"""Converters of the pool family."""

from __future__ import annotations

import copy
import math
from typing import Any

from coremltools.converters.mil.frontend.torch import ops
from coremltools.converters.mil.mil import Builder as mb

from .arguments import constant, literal, mil_dtype
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


@converter(*(f"avg_pool{n}d" for n in (1, 2, 3)))
def avg_pool(context: Any, node: Any) -> None:
    """avg_pool2d(Tensor self, int[2] kernel_size, ..., int? divisor_override=None) -> Tensor

    With a divisor of the caller's, a sum is divided by it: the mean over the kernel, padding counted, times its size.

    Raises:
        NotImplementedError: a divisor with `ceil_mode`, where MIL's mean leaves out what lies beyond the padding.
    """
    divisor = literal(node, "divisor_override", 6)
    explicit = copy.copy(node)
    kernel = literal(node, "kernel_size", 1)
    stride = literal(node, "stride", 2, default=()) or kernel
    padding = literal(node, "padding", 3, default=(0,) * len(kernel))
    ceil_mode = literal(node, "ceil_mode", 4, default=False)
    counted = literal(node, "count_include_pad", 5, default=True) or divisor is not None
    explicit.inputs, explicit.kwinputs = [node.inputs[0], kernel, stride, padding, ceil_mode, counted], {}
    if divisor is None:
        ops.avg_pool1d(context, explicit)
        return
    if ceil_mode:
        raise NotImplementedError(f"{node.kind} with divisor_override and ceil_mode")
    explicit.name = f"{node.name}_mean"
    ops.avg_pool1d(context, explicit)
    factor = constant(math.prod(kernel) / divisor, mil_dtype(node))
    context.add(mb.mul(x=context[explicit.name], y=factor, name=node.name))
