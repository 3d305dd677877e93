"""Compressed weights: what a file stores in fewer bits, to the values that it stands for.

Every operand is a constant, so the interpreter computes each of these once.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ..blob import unpacked
from ..dtypes import element_type
from ..memory import require_elements
from .convert import Ints


def constexpr_affine_dequantize_ios16(quantized_data: Tensor, zero_point: Tensor, scale: Tensor, axis: int) -> Tensor:
    """scale * (quantized_data - zero_point), scale and zero point one for all or one for each entry of the axis"""
    data = quantized_data.to(scale.dtype)
    return _along(scale, data, axis) * (data - _along(zero_point.to(scale.dtype), data, axis))


def _along(parameter: Tensor, data: Tensor, axis: int) -> Tensor:
    if parameter.numel() == 1:
        return parameter.reshape(())
    return parameter.reshape([-1 if i == axis % data.dim() else 1 for i in range(data.dim())])


def constexpr_cast_ios16(source_val: Tensor, output_dtype: str) -> Tensor:
    """The same values in another float type"""
    if output_dtype not in ("fp16", "fp32"):
        raise ValueError(f"output_dtype {output_dtype!r}; expected fp16 or fp32")
    return source_val


_TABLES = {2: 1, 4: 2, 8: 3, 16: 4, 64: 6, 256: 8}  # bits of an index into a table, by its entries


def _unpacked(packed: Tensor, bits: int, count: int) -> Tensor:
    """Indices of `bits` bits from bytes, the least significant bit first."""
    if packed.numel() * 8 < bits * count:
        raise ValueError(f"{packed.numel()} bytes hold fewer than {count} entries of {bits} bits")
    return unpacked(memoryview(packed.contiguous().numpy()), 0, count, element_type(f"uint{bits}"))


def constexpr_lut_to_dense_ios16(indices: Tensor, lut: Tensor, shape: Ints) -> Tensor:
    """lut[index] for packed indices of log2(entries) bits"""
    require_elements(shape, "constexpr_lut_to_dense")
    if lut.numel() not in _TABLES:
        raise ValueError(f"a table of {lut.numel()} entries; expected one of {', '.join(map(str, _TABLES))}")
    places = _unpacked(indices.reshape(-1), _TABLES[lut.numel()], math.prod(shape))
    return lut.reshape(-1)[places.to(torch.int32)].reshape(shape)


def constexpr_sparse_to_dense_ios16(nonzero_data: Tensor, mask: Tensor, shape: Ints) -> Tensor:
    """The values where the packed mask has a 1, zeros elsewhere"""
    require_elements(shape, "constexpr_sparse_to_dense")
    bits = _unpacked(mask.reshape(-1), 1, math.prod(shape)).bool().reshape(shape)
    return _placed(nonzero_data, bits)


def constexpr_sparse_to_dense_ios18(nonzero_data: Tensor, mask: Tensor) -> Tensor:
    """The values where the mask has a 1, zeros elsewhere"""
    return _placed(nonzero_data, mask != 0)


def _placed(values: Tensor, mask: Tensor) -> Tensor:
    if int(mask.sum()) != values.numel():
        raise ValueError(f"a mask with {int(mask.sum())} ones for {values.numel()} values")
    dense = torch.zeros(mask.shape, dtype=values.dtype)
    dense[mask] = values.reshape(-1)
    return dense


def _blocked(parameter: Tensor, shape: torch.Size) -> Tensor:
    """A parameter of one value for each block, one for each element: each dimension repeated up to the data's."""
    pairs = zip(parameter.shape, shape, strict=False)
    if parameter.dim() != len(shape) or any(have < 1 or want % have for have, want in pairs):
        raise ValueError(f"blocks of shape {list(parameter.shape)} do not divide shape {list(shape)}")
    for axis, want in enumerate(shape):
        parameter = parameter.repeat_interleave(want // parameter.shape[axis], axis)
    return parameter


def constexpr_blockwise_shift_scale_ios18(data: Tensor, scale: Tensor, offset: Tensor | None = None) -> Tensor:
    """scale * (data - offset), scale and offset one for each block"""
    shifted = data.to(scale.dtype)
    if offset is not None:
        shifted = shifted - _blocked(offset.to(scale.dtype), data.shape)
    return _blocked(scale, data.shape) * shifted


def constexpr_lut_to_dense_ios18(indices: Tensor, lut: Tensor, vector_axis: int | None = None) -> Tensor:
    """lut[block, index] for each index: a value, or a vector that is laid along the axis"""
    vectors = _looked_up(indices, lut)
    return _laid(vectors, vector_axis)


def _looked_up(indices: Tensor, lut: Tensor) -> Tensor:
    """The vector of each index, in a last dimension; the table's leading dimensions are blocks of the indices."""
    if lut.dim() != indices.dim() + 2:
        raise ValueError(f"a table of shape {list(lut.shape)} for indices of shape {list(indices.shape)}")
    entries, width = lut.shape[-2:]
    require_elements([*indices.shape, width], "a lookup table")
    tables = torch.arange(math.prod(lut.shape[:-2])).reshape(lut.shape[:-2])
    rows = _blocked(tables, indices.shape) * entries + indices.to(torch.int64)
    if indices.numel() and int(indices.max()) >= entries:
        raise ValueError(f"index {int(indices.max())} in a table of {entries} entries")
    return lut.reshape(-1, width)[rows]


def _laid(vectors: Tensor, axis: int | None) -> Tensor:
    if vectors.shape[-1] == 1:
        return vectors.squeeze(-1)
    if axis is None:
        raise ValueError("vectors need a vector_axis")
    axis = axis % (vectors.dim() - 1)
    return vectors.movedim(-1, axis + 1).flatten(axis, axis + 1)


def constexpr_lut_to_sparse_ios18(
    indices_mask: Tensor, indices_nonzero_data: Tensor, lut: Tensor, vector_axis: int | None = None
) -> list[Tensor]:
    """The mask and the values of lut_to_dense where the mask has a 1"""
    dense = constexpr_lut_to_dense_ios18(_placed(indices_nonzero_data, indices_mask != 0), lut, vector_axis)
    spread = (indices_mask != 0)[..., None].expand(*indices_mask.shape, lut.shape[-1])
    mask = _laid(spread, vector_axis)
    return [mask.to(indices_mask.dtype), dense[mask]]


def constexpr_sparse_blockwise_shift_scale_ios18(
    data_mask: Tensor, nonzero_data: Tensor, scale: Tensor, offset: Tensor | None = None
) -> list[Tensor]:
    """The mask and the values of blockwise_shift_scale where the mask has a 1"""
    mask = data_mask != 0
    dense = constexpr_blockwise_shift_scale_ios18(_placed(nonzero_data, mask), scale, offset)
    return [data_mask, dense[mask]]
