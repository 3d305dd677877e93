"""Weight files: MIL's blob storage, version 2.

A file starts with a 64-byte header (number of blobs, version). A value's offset
points at 64 bytes of metadata (sentinel, data type, size, offset of the data,
number of padding bits); integers are little-endian. Sub-byte elements are
packed from the least significant bit on. Layout read off files written by
coremltools 9.0's own writer.
"""

from __future__ import annotations

import mmap
import struct
import warnings
from pathlib import Path

import numpy as np
import torch

from ..errors import ModelError
from .dtypes import ElementType

_SENTINEL = 0xDEADBEEF
_METADATA = struct.Struct("<IIQQQ")
# The data types as the metadata numbers them.
_NUMBERS = {
    "fp16": 1,
    "fp32": 2,
    "uint8": 3,
    "int8": 4,
    "bf16": 5,
    "int16": 6,
    "uint16": 7,
    "int4": 8,
    "uint1": 9,
    "uint2": 10,
    "uint4": 11,
    "uint3": 12,
    "uint6": 13,
    "int32": 14,
    "uint32": 15,
    "fp8e4m3fn": 16,
    "fp8e5m2": 17,
}
# A bool is one byte in memory and is written as uint8.
_WRITTEN_AS = {"bool": "uint8"}


class Blob:
    """A weight file that is mapped into memory, or the bytes of one.

    Args:
        source: the file, or its bytes.
        name: what messages call it.

    Raises:
        ModelError: the file cannot be read, or is no version 2 blob file.
    """

    def __init__(self, source: Path | bytes | memoryview, name: str) -> None:
        self.name = name
        self._data = _mapped(source, name) if isinstance(source, Path) else memoryview(source)
        if len(self._data) < 64:
            raise ModelError(f"{name}: {len(self._data)} bytes are too few for a weight file")
        _, version = struct.unpack_from("<II", self._data)
        if version != 2:
            raise ModelError(f"{name}: blob storage of version {version}; expected 2")

    def tensor(self, offset: int, element: ElementType, shape: tuple[int, ...]) -> torch.Tensor:
        """The tensor at `offset`: a view of the file, or a copy in the carrier dtype for sub-byte elements.

        Raises:
            ModelError: the metadata there, the declared type and shape, and the size of the file do not agree.
        """
        start, size, padding = self._metadata(offset, element)
        count = _count(shape)
        if count * element.bits + padding != size * 8:
            raise ModelError(
                f"{self.name} at {offset}: {size} bytes with {padding} bits of padding do not hold the declared "
                f"{element.name}{list(shape)} of {count * element.bits} bits"
            )
        return unpacked(self._data, start, count, element).reshape(shape)

    def size(self, offset: int, element: ElementType) -> int:
        """The number of bytes of the blob at `offset`."""
        return self._metadata(offset, element)[1]

    def _metadata(self, offset: int, element: ElementType) -> tuple[int, int, int]:
        where = f"{self.name} at {offset}"
        if offset + 64 > len(self._data):
            raise ModelError(f"{where}: beyond the end of the file ({len(self._data)} bytes)")
        sentinel, number, size, start, padding = _METADATA.unpack_from(self._data, offset)
        if sentinel != _SENTINEL:
            raise ModelError(f"{where}: no blob starts here (sentinel {sentinel:#x})")
        expected = _NUMBERS.get(_WRITTEN_AS.get(element.name, element.name))
        if number != expected:
            found = next((name for name, n in _NUMBERS.items() if n == number), f"type {number}")
            raise ModelError(f"{where}: holds {found}; the program declares {element.name}")
        if start + size > len(self._data):
            raise ModelError(f"{where}: {size} bytes from {start} on lie beyond the file ({len(self._data)} bytes)")
        return start, size, padding


def unpacked(data: memoryview | mmap.mmap | bytes, start: int, count: int, element: ElementType) -> torch.Tensor:
    """`count` elements from byte `start` of `data`, as a flat tensor; a view where torch has the element type.

    Raises:
        ModelError: strings, which have no packed form.
    """
    if count == 0:
        return torch.empty(0, dtype=element.stored or element.carrier)
    if element.stored is not None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # a view of read-only bytes, which nobody writes to
            tensor = torch.frombuffer(data, dtype=element.stored, count=count, offset=start)
        return tensor if tensor.data_ptr() % tensor.itemsize == 0 else _aligned(data, start, tensor)
    if element.carrier is None:
        raise ModelError(f"{element.name} values have no packed form")
    return _from_bits(data, start, count, element)


def _aligned(data: memoryview | mmap.mmap | bytes, start: int, tensor: torch.Tensor) -> torch.Tensor:
    """A copy where the elements do not start at a multiple of their size, as inside a delegate's bytes."""
    raw = np.frombuffer(data, np.uint8, tensor.numel() * tensor.itemsize, start).copy()
    return torch.from_numpy(raw).view(tensor.dtype)


def _from_bits(data: memoryview | mmap.mmap | bytes, start: int, count: int, element: ElementType) -> torch.Tensor:
    packed = np.frombuffer(data, dtype=np.uint8, count=(count * element.bits + 7) // 8, offset=start)
    bits = np.unpackbits(packed, bitorder="little", count=count * element.bits).reshape(count, element.bits)
    values = np.zeros(count, dtype=np.int16)
    for place in range(element.bits):
        values |= bits[:, place].astype(np.int16) << place
    if element.signed:
        values[values >= 1 << (element.bits - 1)] -= 1 << element.bits
    return torch.from_numpy(values).to(element.carrier)


def _count(shape: tuple[int, ...]) -> int:
    count = 1
    for size in shape:
        count *= size
    return count


def _mapped(path: Path, name: str) -> mmap.mmap | memoryview:
    try:
        with path.open("rb") as file:
            # Copy on write: torch wants memory that may be written to, and the file must not change.
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
    except ValueError:  # an empty file
        return memoryview(b"")
    except OSError as error:
        raise ModelError(f"{name}: cannot be read ({error.strerror})") from error
