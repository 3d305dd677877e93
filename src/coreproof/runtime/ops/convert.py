"""What an op function's annotation means: how a carried value becomes the argument."""

from __future__ import annotations

import types
import typing
from collections.abc import Callable
from functools import cache
from typing import Any, TypeAlias

import torch
from torch import Tensor

Tensors: TypeAlias = list[Tensor]
Ints: TypeAlias = list[int]
Floats: TypeAlias = list[float]
Bools: TypeAlias = list[bool]
Strings: TypeAlias = list[str]
Values: TypeAlias = list[Any]  # of a variadic operand whose values may be lists

_MANY = 4096  # a list operand (axes, sizes) is short; a longer one is a broken file


@cache
def converter_of(kind: Any) -> Callable[[Any], Any]:
    """The conversion for an annotation; `X | None` converts as X."""
    if typing.get_origin(kind) in (typing.Union, types.UnionType):
        (kind,) = (one for one in typing.get_args(kind) if one is not type(None))
    return _CONVERTERS.get(kind, _as_it_is)


def _as_it_is(value: Any) -> Any:
    return value


def _tensor(value: Any) -> Tensor:
    if not isinstance(value, Tensor):
        raise TypeError(f"expected a tensor, got {type(value).__name__}")
    return value


def _scalar(wanted: type) -> Callable[[Any], Any]:
    def convert(value: Any) -> Any:
        tensor = _tensor(value)
        if tensor.numel() != 1:
            raise ValueError(f"expected one value, got shape {list(tensor.shape)}")
        return wanted(tensor.item())

    return convert


def _many(wanted: type) -> Callable[[Any], list]:
    def convert(value: Any) -> list:
        tensor = _tensor(value)
        if tensor.dim() > 1 and tensor.numel() > _MANY:
            raise ValueError(f"expected a list of at most {_MANY} values, got shape {list(tensor.shape)}")
        return [wanted(one) for one in tensor.reshape(-1).tolist()]

    return convert


def _string(value: Any) -> str:
    if isinstance(value, list) and len(value) == 1:
        value = value[0]
    if not isinstance(value, str):
        raise TypeError(f"expected a string, got {type(value).__name__}")
    return value


_CONVERTERS: dict[Any, Callable[[Any], Any]] = {
    Tensor: _tensor,
    Tensors: _tensor,
    int: _scalar(int),
    float: _scalar(float),
    bool: _scalar(bool),
    str: _string,
    Ints: _many(int),
    Floats: _many(float),
    Bools: _many(bool),
}

assert torch.Tensor is Tensor
