"""Reads the bytes of a `.pte`: the header, the flatbuffer, and the segments behind it.

The layout is that of exir/_serialize/_program.py and program.fbs in executorch 1.5.1. Data stays in the file: what
is returned are views.
"""

from __future__ import annotations

import struct

import torch

from ...errors import ModelError
from ..memory import require_room
from . import program as ir
from .flat import Buffer, Table
from .schema import INSTRUCTIONS, SCHEMA, VALUES

IDENTIFIER = b"ET12"
_HEADER = struct.Struct("<4sIQQ")  # magic, length, program size, segment base offset; the segment data size follows
_HEADER_AT = 8
_MAX_RANK = 16  # ExecuTorch's kTensorDimensionLimit

# ScalarType numbers of the dtypes that torch's CPU kernels know; quantized and bit types are not among them.
_DTYPES: dict[int, torch.dtype] = {
    0: torch.uint8,
    1: torch.int8,
    2: torch.int16,
    3: torch.int32,
    4: torch.int64,
    5: torch.float16,
    6: torch.float32,
    7: torch.float64,
    9: torch.complex64,
    10: torch.complex128,
    11: torch.bool,
    15: torch.bfloat16,
    23: torch.float8_e5m2,
    24: torch.float8_e4m3fn,
    27: torch.uint16,
    28: torch.uint32,
    29: torch.uint64,
}
_DYNAMISM: tuple[ir.Dynamism, ...] = ("static", "bounded", "unbounded")


def read_pte(data: memoryview, external: dict[str, memoryview] | None = None) -> ir.Program:
    """The program of a `.pte`.

    Args:
        data: the bytes of the file.
        external: what `.ptd` files hold, by name.

    Raises:
        ModelError: a field leads out of the file, or contradicts another one; the message names it.
    """
    flat, segment_data = _split(data)
    root = Buffer(flat, SCHEMA, "program").root("Program")
    data_of = _Data(root, segment_data, external or {})
    named = {
        one.text("key"): data_of.segment(one, "segment_index", one.number("segment_index", "<I"))
        for one in root.tables("named_data", "NamedData")
    }
    methods: dict[str, ir.Method] = {}
    for plan in root.tables("execution_plan", "ExecutionPlan"):
        method = _method(plan, data_of)
        if method.name in methods:
            raise ModelError(f"{plan.at('name')}: a second method named {method.name!r}")
        methods[method.name] = method
    if not methods:
        raise ModelError("program.execution_plan: the file has no method")
    return ir.Program(methods, named)


def _split(data: memoryview) -> tuple[memoryview, memoryview]:
    """The flatbuffer and the segments behind it."""
    size = len(data)
    if bytes(data[4:8]) != IDENTIFIER:
        raise ModelError(f"no identifier {IDENTIFIER.decode()} at byte 4: this is no .pte file of a known version")
    if size < _HEADER_AT + _HEADER.size or bytes(data[8:12]) != b"eh00":
        return data, data[size:]  # no header: everything is inline
    _, length, flat, base = _HEADER.unpack_from(data, _HEADER_AT)
    if length < _HEADER.size:
        raise ModelError(f"header.length: {length} bytes; expected at least {_HEADER.size}")
    if not _HEADER_AT + length <= flat <= size:
        raise ModelError(f"header.program_size: {flat} bytes of a file of {size}")
    if not base:
        return data[:flat], data[size:]
    if not flat <= base <= size:
        raise ModelError(f"header.segment_base_offset: byte {base}, of a file of {size} with a program of {flat}")
    segments = data[base:]
    if length >= _HEADER.size + 8:
        (count,) = struct.unpack_from("<Q", data, _HEADER_AT + _HEADER.size)
        if count > len(segments):
            raise ModelError(f"header.segment_data_size: {count} bytes; the file has {len(segments)} (truncated?)")
        segments = segments[:count] if count else segments
    return data[:flat], segments


