"""Affine quantisation of values that are computed."""

from __future__ import annotations

import torch
from torch import Tensor

from ..dtypes import element_type


def _along(parameter: Tensor, data: Tensor, axis: int | None) -> Tensor:
    if parameter.dim() == 0:
        return parameter
    if axis is None:
        raise ValueError("a scale for each entry of an axis needs the axis")
    return parameter.reshape([-1 if i == axis % data.dim() else 1 for i in range(data.dim())])


def quantize_ios17(
    input: Tensor, scale: Tensor, output_dtype: str, zero_point: Tensor | None = None, axis: int | None = None
) -> Tensor:
    """clip(round(input / scale) + zero_point) to the range of the type, halves to even"""
    element = element_type(output_dtype)
    whole = torch.round(input / _along(scale, input, axis))
    if zero_point is not None:
        whole = whole + _along(zero_point.to(input.dtype), input, axis)
    return torch.nan_to_num(whole).clamp(*element.limits).to(element.carrier)


def dequantize_ios17(input: Tensor, scale: Tensor, zero_point: Tensor | None = None, axis: int | None = None) -> Tensor:
    """scale * (input - zero_point)"""
    shifted = input.to(scale.dtype)
    if zero_point is not None:
        shifted = shifted - _along(zero_point.to(scale.dtype), input, axis)
    return _along(scale, input, axis) * shifted
