"""Resizing and sampling of images, whose height and width are the last two dimensions.

A resize is separable: for each axis a list of positions in the input, between
whose two neighbours the output interpolates.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ..ir import TensorType, Type
from ..memory import require_elements
from .convert import Ints


def _positions(size: int, count: int, mode: str) -> Tensor:
    """Where the `count` outputs of an axis of `size` lie, by sampling mode, before they are clamped to the axis."""
    if count < 1:
        raise ValueError(f"an output of size {count}")
    steps = torch.arange(count, dtype=torch.float64)
    if mode in ("STRICT_ALIGN_CORNERS", "ALIGN_CORNERS"):
        if count == 1:
            middle = (size - 1) / 2 if mode == "ALIGN_CORNERS" else 0.0
            return torch.full((1,), middle, dtype=torch.float64)
        return steps * (size - 1) / (count - 1)
    if mode == "DEFAULT":  # one division of whole numbers, so that halves are halves
        return steps * size / count
    if mode == "OFFSET_CORNERS":
        return (steps + 0.5) * max(1, size - 1) / count
    if mode == "UNALIGN_CORNERS":
        return (steps + 0.5) * size / count - 0.5
    raise ValueError(f"unknown sampling_mode {mode!r}")


def _interpolated(x: Tensor, axis: int, positions: Tensor) -> Tensor:
    """x at positions of one axis, clamped to it."""
    size = x.shape[axis]
    clamped = positions.clamp(0, size - 1)
    low = clamped.floor().to(torch.int64)
    high = (low + 1).clamp(max=size - 1)
    weight = (clamped - low).to(x.dtype).reshape([-1 if i == axis % x.dim() else 1 for i in range(x.dim())])
    below, above = x.index_select(axis, low), x.index_select(axis, high)
    return below + (above - below) * weight


def _bilinear(x: Tensor, height: int, width: int, mode: str) -> Tensor:
    require_elements([*x.shape[:-2], height, width], "a resize")
    rows = _interpolated(x, x.dim() - 2, _positions(x.shape[-2], height, mode))
    return _interpolated(rows, x.dim() - 1, _positions(x.shape[-1], width, mode))


def _nearest(x: Tensor, height: int, width: int, start: float) -> Tensor:
    """Output i takes entry floor((i + start) * size / count)."""
    require_elements([*x.shape[:-2], height, width], "a resize")
    for axis, count in ((x.dim() - 2, height), (x.dim() - 1, width)):
        if count < 1:
            raise ValueError(f"an output of size {count}")
        chosen = (torch.arange(count, dtype=torch.float64) + start) * x.shape[axis] / count
        x = x.index_select(axis, chosen.floor().to(torch.int64))
    return x


def _scaled(x: Tensor, factors: tuple[float, float], results: list[Type] | None) -> tuple[int, int]:
    """The height and width of x times the factors, rounded down: as declared, else the product in float32."""
    declared = results[0].shape if results and isinstance(results[0], TensorType) else None
    found = []
    for axis, factor in zip((-2, -1), factors, strict=True):
        known = declared[axis] if declared else None
        product = torch.tensor(factor, dtype=torch.float32) * x.shape[axis]
        found.append(int(product.floor()) if known is None else known)
    return found[0], found[1]


def upsample_nearest_neighbor(
    x: Tensor,
    scale_factor_height: float = 1,
    scale_factor_width: float = 1,
    *,
    results: list[Type] | None = None,
) -> Tensor:
    """Larger by the factors, output i is entry floor(i * size / count)"""
    return _nearest(x, *_scaled(x, (scale_factor_height, scale_factor_width), results), 0.0)


def upsample_bilinear(
    x: Tensor,
    scale_factor_height: float = 1,
    scale_factor_width: float = 1,
    align_corners: bool = True,
    *,
    results: list[Type] | None = None,
) -> Tensor:
    """Larger by the factors, interpolated; aligned corners keep the outermost entries"""
    return upsample_bilinear_ios16(x, scale_factor_height, scale_factor_width, align_corners, results=results)


def upsample_bilinear_ios16(
    x: Tensor,
    scale_factor_height: float = 1,
    scale_factor_width: float = 1,
    align_corners: bool = True,
    half_pixel_centers: bool | None = None,
    *,
    results: list[Type] | None = None,
) -> Tensor:
    """As before; without aligned corners and half pixel centers positions are i * size / count"""
    height, width = _scaled(x, (scale_factor_height, scale_factor_width), results)
    if align_corners:
        return _bilinear(x, height, width, "STRICT_ALIGN_CORNERS")
    return _bilinear(x, height, width, "DEFAULT" if half_pixel_centers is False else "UNALIGN_CORNERS")


def resize_nearest_neighbor(x: Tensor, target_size_height: int, target_size_width: int) -> Tensor:
    """To a size, output i is entry floor((i + 1/2) * size / count).

    So coremltools uses it: for TensorFlow's ResizeNearestNeighbor with half pixel centers, and
    `upsample_nearest_neighbor` without them.
    """
    return _nearest(x, target_size_height, target_size_width, 0.5)


def resize_bilinear(
    x: Tensor, target_size_height: int = 1, target_size_width: int = 1, sampling_mode: str = "DEFAULT"
) -> Tensor:
    """To a size, interpolated"""
    return _bilinear(x, target_size_height, target_size_width, sampling_mode)


def resize_ios17(
    x: Tensor, shape: Ints, resized_dims: int, interpolation_mode: str = "LINEAR", sampling_mode: str = "DEFAULT"
) -> Tensor:
    """The last `resized_dims` dimensions to the last sizes of the shape; 0 keeps a size.

    NEAREST_NEIGHBOR takes, by DEFAULT, the entries of `resize_nearest_neighbor` (coremltools' test: 2 entries to 3
    are a, b, b); in another sampling mode the entry nearest to its position, the higher of two that are as near.
    """
    if not 0 <= resized_dims <= min(len(shape), x.dim()):
        raise ValueError(f"resized_dims {resized_dims} for shape {shape} and x of {list(x.shape)}")
    result = x if x.dtype.is_floating_point else x.double()
    kept, wanted = list(x.shape[: x.dim() - resized_dims]), shape[len(shape) - resized_dims :]
    sizes = [want or have for have, want in zip(x.shape[len(kept) :], wanted, strict=True)]
    require_elements(kept + sizes, "resize")
    for back in range(1, resized_dims + 1):
        axis, count = x.dim() - back, shape[-back]
        if count == 0:
            continue
        nearest_by_default = interpolation_mode == "NEAREST_NEIGHBOR" and sampling_mode == "DEFAULT"
        positions = _positions(x.shape[axis], count, "UNALIGN_CORNERS" if nearest_by_default else sampling_mode)
        if interpolation_mode == "NEAREST_NEIGHBOR":
            nearest = torch.floor(positions + 0.5).clamp(0, x.shape[axis] - 1)
            result = result.index_select(axis, nearest.to(torch.int64))
        elif interpolation_mode == "LINEAR":
            result = _interpolated(result, axis, positions)
        else:
            raise ValueError(f"unknown interpolation_mode {interpolation_mode!r}")
    return result.to(x.dtype)


def crop(x: Tensor, crop_height: Ints, crop_width: Ints) -> Tensor:
    """Without so many rows above and below, and columns left and right"""
    (top, bottom), (left, right) = crop_height, crop_width
    if min(top, bottom, left, right) < 0:
        raise ValueError(f"crop_height {crop_height} and crop_width {crop_width}")
    return x[..., top : x.shape[-2] - bottom, left : x.shape[-1] - right]


def crop_resize(
    x: Tensor,
    roi: Tensor,
    target_height: int = 1,
    target_width: int = 1,
    normalized_coordinates: bool = False,
    spatial_scale: float = 1.0,
    box_coordinate_mode: str = "CORNERS_HEIGHT_FIRST",
    sampling_mode: str = "DEFAULT",
) -> Tensor:
    """Boxes of the images, each interpolated to one size: [N, B or 1, C, height, width]"""
    return crop_resize_ios16(
        x, roi, target_height, target_width, normalized_coordinates, spatial_scale, box_coordinate_mode,
        sampling_mode, pad_value=None,
    )  # fmt: skip


def crop_resize_ios16(
    x: Tensor,
    roi: Tensor,
    target_height: int = 1,
    target_width: int = 1,
    normalized_coordinates: bool = False,
    spatial_scale: float = 1.0,
    box_coordinate_mode: str = "CORNERS_HEIGHT_FIRST",
    sampling_mode: str = "DEFAULT",
    pad_value: float | None = 0.0,
) -> Tensor:
    """As before, with a value for positions outside the image"""
    rows = roi.reshape(roi.shape[0], math.prod(roi.shape[1:]))
    if rows.shape[1] not in (4, 5):
        raise ValueError(f"roi has shape {list(roi.shape)}; expected 4 or 5 values a box")
    indexed = rows.shape[1] == 5
    images_each = 1 if indexed else x.shape[0]
    require_elements([rows.shape[0], images_each, x.shape[1], target_height, target_width], "crop_resize")
    if rows.shape[0] == 0:
        return x.new_empty(0, images_each, x.shape[1], target_height, target_width)
    patches = []
    for row in rows.tolist():
        if indexed and not 0 <= row[0] < x.shape[0]:
            raise ValueError(f"a box of image {row[0]:g}; there are {x.shape[0]}")
        images = x[int(row[0])][None] if indexed else x
        patches.append(
            _patch(
                images, row[-4:], target_height, target_width, normalized_coordinates, spatial_scale,
                box_coordinate_mode, sampling_mode, pad_value,
            )
        )  # fmt: skip
    return torch.stack(patches)


def crop_resize_ios17(
    x: Tensor,
    boxes: Tensor,
    box_indices: Ints | None = None,
    target_height: int = 1,
    target_width: int = 1,
    normalized_coordinates: bool = False,
    spatial_scale: float = 1.0,
    box_coordinate_mode: str = "CORNERS_HEIGHT_FIRST",
    sampling_mode: str = "DEFAULT",
    pad_value: float = 0.0,
) -> Tensor:
    """As before, boxes [N, 4] with the image of each by index: [N, C, height, width]"""
    indices = list(range(boxes.shape[0])) if box_indices is None else box_indices
    if len(indices) != boxes.shape[0] or any(not 0 <= i < x.shape[0] for i in indices):
        raise ValueError(f"box_indices {indices} for {boxes.shape[0]} boxes and {x.shape[0]} images")
    require_elements([boxes.shape[0], x.shape[1], target_height, target_width], "crop_resize")
    if not indices:
        return x.new_empty(0, x.shape[1], target_height, target_width)
    return torch.cat(
        [
            _patch(
                x[index][None], box, target_height, target_width, normalized_coordinates, spatial_scale,
                box_coordinate_mode, sampling_mode, pad_value,
            )
            for index, box in zip(indices, boxes.tolist(), strict=True)
        ]
    )  # fmt: skip


def _patch(
    images: Tensor,
    box: list[float],
    height: int,
    width: int,
    normalized: bool,
    scale: float,
    box_mode: str,
    sampling_mode: str,
    pad_value: float | None,
) -> Tensor:
    top, left, bottom, right = _corners(box, box_mode)
    if normalized:
        rows, columns = images.shape[-2] - 1, images.shape[-1] - 1
        top, bottom, left, right = top * rows, bottom * rows, left * columns, right * columns
    result = images
    outside = torch.zeros(height, width, dtype=torch.bool)
    for axis, count, first, last in ((2, height, top, bottom), (3, width, left, right)):
        positions = _in_box(first * scale, last * scale, count, sampling_mode)
        result = _interpolated(result, axis, positions)
        beyond = (positions < 0) | (positions > images.shape[axis] - 1)
        outside |= beyond[:, None] if axis == 2 else beyond
    return result if pad_value is None else torch.where(outside, torch.tensor(pad_value, dtype=images.dtype), result)


def _corners(box: list[float], mode: str) -> tuple[float, float, float, float]:
    a, b, c, d = box
    if mode == "CORNERS_HEIGHT_FIRST":
        return a, b, c, d
    if mode == "CORNERS_WIDTH_FIRST":
        return b, a, d, c
    if mode == "CENTER_SIZE_HEIGHT_FIRST":
        return a - c / 2, b - d / 2, a + c / 2, b + d / 2
    if mode == "CENTER_SIZE_WIDTH_FIRST":
        return b - d / 2, a - c / 2, b + d / 2, a + c / 2
    raise ValueError(f"unknown box_coordinate_mode {mode!r}")


def _in_box(first: float, last: float, count: int, mode: str) -> Tensor:
    """The positions of an axis inside a box from first to last, by sampling mode."""
    steps = torch.arange(count, dtype=torch.float64)
    length = last - first
    if mode in ("STRICT_ALIGN_CORNERS", "ALIGN_CORNERS"):
        if count == 1:
            return torch.full((1,), (first + last) / 2 if mode == "ALIGN_CORNERS" else first, dtype=torch.float64)
        return first + steps * (length / (count - 1))
    size = length + 1
    if mode == "DEFAULT":
        return first + (steps * ((size - size / count) / (count - 1)) if count > 1 else 0 * steps)
    if mode == "OFFSET_CORNERS":
        delta = max(1.0, length) / count if length >= 1 else length / count
        return first + 0.5 * delta + steps * delta
    if mode == "UNALIGN_CORNERS":
        spacing = size / count
        return first + steps * spacing + 0.5 * spacing - 0.5
    raise ValueError(f"unknown sampling_mode {mode!r}")


def resample(
    x: Tensor,
    coordinates: Tensor,
    sampling_mode: str,
    padding_mode: str,
    padding_value: float,
    coordinates_mode: str,
    align_corners: bool,
) -> Tensor:
    """x at coordinates (x, y) in pixels or normalised"""
    sampling_mode, padding_mode, coordinates_mode = (
        mode.lower() for mode in (sampling_mode, padding_mode, coordinates_mode)
    )
    require_elements([*x.shape[:2], *coordinates.shape[1:3]], "resample")
    column = _in_pixels(coordinates[..., 0].double(), x.shape[-1], coordinates_mode, align_corners)
    row = _in_pixels(coordinates[..., 1].double(), x.shape[-2], coordinates_mode, align_corners)
    if sampling_mode == "nearest":
        row, column = _turned(row, x.shape[-2], padding_mode), _turned(column, x.shape[-1], padding_mode)
        return _pixel(x, row.round(), column.round(), padding_mode, padding_value)
    if sampling_mode != "bilinear":
        raise ValueError(f"unknown sampling_mode {sampling_mode!r}")
    top, left = row.floor(), column.floor()
    down, right = (row - top).to(x.dtype)[:, None], (column - left).to(x.dtype)[:, None]

    def at(add_row: int, add_column: int) -> Tensor:
        return _pixel(x, top + add_row, left + add_column, padding_mode, padding_value)

    upper = at(0, 0) * (1 - right) + at(0, 1) * right
    lower = at(1, 0) * (1 - right) + at(1, 1) * right
    return upper * (1 - down) + lower * down


def _in_pixels(position: Tensor, size: int, mode: str, align_corners: bool) -> Tensor:
    if mode == "unnormalized":
        return position
    if mode == "normalized_minus_one_to_one":
        position = (position + 1) / 2
    elif mode != "normalized_zero_to_one":
        raise ValueError(f"unknown coordinates_mode {mode!r}")
    return position * (size - 1) if align_corners else position * size - 0.5


def _pixel(x: Tensor, row: Tensor, column: Tensor, padding_mode: str, padding_value: float) -> Tensor:
    """The pixels at whole rows and columns [B, H2, W2] of each image: [B, C, H2, W2]."""
    outside = (row < 0) | (row > x.shape[-2] - 1) | (column < 0) | (column > x.shape[-1] - 1)
    rows = _brought_inside(row, x.shape[-2], padding_mode)
    columns = _brought_inside(column, x.shape[-1], padding_mode)
    batch = torch.arange(x.shape[0]).reshape(-1, 1, 1)
    found = x.permute(0, 2, 3, 1)[batch, rows, columns].permute(0, 3, 1, 2)
    if padding_mode != "constant":
        return found
    return torch.where(outside[:, None], torch.tensor(padding_value, dtype=x.dtype), found)


def _turned(position: Tensor, size: int, mode: str) -> Tensor:
    """A position reflected into the image; reflected before it is rounded, which decides halves as grid_sample does."""
    if mode == "reflection":
        period = max(1, 2 * (size - 1))
        turned = position.remainder(period)
        return torch.where(turned > size - 1, period - turned, turned).clamp(0, size - 1)
    if mode == "symmetric":
        turned = (position + 0.5).remainder(2 * size)
        return (torch.where(turned > size, 2 * size - turned, turned) - 0.5).clamp(0, size - 1)
    return position


def _brought_inside(position: Tensor, size: int, mode: str) -> Tensor:
    whole = torch.nan_to_num(position).clamp(-(2**40), 2**40).to(torch.int64)
    if mode in ("constant", "border"):
        return whole.clamp(0, size - 1)
    if mode == "reflection":
        period = max(1, 2 * (size - 1))
        turned = whole.remainder(period)
        return torch.where(turned >= size, period - turned, turned)
    if mode == "symmetric":
        turned = whole.remainder(2 * size)
        return torch.where(turned >= size, 2 * size - 1 - turned, turned)
    raise ValueError(f"unknown padding_mode {mode!r}")


def affine(
    x: Tensor,
    transform_matrix: Tensor,
    output_height: int,
    output_width: int,
    sampling_mode: str,
    padding_mode: str,
    padding_value: float,
    coordinates_mode: str,
    align_corners: bool,
) -> Tensor:
    """x at (a0 x + a1 y + a2, b0 x + b1 y + b2) for each (x, y) of the output"""
    require_elements([*x.shape[:2], output_height, output_width], "affine")
    coordinates_mode = coordinates_mode.lower()
    rows, columns = (_axis(count, coordinates_mode, align_corners) for count in (output_height, output_width))
    y, first = torch.meshgrid(rows, columns, indexing="ij")
    matrix = transform_matrix.double().expand(x.shape[0], 6)[:, :, None, None]
    column = matrix[:, 0] * first + matrix[:, 1] * y + matrix[:, 2]
    row = matrix[:, 3] * first + matrix[:, 4] * y + matrix[:, 5]
    coordinates = torch.stack([column, row], -1)
    return resample(x, coordinates, sampling_mode, padding_mode, padding_value, coordinates_mode, align_corners)


def _axis(count: int, mode: str, align_corners: bool) -> Tensor:
    pixels = torch.arange(count, dtype=torch.float64)
    if mode == "unnormalized":
        return pixels
    part = pixels / max(1, count - 1) if align_corners else (pixels + 0.5) / count
    return part * 2 - 1 if mode == "normalized_minus_one_to_one" else part
