"""MIL's element types and the torch dtypes that carry them.

A value is *stored* (in a file, at the border of a program) in one dtype and
*carried* through the interpreter in another: half types are carried in float32
(every op computes in float32), types that torch lacks or barely supports are
carried in the next wider one that holds all their values.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from coremltools.proto import MIL_pb2

from ..errors import ModelError


@dataclass(frozen=True)
class ElementType:
    """One of MIL's element types.

    Attributes:
        name: as MIL writes it, `fp16`.
        carrier: the torch dtype of its values inside the interpreter; None for strings.
        stored: the torch dtype of its values in a file and at the border; None where torch has none.
        bits: size in a weight file.
        signed: whether a sub-byte integer is signed.
        border: the torch dtype of a result that is given to the user.
    """

    name: str
    carrier: torch.dtype | None
    stored: torch.dtype | None
    bits: int
    signed: bool = True

    @property
    def is_float(self) -> bool:
        return self.carrier is not None and self.carrier.is_floating_point

    @property
    def is_integer(self) -> bool:
        return self.carrier is not None and not self.is_float and self.carrier != torch.bool

    @property
    def limits(self) -> tuple[int, int]:
        """The least and the greatest value of an integer type."""
        return (-(1 << (self.bits - 1)), (1 << (self.bits - 1)) - 1) if self.signed else (0, (1 << self.bits) - 1)


_ALL = (
    ElementType("bool", torch.bool, torch.bool, 8),
    ElementType("string", None, None, 0),
    ElementType("fp16", torch.float32, torch.float16, 16),
    ElementType("bf16", torch.float32, torch.bfloat16, 16),
    ElementType("fp8e4m3fn", torch.float32, torch.float8_e4m3fn, 8),
    ElementType("fp8e5m2", torch.float32, torch.float8_e5m2, 8),
    ElementType("fp32", torch.float32, torch.float32, 32),
    ElementType("fp64", torch.float64, torch.float64, 64),
    ElementType("int4", torch.int8, None, 4),
    ElementType("int8", torch.int8, torch.int8, 8),
    ElementType("int16", torch.int16, torch.int16, 16),
    ElementType("int32", torch.int32, torch.int32, 32),
    ElementType("int64", torch.int64, torch.int64, 64),
    ElementType("uint1", torch.uint8, None, 1, signed=False),
    ElementType("uint2", torch.uint8, None, 2, signed=False),
    ElementType("uint3", torch.uint8, None, 3, signed=False),
    ElementType("uint4", torch.uint8, None, 4, signed=False),
    ElementType("uint6", torch.uint8, None, 6, signed=False),
    ElementType("uint8", torch.uint8, torch.uint8, 8, signed=False),
    ElementType("uint16", torch.int32, torch.uint16, 16, signed=False),
    ElementType("uint32", torch.int64, torch.uint32, 32, signed=False),
    ElementType("uint64", torch.int64, torch.uint64, 64, signed=False),
)

ELEMENT_TYPES: dict[str, ElementType] = {one.name: one for one in _ALL}

_PROTO_NAMES = {
    "FLOAT16": "fp16",
    "FLOAT32": "fp32",
    "FLOAT64": "fp64",
    "BFLOAT16": "bf16",
    "FLOAT8E4M3FN": "fp8e4m3fn",
    "FLOAT8E5M2": "fp8e5m2",
}


def element_type(name: str) -> ElementType:
    """The element type that MIL calls `name`.

    Raises:
        ModelError: there is none.
    """
    if name not in ELEMENT_TYPES:
        raise ModelError(f"unknown element type {name!r}; expected one of {', '.join(ELEMENT_TYPES)}")
    return ELEMENT_TYPES[name]


def name_in_proto(number: int) -> str:
    """MIL's name of a data type of the protobuf (MIL.proto, enum DataType).

    Raises:
        ModelError: the number is none of them.
    """
    value = MIL_pb2.DataType.DESCRIPTOR.values_by_number.get(number) if number else None
    if value is None:
        raise ModelError(f"data type {number} is none of MIL's")
    return _PROTO_NAMES.get(value.name, value.name.lower())


def carried(stored: torch.Tensor, element: ElementType) -> torch.Tensor:
    """The stored tensor as the interpreter carries it; no copy where the dtypes are the same."""
    return stored if stored.dtype == element.carrier else stored.to(element.carrier)


def rounded(value: torch.Tensor, element: ElementType) -> torch.Tensor:
    """A carried float tensor rounded once to its declared half type (round to nearest even, overflow to infinity)."""
    if element.stored is None or element.stored == element.carrier:
        return value
    return value.to(element.stored).to(element.carrier)
