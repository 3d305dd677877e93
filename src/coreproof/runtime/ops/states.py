"""Reading and updating what lives across calls."""

from __future__ import annotations

from torch import Tensor

from ..states import State


def read_state_ios18(input: State) -> Tensor:
    """The value that the state holds now"""
    return input.tensor


def coreml_update_state_ios18(state: State, value: Tensor) -> Tensor:
    """The state takes the value, which is also the result"""
    state.tensor = value
    return value


def write_state_ios18(input: State, data: Tensor) -> Tensor:
    """The form of an update in a file: the state takes the data"""
    input.tensor = data
    return data
