"""Reads flatbuffers that may be broken: every offset and length is checked against the buffer.

The accessors that flatc generated in the executorch wheel cannot be used: they trust what they read, and
`_patch_generated_flatbuffer_aliases` in exir/_serialize/_flatbuffer_program.py replaces the classes in them by
modules once a program has been serialized in the process (1.5.1), after which they raise. The format is small: a
table starts with the distance back to its vtable, which gives the place of each field, by number, in the table.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from ...errors import ModelError

# For each table of a schema, its fields in order; a union takes two, its type and its value.
Schema: TypeAlias = Mapping[str, Sequence[str]]

# Each byte of a well-formed file is read about once. Tables that are shared are allowed for; more is an attack that
# makes a short file unfold to a huge program.
_READS = 8


class Buffer:
    """The bytes of one flatbuffer and its schema.

    Args:
        what: the name of the root table in messages.
    """

    def __init__(self, data: memoryview, schema: Schema, what: str) -> None:
        self.data = data
        self.schema = schema
        self.what = what
        self._left = _READS * len(data)

    def root(self, kind: str) -> Table:
        """The root table. Raises ModelError: it lies outside the buffer."""
        return self.table(kind, self.number("<I", 0, self.what), self.what)

    def table(self, kind: str, at: int, where: str) -> Table:
        """The table of this kind at a byte. Raises ModelError: it lies outside the buffer."""
        vtable = at - self.number("<i", at, where)
        length, extent = self.number("<H", vtable, where), self.number("<H", vtable + 2, where)
        if length < 4 or length % 2 or vtable + length > len(self.data) or at + extent > len(self.data):
            raise self.broken(where, f"a table of {extent} bytes at byte {at}, with its vtable at byte {vtable}")
        fields = struct.unpack_from(f"<{length // 2 - 2}H", self.data, vtable + 4)
        if any(offset >= extent for offset in fields):
            raise self.broken(where, f"a field at byte {max(fields)} of a table of {extent} bytes")
        self.spend(extent, where)
        names = self.schema[kind]
        return Table(self, where, {name: at + offset for name, offset in zip(names, fields, strict=False) if offset})

    def number(self, code: str, at: int, where: str) -> Any:
        """The number at a byte, `code` being struct's. Raises ModelError: it lies outside the buffer."""
        if not 0 <= at <= len(self.data) - struct.calcsize(code):
            raise self.broken(where, f"it leads to byte {at}")
        return struct.unpack_from(code, self.data, at)[0]

    def spend(self, size: int, where: str) -> None:
        """Count bytes that are read. Raises ModelError: many times those of the buffer."""
        self._left -= size
        if self._left < 0:
            raise ModelError(f"{where}: the tables up to here hold more than {_READS} times the bytes of the file")

    def broken(self, where: str, why: str) -> ModelError:
        """The error for a field that leads out of the buffer."""
        return ModelError(f"{where}: broken: {why}; the program has {len(self.data)} bytes")


@dataclass(frozen=True)
class Table:
    """One table: the places of the fields that it has.

    Every method takes the name of a field and raises ModelError where it leads out of the buffer.
    """

    buffer: Buffer
    where: str
    places: dict[str, int]

    def at(self, field: str) -> str:
        """A field's name in messages."""
        return f"{self.where}.{field}"

    def number(self, field: str, code: str, default: Any = 0) -> Any:
        """A scalar; `code` is struct's."""
        place = self.places.get(field)
        return default if place is None else self.buffer.number(code, place, self.at(field))

    def text(self, field: str) -> str:
        """A string; empty where it is absent."""
        raw = bytes(self.raw(field))
        try:
            return raw.decode("utf-8")
        except UnicodeDecodeError as error:
            raise ModelError(f"{self.at(field)}: no UTF-8 text ({error.reason})") from error

    def table(self, field: str, kind: str) -> Table | None:
        """A table, or None where it is absent."""
        place = self.places.get(field)
        return None if place is None else self._follow(place, kind, self.at(field))

    def tables(self, field: str, kind: str) -> list[Table]:
        """A list of tables."""
        start, count = self._vector(field, 4)
        return [self._follow(start + 4 * i, kind, f"{self.at(field)}[{i}]") for i in range(count)]

    def numbers(self, field: str, code: str) -> tuple[Any, ...]:
        """A list of numbers; `code` is struct's for one, without byte order."""
        start, count = self._vector(field, struct.calcsize(f"<{code}"))
        return struct.unpack_from(f"<{count}{code}", self.buffer.data, start)

    def raw(self, field: str) -> memoryview:
        """A list of bytes, or the bytes of a string, as a view of the buffer."""
        start, count = self._vector(field, 1)
        return self.buffer.data[start : start + count]

    def union(self, field: str, kinds: Sequence[str]) -> tuple[str, Table]:
        """The kind and the table of a union; `kinds` are its kinds in order, the first one has number 1."""
        number, place = self.number(f"{field}_type", "<B"), self.places.get(field)
        if not 1 <= number <= len(kinds) or place is None:
            raise ModelError(f"{self.at(field)}: unknown kind {number}, or no value")
        kind = kinds[number - 1]
        return kind, self._follow(place, kind, self.at(field))

    def _follow(self, place: int, kind: str, where: str) -> Table:
        return self.buffer.table(kind, place + self.buffer.number("<I", place, where), where)

    def _vector(self, field: str, width: int) -> tuple[int, int]:
        """Where the elements start, and how many there are."""
        place, where = self.places.get(field), self.at(field)
        if place is None:
            return 0, 0
        start = place + self.buffer.number("<I", place, where)
        count = self.buffer.number("<I", start, where)
        if start + 4 + count * width > len(self.buffer.data):
            raise self.buffer.broken(where, f"a list of {count} elements at byte {start}")
        self.buffer.spend(count * width, where)
        return start + 4, count