class _Data:
    """The parts of a file that tables point to by number."""

    def __init__(self, root: Table, segment_data: memoryview, external: dict[str, memoryview]) -> None:
        self.external = external
        self._segments: list[memoryview] = []
        for one in root.tables("segments", "DataSegment"):
            start, size = one.number("offset", "<Q"), one.number("size", "<Q")
            if start + size > len(segment_data):
                raise ModelError(f"{one.where}: bytes {start} to {start + size} of {len(segment_data)} in all segments")
            self._segments.append(segment_data[start : start + size])
        constants = root.table("constant_segment", "SubsegmentOffsets")
        self.constants = self._parts(constants) if constants is not None else []
        if not self.constants:  # files of before September 2024 hold them in the flatbuffer
            self.constants = [one.raw("storage") for one in root.tables("constant_buffer", "Buffer")]
        self.mutable = [self._parts(one) for one in root.tables("mutable_data_segments", "SubsegmentOffsets")]
        self.inline = [one.raw("data") for one in root.tables("backend_delegate_data", "BackendDelegateInlineData")]

    def segment(self, table: Table, field: str, number: int) -> memoryview:
        """A segment by number, which `field` of `table` gave."""
        return self._segments[_index(number, len(self._segments), table.at(field), "segments")]

    def _parts(self, table: Table) -> list[memoryview]:
        """What each offset of a list points to: the rest of the segment from there on."""
        offsets = table.numbers("offsets", "Q")
        if not offsets:
            return []
        segment = self.segment(table, "segment_index", table.number("segment_index", "<I"))
        for i, offset in enumerate(offsets):
            if offset > len(segment):
                raise ModelError(f"{table.at('offsets')}[{i}]: byte {offset} of a segment of {len(segment)} bytes")
        return [segment[offset:] for offset in offsets]


def _method(plan: Table, data: _Data) -> ir.Method:
    sizes = plan.numbers("non_const_buffer_sizes", "q")
    for i, size in enumerate(sizes):
        if size < 0:
            raise ModelError(f"{plan.at('non_const_buffer_sizes')}[{i}]: {size} bytes")
    require_room(sum(sizes[1:]), plan.at("non_const_buffer_sizes"))
    for one in plan.tables("non_const_buffer_device", "NonConstBufferDevice"):
        if one.number("device_type", "<b"):
            raise ModelError(f"{one.at('device_type')}: planned for another device than the CPU")
    tables = plan.tables("values", "EValue")
    values = tuple(_value(one, len(tables), sizes, data) for one in tables)
    _require_kinds(values, plan.at("values"))
    operators = tuple(_operator(one) for one in plan.tables("operators", "Operator"))
    delegates = tuple(_delegate(one, data) for one in plan.tables("delegates", "BackendDelegate"))
    counts = {"values": len(values), "operators": len(operators), "delegates": len(delegates)}
    return ir.Method(
        name=plan.text("name"),
        values=values,
        inputs=_indices(plan, "inputs", len(values)),
        outputs=_indices(plan, "outputs", len(values)),
        chains=tuple(_chain(one, counts) for one in plan.tables("chains", "Chain")),
        operators=operators,
        delegates=delegates,
        buffer_sizes=sizes,
    )


def _operator(table: Table) -> str:
    name, overload = table.text("name"), table.text("overload")
    if not name.isprintable() or not overload.isprintable():
        raise ModelError(f"{table.at('name')}: {name!r}, {overload!r} is no operator")
    return f"{name}.{overload}" if overload else name


def _index(number: int, count: int, where: str, what: str) -> int:
    if not 0 <= number < count:
        raise ModelError(f"{where}: number {number} of {count} {what}")
    return number


def _indices(table: Table, field: str, count: int, code: str = "i") -> tuple[int, ...]:
    """A list of numbers of values."""
    listed = table.numbers(field, code)
    return tuple(_index(one, count, f"{table.at(field)}[{i}]", "values") for i, one in enumerate(listed))


