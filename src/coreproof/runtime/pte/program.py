"""The runtime's form of a `.pte`: what the file says, checked, with its data as views of the file.

Names follow ExecuTorch's schema (program.fbs); an index is always a valid one of the list that it points into.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, TypeAlias

import torch

Dynamism: TypeAlias = Literal["static", "bounded", "unbounded"]


@dataclass(frozen=True)
class TensorSpec:
    """A tensor value.

    Attributes:
        sizes: the shape; of a `bounded` tensor the largest one.
        dim_order: the dimensions as they lie in memory, outermost first.
        planned: memory buffer and offset in bytes, where the compiler planned them.
        data: its bytes: of a constant (not planned), or what a planned tensor holds before the first call.
    """

    dtype: torch.dtype
    sizes: tuple[int, ...]
    dim_order: tuple[int, ...]
    dynamism: Dynamism = "static"
    planned: tuple[int, int] | None = None
    data: memoryview | None = None

    @property
    def elements(self) -> int:
        """The number of elements of the shape `sizes`."""
        total = 1
        for size in self.sizes:
            total *= size
        return total

    @property
    def bytes(self) -> int:
        """The size in memory of the shape `sizes`."""
        return self.elements * self.dtype.itemsize

    def __str__(self) -> str:
        at_most = "at most " if self.dynamism == "bounded" else ""
        return f"{str(self.dtype).removeprefix('torch.')} of {at_most}{list(self.sizes)}"


@dataclass(frozen=True)
class Scalar:
    """A number, a string, or nothing."""

    value: int | float | bool | str | None


@dataclass(frozen=True)
class IntList:
    """A list of integers, each one a value of its own (a size may be known only at run time)."""

    items: tuple[int, ...]


@dataclass(frozen=True)
class Literals:
    """A list of floats or of bools."""

    items: tuple[float, ...] | tuple[bool, ...]


@dataclass(frozen=True)
class TensorList:
    """A list of tensors by index; None: that one is not given."""

    items: tuple[int | None, ...]


Value: TypeAlias = TensorSpec | Scalar | IntList | Literals | TensorList


@dataclass(frozen=True)
class KernelCall:
    """Call an operator; the values are its operands and results, in the order of its schema."""

    operator: int
    args: tuple[int, ...]


@dataclass(frozen=True)
class DelegateCall:
    """Run a delegate; the values are its inputs, then its outputs."""

    delegate: int
    args: tuple[int, ...]


@dataclass(frozen=True)
class MoveCall:
    """Let one value stand for another one."""

    source: int
    target: int


@dataclass(frozen=True)
class JumpFalseCall:
    """Go on elsewhere in the chain if a value is false."""

    condition: int
    destination: int


@dataclass(frozen=True)
class FreeCall:
    """Give back the memory of an unbounded tensor."""

    value: int


Instruction: TypeAlias = KernelCall | DelegateCall | MoveCall | JumpFalseCall | FreeCall


@dataclass(frozen=True)
class Delegate:
    """What a backend made of a part of the graph."""

    id: str
    data: memoryview
    compile_specs: tuple[tuple[str, bytes], ...] = ()


@dataclass(frozen=True)
class Method:
    """One entry point.

    Attributes:
        operators: names as ExecuTorch registers its kernels, `aten::add.out`.
        chains: run one after another.
        buffer_sizes: bytes of each memory buffer that tensors are planned into; number 0 is not used.
    """

    name: str
    values: tuple[Value, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    chains: tuple[tuple[Instruction, ...], ...]
    operators: tuple[str, ...]
    delegates: tuple[Delegate, ...]
    buffer_sizes: tuple[int, ...]


@dataclass(frozen=True)
class Program:
    """A whole file: its methods, and the data that delegates find by name."""

    methods: dict[str, Method]
    named_data: dict[str, memoryview] = field(default_factory=dict)
