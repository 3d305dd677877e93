"""Convolutions in one, two and three dimensions."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from ..memory import require_elements
from .convert import Ints
from .windows import for_torch, window_padding

_CONV = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}
_TRANSPOSED = {1: F.conv_transpose1d, 2: F.conv_transpose2d, 3: F.conv_transpose3d}


def conv(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    strides: Ints | None = None,
    pad_type: str = "valid",
    pad: Ints | None = None,
    dilations: Ints | None = None,
    groups: int = 1,
) -> Tensor:
    """Cross-correlation of [n, C_in, *D] with [C_out, C_in / groups, *K]"""
    rank = _rank(x, weight)
    ones = [1] * rank
    strides, dilations = strides or ones, dilations or ones
    padding = window_padding(pad_type, x.shape[2:], weight.shape[2:], strides, dilations, pad)
    padded = [size + before + after for size, (before, after) in zip(x.shape[2:], padding, strict=True)]
    reach = [(size - 1) * dilation + 1 for size, dilation in zip(weight.shape[2:], dilations, strict=True)]
    counts = [max(0, (s - r) // t + 1) for s, r, t in zip(padded, reach, strides, strict=True)]
    require_elements([*x.shape[:2], *padded], "conv")
    require_elements([x.shape[0], weight.shape[0], *counts], "conv")
    if all(before == after >= 0 for before, after in padding):
        return _CONV[rank](x, weight, bias, strides, [before for before, _ in padding], dilations, groups)
    return _CONV[rank](F.pad(x, for_torch(padding)), weight, bias, strides, 0, dilations, groups)


def conv_quantized(
    x: Tensor,
    weight: Tensor,
    quantization_type: str,
    quant_scale: Tensor,
    quant_bias: Tensor,
    bias: Tensor | None = None,
    nbits: int = 8,
    strides: Ints | None = None,
    pad_type: str = "valid",
    pad: Ints | None = None,
    dilations: Ints | None = None,
    groups: int = 1,
) -> Tensor:
    """conv with weight * quant_scale + quant_bias"""
    if quantization_type != "linear":
        raise ValueError(f"quantization_type {quantization_type!r}; expected linear")
    scale, shift = (_per_channel(one, weight) for one in (quant_scale, quant_bias))
    bias = None if bias is None else bias.to(x.dtype)
    return conv(x, weight.to(x.dtype) * scale + shift, bias, strides, pad_type, pad, dilations, groups)


def conv_transpose(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    pad: Ints | None = None,
    output_shape: Ints | None = None,
    pad_type: str = "valid",
    strides: Ints | None = None,
    dilations: Ints | None = None,
    groups: int = 1,
) -> Tensor:
    """Transposed convolution of [n, C_in, *D] with [C_in, C_out / groups, *K]; what is padded is cut off"""
    rank = _rank(x, weight)
    ones = [1] * rank
    strides, dilations = strides or ones, dilations or ones
    sizes, kernel = x.shape[2:], weight.shape[2:]
    full = [(s - 1) * t + (k - 1) * d + 1 for s, t, k, d in zip(sizes, strides, kernel, dilations, strict=True)]
    cut = _cut(pad_type, full, [s * t for s, t in zip(sizes, strides, strict=True)], pad, output_shape)
    require_elements([x.shape[0], weight.shape[1] * groups, *full], "conv_transpose")
    require_elements(
        [x.shape[0], weight.shape[1] * groups, *(f - a - b for f, (a, b) in zip(full, cut, strict=True))],
        "conv_transpose",
    )
    whole = F.pad(_TRANSPOSED[rank](x, weight, None, strides, 0, 0, groups, dilations), [-a for a in for_torch(cut)])
    return whole if bias is None else whole + bias.reshape(-1, *[1] * rank)


def _cut(
    pad_type: str, full: list[int], same: list[int], pad: Ints | None, output_shape: Ints | None
) -> list[tuple[int, int]]:
    """How much of the full result goes, before and after, in each dimension; negative where it is extended."""
    rank = len(full)
    if pad_type == "custom" and pad is not None:
        if len(pad) != 2 * rank:
            raise ValueError(f"pad has {len(pad)} values; expected {2 * rank}")
        cut = [(pad[2 * i], pad[2 * i + 1]) for i in range(rank)]
        if output_shape is None:
            return cut
        return [(b, full[i] - b - output_shape[2 + i]) for i, (b, _) in enumerate(cut)]
    if output_shape is not None:
        wanted = output_shape[2:]
    elif pad_type == "same":
        wanted = same
    elif pad_type in ("valid", "custom"):
        return [(0, 0)] * rank
    else:
        raise ValueError(f"unknown pad_type {pad_type!r}")
    if pad_type == "valid":
        return [(0, have - want) for have, want in zip(full, wanted, strict=True)]
    before = [max(0, have - want) // 2 for have, want in zip(full, wanted, strict=True)]
    return [(less, have - want - less) for less, have, want in zip(before, full, wanted, strict=True)]


def _per_channel(value: Tensor, weight: Tensor) -> Tensor:
    return value.reshape(-1, *[1] * (weight.dim() - 1)) if value.dim() == 1 else value


def _rank(x: Tensor, weight: Tensor) -> int:
    rank = x.dim() - 2
    if rank not in _CONV or weight.dim() != x.dim():
        raise ValueError(f"x has shape {list(x.shape)} and weight {list(weight.shape)}; expected rank 3 to 5, the same")
    return rank