# -- values ------------------------------------------------------------------------------------------------------------


def _value(table: Table, count: int, buffer_sizes: tuple[int, ...], data: _Data) -> ir.Value:
    kind, found = table.union("val", VALUES)
    match kind:
        case "Null":
            return ir.Scalar(None)
        case "Int":
            return ir.Scalar(found.number("int_val", "<q"))
        case "Bool":
            return ir.Scalar(bool(found.number("bool_val", "<B")))
        case "Double":
            return ir.Scalar(found.number("double_val", "<d", 0.0))
        case "String":
            return ir.Scalar(found.text("string_val"))
        case "IntList":
            return ir.IntList(_indices(found, "items", count, "q"))
        case "DoubleList":
            return ir.Literals(found.numbers("items", "d"))
        case "BoolList":
            return ir.Literals(tuple(map(bool, found.numbers("items", "B"))))
        case "TensorList":
            return ir.TensorList(_indices(found, "items", count))
        case "OptionalTensorList":
            listed = found.numbers("items", "i")
            where = found.at("items")
            return ir.TensorList(tuple(None if i == -1 else _index(i, count, where, "values") for i in listed))
    return _tensor(found, buffer_sizes, data)


def _require_kinds(values: tuple[ir.Value, ...], where: str) -> None:
    """The elements of lists must be of their kind."""
    for i, value in enumerate(values):
        if isinstance(value, ir.TensorList):
            wrong = [k for k in value.items if k is not None and not isinstance(values[k], ir.TensorSpec)]
        elif isinstance(value, ir.IntList):
            wrong = [k for k in value.items if not isinstance(values[k], ir.Scalar)]
        else:
            continue
        if wrong:
            raise ModelError(f"{where}[{i}]: its element, value {wrong[0]}, is of another kind than the list")


def _tensor(table: Table, buffer_sizes: tuple[int, ...], data: _Data) -> ir.TensorSpec:
    number = table.number("scalar_type", "<b")
    if number not in _DTYPES:
        raise ModelError(f"{table.at('scalar_type')}: {number} is no dtype that torch computes with")
    sizes = table.numbers("sizes", "i")
    if len(sizes) > _MAX_RANK or any(size < 0 for size in sizes):
        raise ModelError(f"{table.at('sizes')}: {list(sizes[:20])}; expected at most {_MAX_RANK} sizes of 0 or more")
    order = table.numbers("dim_order", "B")
    if sorted(order) != list(range(len(sizes))):
        raise ModelError(f"{table.at('dim_order')}: {list(order[:20])} is no order of {len(sizes)} dimensions")
    if table.number("storage_offset", "<i"):
        raise ModelError(f"{table.at('storage_offset')}: {table.number('storage_offset', '<i')}; expected 0")
    dynamism = table.number("shape_dynamism", "<b")
    if not 0 <= dynamism < len(_DYNAMISM):
        raise ModelError(f"{table.at('shape_dynamism')}: {dynamism} is none of {', '.join(_DYNAMISM)}")
    spec = ir.TensorSpec(_DTYPES[number], sizes, order, _DYNAMISM[dynamism])
    require_room(spec.bytes if dynamism < 2 else 0, table.at("sizes"))
    planned = _planned(table, spec, buffer_sizes)
    held = _held(table, spec, planned is not None, data)
    return ir.TensorSpec(spec.dtype, sizes, order, spec.dynamism, planned, held)


def _planned(table: Table, spec: ir.TensorSpec, buffer_sizes: tuple[int, ...]) -> tuple[int, int] | None:
    """Where the compiler placed it: memory buffer and offset."""
    details = table.table("allocation_info", "AllocationDetails")
    if details is None:
        return None
    buffer = details.number("memory_id", "<I")
    offset = details.number("memory_offset_low", "<I") | details.number("memory_offset_high", "<I") << 32
    if not 1 <= buffer < len(buffer_sizes):
        raise ModelError(f"{details.at('memory_id')}: {buffer}; expected 1 to {len(buffer_sizes) - 1}")
    where = details.at("memory_offset")
    if offset + spec.bytes > buffer_sizes[buffer]:
        raise ModelError(f"{where}: bytes {offset} to {offset + spec.bytes} of a buffer of {buffer_sizes[buffer]}")
    if offset % spec.dtype.itemsize:
        raise ModelError(f"{where}: byte {offset} is not aligned for {spec.dtype}")
    return buffer, offset


