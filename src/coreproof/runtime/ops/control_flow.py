"""Branches, loops and lists of tensors. A list is a Python list, which no op changes in place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ..dtypes import element_type
from ..memory import require_elements
from .convert import Values

# A bound on what a loop that never ends costs; a model's loops run once for each step of a sequence.
_MAX_STEPS = 1_000_000
_MAX_LENGTH = 1_000_000

Blocks = list[Callable[..., list[Any]]]


def cond(pred: bool, *, blocks: Blocks) -> list[Any]:
    """The results of the first block where pred holds, else of the second"""
    return blocks[0 if pred else 1]()


def while_loop(loop_vars: Values, *, blocks: Blocks) -> list[Any]:
    """The second block again and again on its own results, as long as the first holds"""
    values = list(loop_vars)
    for _ in range(_MAX_STEPS):
        (again,) = blocks[0](*values)
        if not bool(again):
            return values
        values = blocks[1](*values)
    raise ValueError(f"still running after {_MAX_STEPS:,} steps")


def make_list(
    elem_shape: Values,
    init_length: int = 1,
    dynamic_length: bool = True,
    dtype: str = "fp32",
) -> object:
    """A list of zeros; elements whose shape is not known yet are absent until they are written"""
    if not 0 <= init_length <= _MAX_LENGTH:
        raise ValueError(f"init_length {init_length}; expected 0 to {_MAX_LENGTH}")
    sizes = [int(one) if isinstance(one, Tensor) and one.numel() == 1 else -1 for one in elem_shape]
    if -1 in sizes:
        return [None] * init_length
    require_elements([init_length, *sizes], "make_list")
    return [torch.zeros(sizes, dtype=element_type(dtype).carrier)] * init_length


def list_length(ls: list) -> Tensor:
    """The number of elements"""
    return torch.tensor(len(ls), dtype=torch.int32)


def list_read(ls: list, index: int) -> object:
    """The element at the index"""
    _require(ls, index)
    if ls[index] is None:
        raise ValueError(f"element {index} was never written")
    return ls[index]


def list_write(ls: list, index: int, value: Tensor) -> object:
    """The list with the value at the index; it grows up to there with zeros"""
    if not 0 <= index <= _MAX_LENGTH:
        raise ValueError(f"index {index}; expected 0 to {_MAX_LENGTH}")
    longer = list(ls) + [torch.zeros_like(value)] * (index + 1 - len(ls))
    longer[index] = value
    return longer


def list_gather(ls: list, indices: Tensor) -> Tensor:
    """The elements at the indices, stacked"""
    places = indices.reshape(-1).tolist()
    for index in places:
        _require(ls, index)
    chosen = [ls[index] for index in places]
    example = next((one for one in ls if one is not None), None)
    if example is None:
        raise ValueError("no element was ever written")
    require_elements([len(chosen), *example.shape], "list_gather")
    return torch.stack([torch.zeros_like(example) if one is None else one for one in chosen])


def list_scatter(ls: list, indices: Tensor, value: Tensor) -> object:
    """The list with the value's entries at the indices"""
    for index, one in zip(indices.reshape(-1).tolist(), value, strict=True):
        ls = list_write(ls, index, one)  # type: ignore[assignment]
    return ls


def _require(ls: list, index: int) -> None:
    if not -len(ls) <= index < len(ls):
        raise ValueError(f"index {index} of a list of {len(ls)}")
