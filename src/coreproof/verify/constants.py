"""Which constants a finished program stores: the model's own, rounded, or others that were computed from them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import torch
from torch.export import ExportedProgram

from ..runtime.ir import Constant, Function, TensorType


def is_folded(functions: Iterable[Function], program: ExportedProgram) -> bool:
    """Whether a function stores float16 constants of several elements that are none of the program's, rounded.

    Batch norm that was folded into a convolution is an example: its weights were multiplied in float32 and rounded
    then, which rounds otherwise than the model with its weights rounded. The order of elements is not looked at.
    """
    given = {**program.state_dict, **program.constants}
    known = {
        _signature(value.detach().to(torch.float16))
        for value in given.values()
        if isinstance(value, torch.Tensor) and value.is_floating_point()
    }
    return any(_signature(value) not in known for function in functions for value in _half_constants(function))


def _half_constants(function: Function) -> Iterator[torch.Tensor]:
    for operation in function.body.walk():
        for one in (one for given in operation.inputs.values() for one in given):
            if isinstance(one, Constant) and isinstance(one.type, TensorType) and one.type.dtype == "fp16":
                value = one.load()
                if isinstance(value, torch.Tensor) and value.numel() > 1:
                    yield value


def _signature(value: torch.Tensor) -> tuple[int, int, int]:
    """Alike for tensors of the same elements in any order: their number, and two sums of their bit patterns."""
    bits = value.contiguous().view(torch.int16).flatten().to(torch.int64)
    return value.numel(), int(bits.sum()), int((bits * bits).sum())
