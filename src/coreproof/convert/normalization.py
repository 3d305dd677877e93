"""Converters of the normalization family."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from coremltools.converters.mil.mil import Builder as mb
from coremltools.converters.mil.mil import Var, types

from .arguments import as_dtype, constant, literal, mil_dtype, operand
from .registry import converter

# torch's default of eps for every input dtype (float16 and bfloat16 too), seen in eager torch 2.13.
_FLOAT32_EPSILON = float(np.finfo(np.float32).eps)


@converter("rms_norm")
def rms_norm(context: Any, node: Any) -> None:
    """rms_norm(Tensor input, SymInt[] normalized_shape, Tensor? weight=None, float? eps=None) -> Tensor"""
    result, _ = _rms_norm(context, node, mil_dtype(node))
    context.add(result, node.name)


@converter("_fused_rms_norm")
def _fused_rms_norm(context: Any, node: Any) -> None:
    """_fused_rms_norm(Tensor input, int[] normalized_shape, Tensor? weight, float? eps) -> (Tensor, Tensor rstd)"""
    context.add(_rms_norm(context, node, mil_dtype(node, 0)), node.name)


def _rms_norm(context: Any, node: Any, result_dtype: str) -> tuple[Var, Var]:
    """x / sqrt(mean(x**2) + eps) over the last dims, times the weight; and 1 / sqrt(mean(x**2) + eps).

    Everything is first divided by s = max(|x|, sqrt(eps)), one s a row: x / sqrt(mean(x**2) + eps) is
    (x/s) / sqrt(mean((x/s)**2) + eps/s/s). No square then leaves the range of float16: above |x| = 256 it would be
    infinite and the row 0, below 2e-4 it would be 0. coremltools also scales, but adds eps itself to the scaled mean,
    4 to 6% off where eps matters (apple/coremltools#2821), and takes 1e-5 where eps is left out.
    For finite float32 rows whose squares do not overflow the result is torch's to round-off.
    """
    x = operand(context, node, "input", 0)
    axes = list(range(-len(literal(node, "normalized_shape", 1)), 0))
    weight = operand(context, node, "weight", 2)
    epsilon = literal(node, "eps", 3, default=_FLOAT32_EPSILON)
    dtype = types.builtin_to_string(x.dtype)

    largest = mb.reduce_max(x=mb.abs(x=x), axes=axes, keep_dims=True)
    scale = mb.maximum(x=largest, y=constant(math.sqrt(epsilon), dtype))
    scaled = mb.real_div(x=x, y=scale)
    mean_square = mb.reduce_mean(x=mb.square(x=scaled), axes=axes, keep_dims=True)
    scaled_epsilon = mb.real_div(x=mb.real_div(x=constant(epsilon, dtype), y=scale), y=scale)
    inverse = mb.rsqrt(x=mb.add(x=mean_square, y=scaled_epsilon))
    result = as_dtype(mb.mul(x=scaled, y=inverse), result_dtype)
    if weight is not None:
        result = mb.mul(x=result, y=as_dtype(weight, result_dtype))
    return result, mb.real_div(x=inverse, y=scale)
