"""Inputs for a function from files or at random, and its outputs as an archive."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ..errors import InputError
from .ir import Feature, Function, StateType, TensorType, Value
from .memory import require_elements
from .pte.program import TensorSpec

_IMAGES = (".png", ".jpg", ".jpeg", ".bmp", ".webp", ".tif", ".tiff")


def inputs_from_files(function: Function, files: Sequence[str]) -> dict[str, Any]:
    """The inputs that files hold: `[name=]path`, an .npz with several, .npy, .pt or an image with one.

    A file without a name is that of its stem if the function has such an input, else of the only input.
    Pickles are never loaded: a .pt file may hold tensors only.

    Raises:
        InputError: a file is missing, broken or of another kind, or belongs to no input.
    """
    names = [value.name for value in _inputs(function)]
    found: dict[str, Any] = {}
    for given in files:
        name, separator, path = given.partition("=")
        if not separator:
            name, path = "", given
        if not Path(path).is_file():
            raise InputError(f"no such file: {path}")
        if path.endswith(".npz"):
            found |= _archive(path)
        else:
            found[name or _name_for(Path(path).stem, names)] = _value(path)
    return found


def tensor_from_file(path: str) -> torch.Tensor:
    """The tensor of an .npy or .pt file. Raises InputError: missing, broken, or of another kind."""
    if not Path(path).is_file():
        raise InputError(f"no such file: {path}")
    value = _value(path)
    if not isinstance(value, np.ndarray | torch.Tensor):
        raise InputError(f"{path} is an image; expected .npy or .pt")
    return torch.as_tensor(value)


def tensors_from_files(files: Sequence[str]) -> list[torch.Tensor]:
    """The tensors of .npy and .pt files in their order; of an .npz all of its arrays, in the order of the archive.

    Raises:
        InputError: a file is missing, broken, or of another kind.
    """
    found: list[torch.Tensor] = []
    for path in files:
        if path.endswith(".npz") and Path(path).is_file():
            found += [torch.as_tensor(one) for one in _archive(path).values()]
        else:
            found.append(tensor_from_file(path))
    return found


def random_tensors(values: Sequence[Any], seed: int) -> list[Any]:
    """Seeded inputs of a method of a `.pte`, of the largest shapes; a number is the one of the export."""
    generator = np.random.default_rng(seed)
    return [_random_tensor(one, generator) if isinstance(one, TensorSpec) else one.value for one in values]


def _random_tensor(declared: TensorSpec, generator: np.random.Generator) -> torch.Tensor:
    if declared.dtype.is_floating_point:
        return torch.from_numpy(generator.standard_normal(declared.sizes)).to(declared.dtype)
    return torch.from_numpy(generator.integers(0, 10, declared.sizes)).to(declared.dtype)


def random_inputs(function: Function, seed: int) -> dict[str, np.ndarray]:
    """Seeded inputs of the declared shapes: floats from a normal distribution, integers 0 to 9, images 0 to 255.

    A size that is open is the one of the feature's default shape, or its lower bound.

    Raises:
        InputError: an input has no shape to go by.
    """
    generator = np.random.default_rng(seed)
    features = {feature.name: feature for feature in function.input_features}
    return {value.name: _random(value, features.get(value.name), generator) for value in _inputs(function)}


def archive_of(outputs: dict[str, Any]) -> bytes:
    """The outputs as the bytes of an .npz; what is no array becomes one (of a dictionary: its values)."""
    buffer = io.BytesIO()
    arrays = {name: np.asarray(list(v.values()) if isinstance(v, dict) else v) for name, v in outputs.items()}
    np.savez(buffer, allow_pickle=False, **arrays)
    return buffer.getvalue()


def _inputs(function: Function) -> list[Value]:
    return [value for value in function.inputs if not isinstance(value.type, StateType)]


def _name_for(stem: str, names: list[str]) -> str:
    if stem in names or len(names) != 1:
        return stem
    return names[0]


def _archive(path: str) -> dict[str, Any]:
    try:
        with np.load(path, allow_pickle=False) as archive:
            return {name: archive[name] for name in archive.files}
    except Exception as error:  # zipfile and numpy raise many types on a broken file
        raise InputError(f"{path}: not an archive of plain arrays ({error})") from error


def _value(path: str) -> Any:
    suffix = Path(path).suffix.lower()
    try:
        if suffix == ".npy":
            return np.load(path, allow_pickle=False)
        if suffix == ".pt":
            loaded = torch.load(path, weights_only=True)
            if not isinstance(loaded, torch.Tensor):
                raise InputError(f"{path} holds a {type(loaded).__name__}; expected one tensor")
            return loaded
        if suffix in _IMAGES:
            from PIL import Image

            return Image.open(path)
    except InputError:
        raise
    except ImportError as error:
        raise InputError(f"{path}: images need Pillow (pip install 'coreproof[images]')") from error
    except Exception as error:  # each library raises many types on a broken file
        raise InputError(f"{path}: cannot be read ({error})") from error
    raise InputError(f"{path}: unknown kind of file; expected .npz, .npy, .pt or an image")


def _random(value: Value, feature: Feature | None, generator: np.random.Generator) -> np.ndarray:
    if feature is not None and feature.kind == "image":
        channels = 1 if feature.color.startswith("GRAY") else 3
        return generator.integers(0, 256, (feature.size[1], feature.size[0], channels)).astype(np.uint8)
    declared = value.type
    if not isinstance(declared, TensorType) or declared.shape is None:
        raise InputError(f"input {value.name!r} is declared {declared}; --random needs a tensor of known rank")
    shape = [_size(declared.shape[i], i, feature) for i in range(len(declared.shape))]
    require_elements(shape, f"input {value.name!r}")
    if declared.element.is_float:
        return generator.standard_normal(shape).astype(np.float32)
    high = 2 if declared.dtype == "bool" else 10
    return generator.integers(0, high, shape).astype(np.int32)


def _size(declared: int | None, axis: int, feature: Feature | None) -> int:
    if declared is not None:
        return declared
    if feature is not None and feature.type is not None and feature.type.shape and len(feature.type.shape) > axis:
        return feature.type.shape[axis] or 1
    if feature is not None and len(feature.ranges) > axis:
        return max(1, feature.ranges[axis][0])
    return 1
