"""Reads `.ptd` files: data by name, kept outside a `.pte` (flat_tensor.fbs in executorch 1.5.1)."""

from __future__ import annotations

import struct

from ...errors import ModelError
from .flat import Buffer

_IDENTIFIER = b"FT01"
_HEADER = struct.Struct("<4sIQQQQ")  # magic, length, flatbuffer offset and size, segment offset and size
_HEADER_AT = 8
_SCHEMA = {
    "FlatTensor": ("version", "segments", "named_data"),
    "DataSegment": ("offset", "size"),
    "NamedData": ("key", "segment_index", "tensor_layout"),
}


def read_ptd(data: memoryview) -> dict[str, memoryview]:
    """The data by name, as views of the file.

    Raises:
        ModelError: it is no `.ptd` file, or is broken.
    """
    if bytes(data[4:8]) != _IDENTIFIER or len(data) < _HEADER_AT + _HEADER.size:
        raise ModelError("the external data is no .ptd file: no identifier FT01 and header at its start")
    magic, _, _, _, base, _ = _HEADER.unpack_from(data, _HEADER_AT)
    if magic != b"FH01" or not _HEADER_AT + _HEADER.size <= base <= len(data):
        raise ModelError(f"ptd.header: magic {magic!r}, segments at byte {base} of a file of {len(data)}")
    root = Buffer(data[:base], _SCHEMA, "ptd").root("FlatTensor")
    segments = []
    for one in root.tables("segments", "DataSegment"):
        start, size = base + one.number("offset", "<Q"), one.number("size", "<Q")
        if start + size > len(data):
            raise ModelError(f"{one.where}: bytes {start} to {start + size} of a file of {len(data)} bytes")
        segments.append(data[start : start + size])
    found = {}
    for one in root.tables("named_data", "NamedData"):
        number = one.number("segment_index", "<I")
        if number >= len(segments):
            raise ModelError(f"{one.at('segment_index')}: number {number} of {len(segments)} segments")
        found[one.text("key")] = segments[number]
    return found
