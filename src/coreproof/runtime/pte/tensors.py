"""Tensors of a running method: views at their planned place in memory."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from math import prod

import numpy as np
import torch

from ...errors import ModelError
from ..memory import require_elements, require_room
from .program import TensorSpec


class TensorValue:
    """A tensor value while its method is loaded.

    Attributes:
        spec: what the file says of it.
        constant: whether it may not be written.
    """

    def __init__(self, spec: TensorSpec, arenas: Sequence[torch.Tensor]) -> None:
        self.spec = spec
        self.constant = spec.data is not None and spec.planned is None
        self._memory: torch.Tensor | None = None
        self._tensor: torch.Tensor | None = None
        if self.constant:
            self._tensor = _view(_from_file(spec), spec, spec.sizes)
        elif spec.planned is not None:
            buffer, offset = spec.planned
            self._memory = arenas[buffer][offset : offset + spec.bytes]
            self._tensor = _view(self._memory, spec, spec.sizes)
            if spec.data is not None:
                self._memory.copy_(_from_file(spec))
        elif spec.elements == 0:
            self._tensor = torch.empty(spec.sizes, dtype=spec.dtype)

    @property
    def tensor(self) -> torch.Tensor:
        """The tensor of its present size. Raises ModelError: nothing gave it memory yet."""
        if self._tensor is None:
            raise ModelError("it reads a tensor that nothing has written")
        return self._tensor

    def require_writable(self) -> None:
        """Raises ModelError: it is a constant."""
        if self.constant:
            raise ModelError("it writes a constant")

    def require_shape(self, shape: Sequence[int]) -> None:
        """Refuse a shape that it cannot take.

        Raises:
            ModelError: another rank; another size than the planned one; more elements than the planned bound.
        """
        spec = self.spec
        if len(shape) != len(spec.sizes):
            raise ModelError(f"it makes shape {list(shape)}; expected rank {len(spec.sizes)}, {spec}")
        if spec.dynamism == "static" and tuple(shape) != spec.sizes:
            raise ModelError(f"it makes shape {list(shape)}; expected {spec}")
        if spec.dynamism == "bounded" and prod(shape) > spec.elements:
            raise ModelError(f"it makes shape {list(shape)}; expected {spec}")
        require_elements(list(shape), "a tensor", spec.dtype.itemsize)

    def resize(self, shape: Sequence[int]) -> torch.Tensor:
        """The tensor at a new size, its values undefined where that differs. Raises ModelError as `require_shape`."""
        self.require_writable()
        if self._tensor is not None and tuple(self._tensor.shape) == tuple(shape):
            return self._tensor
        self.require_shape(shape)
        spec = self.spec
        size = prod(shape) * spec.dtype.itemsize
        if self._memory is None or (spec.planned is None and len(self._memory) < size):
            capacity = size if spec.dynamism == "unbounded" else spec.bytes
            require_room(capacity, "a tensor that is not planned")
            self._memory = zeros(capacity)
        self._tensor = _view(self._memory, spec, shape)
        return self._tensor

    def assign(self, value: torch.Tensor) -> None:
        """Take the size and the values of `value`, converted to the dtype of this tensor."""
        self.resize(value.shape).copy_(value)

    def alias(self, value: torch.Tensor) -> None:
        """Be a view of another tensor's memory."""
        self.require_writable()
        self.require_shape(value.shape)
        if value.dtype != self.spec.dtype:
            raise ModelError(f"it views {value.dtype} as {self.spec.dtype}")
        self._tensor = value

    def free(self) -> None:
        """Give back memory that was not planned."""
        if self.spec.planned is None and not self.constant:
            self._memory = self._tensor = None


def zeros(size: int) -> torch.Tensor:
    """Zeroed bytes, which take memory only as they are written (torch.zeros touches all of them)."""
    return torch.from_numpy(np.zeros(size, np.uint8))


def _from_file(spec: TensorSpec) -> torch.Tensor:
    """The bytes in the file, copied only where they are not aligned for the dtype."""
    assert spec.data is not None
    if not spec.bytes:
        return torch.empty(0, dtype=torch.uint8)
    with warnings.catch_warnings():
        # Bytes are read-only, of which torch warns; `require_writable` keeps kernels from writing.
        warnings.filterwarnings("ignore", message="The given buffer is not writable")
        raw = torch.frombuffer(spec.data, dtype=torch.uint8)
    return raw if raw.data_ptr() % spec.dtype.itemsize == 0 else raw.clone()


def _view(memory: torch.Tensor, spec: TensorSpec, shape: Sequence[int]) -> torch.Tensor:
    values = memory[: prod(shape) * spec.dtype.itemsize]
    if not len(values):
        return torch.empty(tuple(shape), dtype=spec.dtype)
    strides = [0] * len(shape)
    step = 1
    for dimension in reversed(spec.dim_order):
        strides[dimension] = step
        step *= shape[dimension]
    return values.view(spec.dtype).as_strided(tuple(shape), strides)
