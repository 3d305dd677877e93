"""Reading and updating what lives across calls."""

from __future__ import annotations

from torch import Tensor

from ..states import State


def read_state_ios18(input: State) -> Tensor:
    """The value that the state holds now"""
    return input.tensor


def coreml_update_state_ios18(state: State, value: Tensor) -> Tensor:
    """The state takes the value, which is also the result"""
    if not _same_memory(value, state.tensor):  # else it was changed in place
        state.tensor = value.clone()  # its memory is its own
    return value


def _same_memory(one: Tensor, other: Tensor) -> bool:
    return one.data_ptr() == other.data_ptr() and one.shape == other.shape and one.stride() == other.stride()


def write_state_ios18(input: State, data: Tensor) -> Tensor:
    """The form of an update in a file: the state takes the data"""
    return coreml_update_state_ios18(input, data)