def _held(table: Table, spec: ir.TensorSpec, planned: bool, data: _Data) -> memoryview | None:
    """The bytes of a constant, or those that a planned tensor holds at first."""
    extra = table.table("extra_tensor_info", "ExtraTensorInfo")
    if extra is not None and extra.number("device_type", "<b"):
        raise ModelError(f"{extra.at('device_type')}: on another device than the CPU")
    if extra is not None and extra.number("location", "<b"):
        name = extra.text("fully_qualified_name")
        if name not in data.external:
            raise ModelError(f"{table.where}: its data is {name!r} in an external .ptd file; none given holds it")
        return _exactly(data.external[name], spec, table.where)
    number = table.number("data_buffer_idx", "<I")
    if not number:
        return None
    listed, what = data.constants, "constants"
    if planned:
        part = extra.number("mutable_data_segments_idx", "<Q") if extra is not None else 0
        where = table.at("extra_tensor_info.mutable_data_segments_idx")
        listed, what = data.mutable[_index(part, len(data.mutable), where, "segments")], "initial values"
    return _exactly(listed[_index(number, len(listed), table.at("data_buffer_idx"), what)], spec, table.where)


def _exactly(held: memoryview, spec: ir.TensorSpec, where: str) -> memoryview:
    if spec.bytes > len(held):
        raise ModelError(f"{where}: needs {spec.bytes} bytes of data; {len(held)} are there")
    return held[: spec.bytes]


# -- what runs ---------------------------------------------------------------------------------------------------------


def _delegate(table: Table, data: _Data) -> ir.Delegate:
    at = table.table("processed", "BackendDelegateDataReference")
    if at is None:
        raise ModelError(f"{table.at('processed')}: missing")
    location, index = at.number("location", "<b"), at.number("index", "<I")
    if location == 1:
        held = data.segment(at, "index", index)
    elif location == 0:
        held = data.inline[_index(index, len(data.inline), at.at("index"), "inline delegates")]
    else:
        raise ModelError(f"{at.at('location')}: {location} is neither 0 (inline) nor 1 (segment)")
    specs = table.tables("compile_specs", "CompileSpec")
    return ir.Delegate(table.text("id"), held, tuple((one.text("key"), bytes(one.raw("value"))) for one in specs))


def _chain(table: Table, counts: dict[str, int]) -> tuple[ir.Instruction, ...]:
    listed = table.tables("instructions", "Instruction")
    # One past the last instruction is the end of the chain.
    counts = {**counts, "instructions": len(listed) + 1}
    return tuple(_instruction(one, counts) for one in listed)


def _instruction(table: Table, counts: dict[str, int]) -> ir.Instruction:
    kind, found = table.union("instr_args", INSTRUCTIONS)

    def index(field: str, what: str) -> int:
        return _index(found.number(field, "<i"), counts[what], found.at(field), what)

    match kind:
        case "KernelCall":
            return ir.KernelCall(index("op_index", "operators"), _indices(found, "args", counts["values"]))
        case "DelegateCall":
            return ir.DelegateCall(index("delegate_index", "delegates"), _indices(found, "args", counts["values"]))
        case "MoveCall":
            return ir.MoveCall(index("move_from", "values"), index("move_to", "values"))
        case "JumpFalseCall":
            return ir.JumpFalseCall(
                index("cond_value_index", "values"), index("destination_instruction", "instructions")
            )
    return ir.FreeCall(index("value_index", "values"))
