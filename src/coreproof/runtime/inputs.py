"""What the user gives to a function and gets from it: numpy arrays and images to carried tensors, and back."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from ..errors import InputError
from .dtypes import ElementType
from .ir import Feature, Function, StateType, TensorType, Value

_CHANNELS = {"RGB": 3, "BGR": 3, "GRAYSCALE": 1, "GRAYSCALE_FLOAT16": 1}


def carried_inputs(function: Function, data: dict[str, Any]) -> dict[str, torch.Tensor]:
    """A carried tensor for each input of the function (states aside).

    Args:
        function: with or without features; without, the declared types of its inputs are what is checked.
        data: by name an array, number, list, torch tensor, or PIL image for an image input. NaN and inf are allowed.

    Raises:
        InputError: an input is missing, unknown, of a wrong shape, or of a type that the declared one cannot hold.
    """
    values = [value for value in function.inputs if not isinstance(value.type, StateType)]
    features = {feature.name: feature for feature in function.input_features}
    unknown = sorted(set(data) - {value.name for value in values})
    if unknown:
        expected = ", ".join(value.name for value in values) or "no input"
        raise InputError(f"function {function.name!r} has no input {unknown[0]!r}; expected {expected}")
    return {value.name: _one(value, features.get(value.name), data) for value in values}


def _one(value: Value, feature: Feature | None, data: dict[str, Any]) -> torch.Tensor:
    declared = value.type
    if not isinstance(declared, TensorType):
        raise InputError(f"input {value.name!r} is a {declared}; only tensors can be given")
    given = data.get(value.name)
    if given is None:
        return _default(value.name, declared, feature)
    if feature is not None and feature.kind == "image":
        return _image(given, feature).to(declared.element.carrier)
    tensor = _tensor(given, declared.element, value.name)
    _require_shape(tensor, declared, feature, value.name)
    if declared.shape == () and tensor.dim() == 1:  # Core ML's arrays have at least one dimension
        tensor = tensor.reshape(())
    return tensor


def _default(name: str, declared: TensorType, feature: Feature | None) -> torch.Tensor:
    if feature is None or not feature.optional:
        raise InputError(f"input {name!r} is missing; expected {declared}")
    shape = feature.type.shape if feature.type is not None and feature.type.shape is not None else declared.shape
    if shape is None or None in shape:
        raise InputError(f"input {name!r} is missing, and its default has no known shape; expected {declared}")
    return torch.full([s or 0 for s in shape], feature.default or 0, dtype=declared.element.carrier)


def _tensor(given: Any, element: ElementType, name: str) -> torch.Tensor:
    if isinstance(given, torch.Tensor):
        tensor = given.detach().cpu()
    else:
        array = np.asarray(given)
        if array.dtype.kind not in "biuf":
            raise InputError(f"input {name!r} is of type {array.dtype}; expected {element.name}")
        if array.dtype in (np.uint16, np.uint32):
            array = array.astype(np.int64)
        tensor = torch.from_numpy(np.array(array, order="C", copy=True)).reshape(array.shape)
    if tensor.dtype.is_complex:
        raise InputError(f"input {name!r} is of type {tensor.dtype}; expected {element.name}")
    if element.is_integer and tensor.dtype != torch.bool:
        _require_whole(tensor, element, name)
    if element.carrier == torch.float32 and element.stored != torch.float32 and tensor.dtype != element.stored:
        tensor = tensor.to(element.stored)
    return tensor.to(element.carrier)


def _require_whole(tensor: torch.Tensor, element: ElementType, name: str) -> None:
    if not tensor.numel():
        return
    if tensor.dtype.is_floating_point and not bool((torch.isfinite(tensor) & (tensor == tensor.trunc())).all()):
        raise InputError(f"input {name!r} has values that are no integers; expected {element.name}")
    low, high = element.limits
    if int(tensor.min()) < low or int(tensor.max()) > high:
        raise InputError(f"input {name!r} has values outside {low} to {high}; expected {element.name}")


def _require_shape(tensor: torch.Tensor, declared: TensorType, feature: Feature | None, name: str) -> None:
    shape = tuple(tensor.shape)
    if declared.shape is not None and not (declared.shape == () and shape == (1,)):
        same_rank = len(shape) == len(declared.shape)
        pairs = zip(shape, declared.shape, strict=False)
        if not same_rank or any(want is not None and got != want for got, want in pairs):
            raise InputError(f"input {name!r} has shape {list(shape)}; expected {declared}")
    if feature is None:
        return
    if feature.enumerated and shape not in feature.enumerated:
        listed = ", ".join(str(list(one)) for one in feature.enumerated)
        raise InputError(f"input {name!r} has shape {list(shape)}; expected one of {listed}")
    if feature.ranges and len(feature.ranges) == len(shape):
        for axis, (size, (low, high)) in enumerate(zip(shape, feature.ranges, strict=True)):
            if size < low or (high is not None and size > high):
                limit = "more" if high is None else str(high)
                raise InputError(f"input {name!r} has size {size} in dimension {axis}; expected {low} to {limit}")


def _image(given: Any, feature: Feature) -> torch.Tensor:
    """An image as [1, channels, height, width], channels in the order that the model declares, values 0 to 255."""
    if hasattr(given, "convert") and hasattr(given, "mode"):  # a PIL image, without importing PIL
        mode = {"GRAYSCALE": "L", "GRAYSCALE_FLOAT16": "F"}.get(feature.color, "RGB")
        if given.mode != mode and not (mode == "RGB" and given.mode == "RGBA"):
            raise InputError(f"image {feature.name!r} has the mode {given.mode}; expected {mode}")
        given = np.asarray(given.convert(mode))
    array = np.asarray(given)
    if array.ndim == 2:
        array = array[:, :, None]
    if array.ndim != 3 or array.shape[2] != _CHANNELS[feature.color]:
        raise InputError(
            f"image {feature.name!r} has shape {list(array.shape)}; expected [height, width, "
            f"{_CHANNELS[feature.color]}] or a PIL image"
        )
    _require_image_size(array.shape[0], array.shape[1], feature)
    if feature.color == "BGR":
        array = array[:, :, ::-1]
    return torch.from_numpy(np.ascontiguousarray(array.transpose(2, 0, 1))[None].astype(np.float32))


def _require_image_size(height: int, width: int, feature: Feature) -> None:
    allowed = {(feature.size[1], feature.size[0]), *feature.enumerated}
    if feature.ranges:
        fits = all(
            low <= size and (high is None or size <= high)
            for size, (low, high) in zip((height, width), feature.ranges, strict=True)
        )
    else:
        fits = (height, width) in allowed
    if not fits:
        raise InputError(
            f"image {feature.name!r} is {height} by {width} (height by width); expected "
            + (f"sizes in {feature.ranges}" if feature.ranges else " or ".join(f"{h} by {w}" for h, w in allowed))
        )


def given_back(value: Any, declared: Any, feature: Feature | None) -> Any:
    """A result as the user gets it: numpy in the declared type, a PIL image, a string, or a dictionary."""
    if isinstance(value, torch.Tensor):
        if feature is not None and feature.kind == "image":
            return _as_image(value, feature)
        element = declared.element if isinstance(declared, TensorType) else None
        if feature is not None and feature.type is not None:
            element = feature.type.element
        if element is not None and element.stored is not None and element.name != "bool":
            value = value.to(element.stored)
        array = value.numpy()
        return array.astype(np.int64) if feature is not None and feature.kind == "int64" else array
    return value


def _as_image(value: torch.Tensor, feature: Feature) -> Any:
    try:
        from PIL import Image  # only for models that return images
    except ImportError as error:
        raise InputError(
            f"output {feature.name!r} is an image, which needs Pillow (pip install 'coreproof[images]')"
        ) from error
    array = value[0].permute(1, 2, 0).numpy()
    if feature.color == "GRAYSCALE_FLOAT16":
        return Image.fromarray(array[:, :, 0].astype(np.float32), mode="F")
    array = np.clip(np.rint(array), 0, 255).astype(np.uint8)
    if feature.color == "BGR":
        array = array[:, :, ::-1]
    return Image.fromarray(array[:, :, 0] if array.shape[2] == 1 else np.ascontiguousarray(array))
