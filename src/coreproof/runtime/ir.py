"""The runtime's one form of a program, whatever it was read from.

A program has functions, a function one block, a block operations in order.
Operations name the values that they read; constants are loaded when first read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import torch

from .dtypes import ElementType, element_type


@dataclass(frozen=True)
class TensorType:
    """Element type and shape of a tensor; None stands for a size that is known only at run time.

    `shape` itself is None where not even the rank is known.
    """

    dtype: str
    shape: tuple[int | None, ...] | None

    @property
    def element(self) -> ElementType:
        return element_type(self.dtype)

    @property
    def elements(self) -> int | None:
        """The number of elements, or None where a size is unknown."""
        if self.shape is None or None in self.shape:
            return None
        total = 1
        for size in self.shape:
            total *= size or 0
        return total

    def __str__(self) -> str:
        shape = "[...]" if self.shape is None else f"[{', '.join('?' if s is None else str(s) for s in self.shape)}]"
        return f"{self.dtype}{shape}"


@dataclass(frozen=True)
class ListType:
    """A list of tensors of one type; `length` None: it grows."""

    element: Type
    length: int | None

    def __str__(self) -> str:
        return f"list<{self.element}>"


@dataclass(frozen=True)
class TupleType:
    """A tuple of values."""

    elements: tuple[Type, ...]

    def __str__(self) -> str:
        return f"tuple<{', '.join(map(str, self.elements))}>"


@dataclass(frozen=True)
class DictionaryType:
    """A dictionary, as `classify` makes: class label to probability."""

    key: Type
    value: Type

    def __str__(self) -> str:
        return f"dictionary<{self.key}, {self.value}>"


@dataclass(frozen=True)
class StateType:
    """A tensor that lives across calls."""

    wrapped: TensorType

    def __str__(self) -> str:
        return f"state<{self.wrapped}>"


Type: TypeAlias = TensorType | ListType | TupleType | DictionaryType | StateType


@dataclass(frozen=True)
class Value:
    """The name and the declared type of a value."""

    name: str
    type: Type


@dataclass(eq=False)
class Constant:
    """A value known before the program runs.

    Attributes:
        type: its declared type.
        load: makes it: a tensor in its stored dtype (sub-byte integers in their carrier), a str, or a list, tuple
            or dict of them. A weight is a view of the mapped file.
        source: where it is: `weights/weight.bin at 64`, or `immediate`.
        bytes: size in the file.
    """

    type: Type
    load: Callable[[], Any]
    source: str = "immediate"
    bytes: int = 0


# What an operand is given: the name of a value, or a constant written in place.
Operand: TypeAlias = str | Constant


@dataclass(eq=False)
class Operation:
    """One operation.

    Attributes:
        type: MIL's name of the op.
        inputs: what each operand is given; more than one for a variadic operand.
        outputs: names and declared types of the results.
        blocks: the nested blocks of control flow.
        name: unique name in the function, for messages.
        origin: where it came from in the user's program, if known.
    """

    type: str
    inputs: dict[str, list[Operand]]
    outputs: list[Value]
    blocks: list[Block] = field(default_factory=list)
    name: str = ""
    origin: str = ""


@dataclass(eq=False)
class Block:
    """A list of operations with parameters and results."""

    inputs: list[Value]
    operations: list[Operation]
    outputs: list[str]

    def walk(self) -> Iterator[Operation]:
        """Every operation, those of nested blocks after the one that owns them."""
        for operation in self.operations:
            yield operation
            for block in operation.blocks:
                yield from block.walk()


@dataclass(frozen=True)
class Feature:
    """An input, output or state as the outside sees it (Core ML's FeatureDescription).

    Attributes:
        kind: `array`, `image`, `state`, `dictionary`, `int64`, `double` or `string`.
        type: element type and default shape of an array or state; None for the others.
        enumerated: the shapes allowed, where they are listed; the default one included.
        ranges: lower and upper size of each dimension (upper None: no limit), where given.
        optional: whether the input may be left out; `default` fills it then.
        color: of an image, `RGB`, `BGR`, `GRAYSCALE` or `GRAYSCALE_FLOAT16`.
        size: of an image, width and height.
    """

    name: str
    kind: Literal["array", "image", "state", "dictionary", "int64", "double", "string"]
    type: TensorType | None = None
    enumerated: tuple[tuple[int, ...], ...] = ()
    ranges: tuple[tuple[int, int | None], ...] = ()
    optional: bool = False
    default: float | None = None
    color: str = ""
    size: tuple[int, int] = (0, 0)


@dataclass(eq=False)
class Function:
    """One entry point.

    Attributes:
        opset: `CoreML5` (iOS 15) to `CoreML8` (iOS 18), as the file names it.
        inputs: names and types as the body reads them; states have a `StateType`.
        features: inputs, outputs and states as the outside sees them; empty for a bare MIL program.
    """

    name: str
    opset: str
    inputs: list[Value]
    body: Block
    input_features: tuple[Feature, ...] = ()
    output_features: tuple[Feature, ...] = ()
    state_features: tuple[Feature, ...] = ()


@dataclass(eq=False)
class Program:
    """A whole program.

    Attributes:
        functions: by name.
        default: name of the function that runs where none is named.
        specification: Core ML's specification version (6: iOS 15 ... 9: iOS 18); None for a bare MIL program.
        metadata: the user-defined metadata of the file.
    """

    functions: dict[str, Function]
    default: str
    specification: int | None = None
    metadata: dict[str, str] = field(default_factory=dict)


def stored_tensor(value: Any) -> torch.Tensor:
    """A constant's value as a tensor; for callers that know it is one."""
    if not isinstance(value, torch.Tensor):
        raise TypeError(f"expected a tensor, got {type(value).__name__}")
    return value
