"""Core ML's protobuf (Model.proto, MIL.proto) to the runtime's form of a program."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import torch
from coremltools.proto import FeatureTypes_pb2, MIL_pb2, Model_pb2

from ..errors import ModelError, UnsupportedFileError
from .blob import Blob, unpacked
from .dtypes import ElementType, name_in_proto
from .ir import (
    Block,
    Constant,
    DictionaryType,
    Feature,
    Function,
    ListType,
    Operand,
    Operation,
    Program,
    StateType,
    TensorType,
    TupleType,
    Type,
    Value,
)

# Opens a weight file by the name that the program gives it.
OpenBlob = Callable[[str], Blob]

_MAX_RANK = 64  # Core ML stops at 5; a file that declares more is broken, not large
_MAX_DEPTH = 50  # nesting of blocks and types
_ARRAY_TYPES = {65568: "fp32", 65600: "fp64", 131104: "int32", 65552: "fp16", 131080: "int8"}
_COLORS = {10: "GRAYSCALE", 20: "RGB", 30: "BGR", 40: "GRAYSCALE_FLOAT16"}


def from_spec(spec: Any, open_blob: OpenBlob) -> Program:
    """The program of a `Model_pb2.Model`.

    Raises:
        UnsupportedFileError: the model is no ML Program.
        ModelError: the program is malformed.
    """
    kind = spec.WhichOneof("Type")
    if kind != "mlProgram":
        raise UnsupportedFileError(f"this Core ML model is a {kind or 'model without content'}; expected an mlProgram")
    read = _Reader(open_blob)
    functions = {name: read.function(name, function) for name, function in spec.mlProgram.functions.items()}
    if not functions:
        raise ModelError("the ML Program has no functions")
    descriptions = {d.name: d for d in spec.description.functions} or {"main": spec.description}
    for name, description in descriptions.items():
        if name in functions:
            functions[name].input_features = tuple(map(_feature, description.input))
            functions[name].output_features = tuple(map(_feature, description.output))
            functions[name].state_features = tuple(map(_feature, description.state))
    default = spec.description.defaultFunctionName or ("main" if "main" in functions else next(iter(functions)))
    if default not in functions:
        raise ModelError(f"the default function {default!r} is none of {', '.join(functions)}")
    return Program(functions, default, spec.specificationVersion, dict(spec.description.metadata.userDefined))


def parse_spec(data: bytes, where: str) -> Any:
    """The protobuf of a model file.

    Raises:
        ModelError: the bytes are no Core ML model.
    """
    spec = Model_pb2.Model()
    try:
        spec.ParseFromString(data)
    except Exception as error:  # google.protobuf.message.DecodeError, and RecursionError for a deep nesting
        raise ModelError(f"{where}: not a Core ML model ({error})") from error
    return spec


class _Reader:
    def __init__(self, open_blob: OpenBlob) -> None:
        self._open_blob = open_blob

    def function(self, name: str, proto: Any) -> Function:
        opset = proto.opset
        if opset not in proto.block_specializations:
            raise ModelError(f"function {name!r} has no block for its opset {opset!r}")
        inputs = [self.value(one) for one in proto.inputs]
        return Function(name, opset, inputs, self.block(proto.block_specializations[opset], 0))

    def block(self, proto: Any, depth: int) -> Block:
        if depth > _MAX_DEPTH:
            raise ModelError(f"blocks are nested more than {_MAX_DEPTH} deep")
        inputs = [self.value(one) for one in proto.inputs]
        return Block(inputs, [self.operation(one, depth) for one in proto.operations], list(proto.outputs))

    def operation(self, proto: Any, depth: int) -> Operation:
        outputs = [self.value(one) for one in proto.outputs]
        name = outputs[0].name if outputs else proto.type
        if "name" in proto.attributes:
            name = self._text(proto.attributes["name"]) or name
        inputs: dict[str, list[Operand]] = {}
        for operand, argument in proto.inputs.items():
            inputs[operand] = [self._binding(one) for one in argument.arguments]
        for attribute, value in proto.attributes.items():
            if attribute != "name" and attribute not in inputs:
                inputs[attribute] = [self.constant(value)]
        blocks = [self.block(one, depth + 1) for one in proto.blocks]
        return Operation(proto.type, inputs, outputs, blocks, name)

    def _binding(self, proto: Any) -> Operand:
        return self.constant(proto.value) if proto.WhichOneof("binding") == "value" else proto.name

    def _text(self, value: Any) -> str:
        strings = value.immediateValue.tensor.strings.values
        return strings[0] if strings else ""

    def value(self, proto: Any) -> Value:
        return Value(proto.name, _type(proto.type))

    def constant(self, proto: Any) -> Constant:
        declared = _type(proto.type)
        if proto.WhichOneof("value") == "blobFileValue":
            return self._from_file(proto.blobFileValue, declared)
        return Constant(declared, partial(_immediate, proto.immediateValue, declared), bytes=proto.ByteSize())

    def _from_file(self, proto: Any, declared: Type) -> Constant:
        if not isinstance(declared, TensorType) or declared.elements is None or declared.shape is None:
            raise ModelError(f"a value in a weight file is declared {declared}; expected a tensor of known shape")
        blob = self._open_blob(proto.fileName)
        size = blob.size(proto.offset, declared.element)
        load = partial(blob.tensor, proto.offset, declared.element, _known(declared.shape))
        return Constant(declared, load, f"{blob.name} at {proto.offset}", size)


def _known(shape: tuple[int | None, ...]) -> tuple[int, ...]:
    return tuple(size or 0 for size in shape)


def _type(proto: Any, depth: int = 0) -> Type:
    if depth > _MAX_DEPTH:
        raise ModelError(f"types are nested more than {_MAX_DEPTH} deep")
    kind = proto.WhichOneof("type")
    if kind == "tensorType":
        return _tensor_type(proto.tensorType)
    if kind == "listType":
        length = _dimension(proto.listType.length)
        return ListType(_type(proto.listType.type, depth + 1), length if isinstance(length, int) else None)
    if kind == "tupleType":
        return TupleType(tuple(_type(one, depth + 1) for one in proto.tupleType.types))
    if kind == "dictionaryType":
        inner = proto.dictionaryType
        return DictionaryType(_type(inner.keyType, depth + 1), _type(inner.valueType, depth + 1))
    if kind == "stateType":
        wrapped = _type(proto.stateType.wrappedType, depth + 1)
        if isinstance(wrapped, TensorType):
            return StateType(wrapped)
        raise ModelError(f"a state holds a {wrapped}; expected a tensor")
    raise ModelError("a value has no type")


def _tensor_type(proto: Any) -> TensorType:
    dtype = name_in_proto(proto.dataType)
    if len(proto.dimensions) > _MAX_RANK:
        raise ModelError(f"a tensor has {len(proto.dimensions)} dimensions; at most {_MAX_RANK} are read")
    sizes = [_dimension(one) for one in proto.dimensions]
    if ... in sizes or (proto.rank not in (len(sizes), -1) and not sizes):
        return TensorType(dtype, None)
    return TensorType(dtype, tuple(sizes))


def _dimension(proto: Any) -> Any:
    """A size, None where it is unknown, `...` where it stands for any number of dimensions."""
    if proto.WhichOneof("dimension") == "constant":
        return int(proto.constant.size)
    return ... if proto.unknown.variadic else None


def _immediate(proto: Any, declared: Type) -> Any:
    kind = proto.WhichOneof("value")
    if kind == "tensor" and isinstance(declared, TensorType):
        return _immediate_tensor(proto.tensor, declared)
    if kind == "list" and isinstance(declared, ListType):
        return [_immediate(one.immediateValue, _type(one.type)) for one in proto.list.values]
    if kind == "tuple" and isinstance(declared, TupleType):
        return tuple(_immediate(one.immediateValue, _type(one.type)) for one in proto.tuple.values)
    if kind == "dictionary" and isinstance(declared, DictionaryType):
        return {
            _immediate(pair.key.immediateValue, declared.key): _immediate(pair.value.immediateValue, declared.value)
            for pair in proto.dictionary.values
        }
    raise ModelError(f"an immediate value is a {kind or 'nothing'}; its type is declared {declared}")


# Which field of TensorValue holds the values of a type that is not packed into bytes.
_FIELDS = {
    "bool": "bools",
    "string": "strings",
    "fp32": "floats",
    "fp64": "doubles",
    "int64": "longInts",
    "uint64": "longInts",
    "int32": "ints",
    "int16": "ints",
    "uint16": "ints",
    "uint32": "ints",
}


def _immediate_tensor(proto: Any, declared: TensorType) -> Any:
    element = declared.element
    count = declared.elements
    if count is None or declared.shape is None:
        raise ModelError(f"an immediate value is declared {declared}; expected a known shape")
    field = proto.WhichOneof("value")
    expected = _FIELDS.get(element.name, "bytes")
    if field == "bytes":
        return _packed(proto.bytes.values, count, declared)
    if field is not None and field != expected:
        raise ModelError(f"an immediate {declared} is given as {field}; expected {expected}")
    values = list(getattr(proto, expected).values) if field else []
    if len(values) != count:
        raise ModelError(f"an immediate {declared} has {len(values)} values; expected {count}")
    if element.name == "string":
        return values[0] if declared.shape == () else values
    return _tensor_of(values, element).reshape(declared.shape)


def _packed(data: bytes, count: int, declared: TensorType) -> torch.Tensor:
    element = declared.element
    if element.name == "string" or len(data) != (count * element.bits + 7) // 8:
        raise ModelError(f"an immediate {declared} has {len(data)} bytes; expected {(count * element.bits + 7) // 8}")
    return unpacked(data, 0, count, element).reshape(_known(declared.shape or ()))


def _tensor_of(values: Iterable[Any], element: ElementType) -> torch.Tensor:
    try:
        return torch.tensor(list(values), dtype=element.carrier)
    except (RuntimeError, OverflowError) as error:
        raise ModelError(f"a value does not fit in {element.name}: {error}") from error


def _feature(proto: Any) -> Feature:
    kind = proto.type.WhichOneof("Type")
    optional = proto.type.isOptional
    if kind == "multiArrayType":
        return _array(proto.name, proto.type.multiArrayType, optional)
    if kind == "stateType":
        array = _array(proto.name, proto.type.stateType.arrayType, optional)
        return Feature(proto.name, "state", array.type)
    if kind == "imageType":
        image = proto.type.imageType
        color = _COLORS.get(image.colorSpace, "")
        if not color:
            raise ModelError(f"image {proto.name!r} has the color space {image.colorSpace}, which is none of Core ML's")
        sizes = tuple((s.height, s.width) for s in image.enumeratedSizes.sizes)
        ranges: tuple[tuple[int, int | None], ...] = ()
        if image.WhichOneof("SizeFlexibility") == "imageSizeRange":
            ranges = (_range(image.imageSizeRange.heightRange), _range(image.imageSizeRange.widthRange))
        size = (image.width, image.height)
        return Feature(proto.name, "image", None, sizes, ranges, optional, color=color, size=size)
    for name in ("dictionary", "int64", "double", "string"):
        if kind == f"{name}Type":
            return Feature(proto.name, name, optional=optional)
    raise ModelError(f"feature {proto.name!r} has the type {kind}, which an ML Program cannot have")


def _array(name: str, proto: Any, optional: bool) -> Feature:
    if proto.dataType not in _ARRAY_TYPES:
        raise ModelError(f"feature {name!r} has the array data type {proto.dataType}, which is none of Core ML's")
    enumerated: tuple[tuple[int, ...], ...] = ()
    ranges: tuple[tuple[int, int | None], ...] = ()
    flexibility = proto.WhichOneof("ShapeFlexibility")
    if flexibility == "enumeratedShapes":
        enumerated = tuple(tuple(one.shape) for one in proto.enumeratedShapes.shapes)
    elif flexibility == "shapeRange":
        ranges = tuple(map(_range, proto.shapeRange.sizeRanges))
    chosen = proto.WhichOneof("defaultOptionalValue")
    default = float(getattr(proto, chosen)) if chosen else None
    type_ = TensorType(_ARRAY_TYPES[proto.dataType], tuple(proto.shape))
    return Feature(name, "array", type_, enumerated, ranges, optional, default)


def _range(proto: Any) -> tuple[int, int | None]:
    return proto.lowerBound, proto.upperBound if proto.upperBound >= 0 else None


assert set(_ARRAY_TYPES) == set(FeatureTypes_pb2.ArrayFeatureType.ArrayDataType.values()) - {0}
assert MIL_pb2.DataType.Value("BOOL") == 1
