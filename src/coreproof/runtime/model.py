"""A loaded model, used as `coremltools.models.MLModel` is."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Literal

import numpy as np
import torch

from ..errors import InputError
from .inputs import carried_inputs, given_back
from .interpreter import Interpreter, Mode
from .ir import Function, Program, StateType, TensorType, Value
from .states import State


class ModelState:
    """The states of one function, between calls; made by `Model.make_state`.

    `read_state` and `write_state` take and give numpy arrays, as those of coremltools' MLState do.
    """

    def __init__(self, states: dict[str, State]) -> None:
        self.states = states

    def read_state(self, name: str) -> np.ndarray:
        """A copy of the state `name`, in its declared type. Raises InputError: there is none."""
        state = self._find(name)
        return np.array(given_back(state.tensor, state.type, None))

    def write_state(self, name: str, value: Any) -> None:
        """Set the state `name`. Raises InputError: there is none, or the shape differs."""
        state = self._find(name)
        tensor = torch.as_tensor(np.asarray(value)).to(state.tensor.dtype)
        if tensor.shape != state.tensor.shape:
            raise InputError(f"state {name!r} has shape {list(state.tensor.shape)}; got {list(tensor.shape)}")
        state.tensor = tensor.clone()

    def _find(self, name: str) -> State:
        if name not in self.states:
            raise InputError(f"no state named {name!r}; expected {', '.join(self.states) or 'none'}")
        return self.states[name]


class Model:
    """A program ready to run; made by `load`.

    Attributes:
        program: the runtime's form of it.
        mode: `declared` (each result rounded once to its declared type) or `exact` (float32 throughout).
    """

    def __init__(self, program: Program, mode: Mode = "declared") -> None:
        if mode not in ("declared", "exact"):
            raise InputError(f"unknown mode {mode!r}; expected declared or exact")
        self.program = program
        self.mode: Mode = mode
        self._interpreters: dict[str, Interpreter] = {}
        self._types: dict[str, dict[str, TensorType]] = {}

    def predict(
        self,
        data: dict[str, Any],
        state: ModelState | None = None,
        *,
        function_name: str | None = None,
        taps: Collection[str] | Literal["all"] = (),
        stop_after: str | None = None,
        seed: int = 0,
    ) -> dict[str, Any]:
        """Run a function once.

        Args:
            data: by input name, an array (or what numpy makes one of), a torch tensor, or a PIL image.
            state: from `make_state`; it is changed. A function with states needs one.
            function_name: of a model with several functions; None is the default one.
            taps: names of intermediate values to return too, or `all`.
            stop_after: name of a value; the run ends when it is made, and it is returned.
            seed: of random ops that have none of their own.

        Returns:
            By name, numpy arrays in the declared types (PIL images, strings or dictionaries where the model declares
            such an output); tapped values follow the outputs.

        Raises:
            InputError: an input is missing, unknown or wrong; a name that the function does not have.
            ModelError: the program is malformed.
        """
        function = self.function(function_name)
        if isinstance(data, list):
            raise InputError("data is a list; call predict once for each dict of inputs")
        inputs: dict[str, Any] = dict(carried_inputs(function, data))
        inputs |= self._states(function, state)
        interpreter = self._interpreter(function)
        results = interpreter.run(inputs, taps=taps, stop_after=stop_after, seed=seed)
        declared = self._declared(function)
        features = {feature.name: feature for feature in function.output_features}
        return {name: given_back(value, declared.get(name), features.get(name)) for name, value in results.items()}

    def make_state(self, function_name: str | None = None) -> ModelState:
        """States of zeros for a function, as a new MLState holds them.

        Raises:
            InputError: no such function; a state without a fixed shape.
        """
        function = self.function(function_name)
        return ModelState({value.name: _zeros(value) for value in _state_values(function)})

    @property
    def function_names(self) -> list[str]:
        """The functions, the default one first."""
        return sorted(self.program.functions, key=lambda name: name != self.program.default)

    def function(self, name: str | None = None) -> Function:
        """The function of this name (None: the default one). Raises InputError: there is none."""
        name = name or self.program.default
        if name not in self.program.functions:
            raise InputError(f"no function named {name!r}; expected {', '.join(self.function_names)}")
        return self.program.functions[name]

    def _interpreter(self, function: Function) -> Interpreter:
        if function.name not in self._interpreters:
            self._interpreters[function.name] = Interpreter(function, self.mode)
        return self._interpreters[function.name]

    def _declared(self, function: Function) -> dict[str, TensorType]:
        """The declared types of the function's tensors, by name."""
        if function.name not in self._types:
            values = [*function.inputs, *(value for op in function.body.walk() for value in op.outputs)]
            self._types[function.name] = {v.name: v.type for v in values if isinstance(v.type, TensorType)}
        return self._types[function.name]

    def _states(self, function: Function, state: ModelState | None) -> dict[str, State]:
        names = {value.name for value in _state_values(function)}
        if names and state is None:
            raise InputError(f"function {function.name!r} has states ({', '.join(sorted(names))}): give make_state()")
        held = state.states if state is not None else {}
        if set(held) != names:
            raise InputError(
                f"the state given holds {', '.join(held) or 'nothing'}; function {function.name!r} has "
                f"{', '.join(sorted(names)) or 'no states'}"
            )
        return dict(held)


def _state_values(function: Function) -> list[Value]:
    return [value for value in function.inputs if isinstance(value.type, StateType)]


def _zeros(value: Value) -> State:
    assert isinstance(value.type, StateType)
    wrapped = value.type.wrapped
    if wrapped.elements is None or wrapped.shape is None:
        raise InputError(f"state {value.name!r} is declared {wrapped}; expected a fixed shape")
    return State(value.name, wrapped, torch.zeros([s or 0 for s in wrapped.shape], dtype=wrapped.element.carrier))
