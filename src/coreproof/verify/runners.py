"""Finished programs behind one interface: called with the inputs in order, they return the outputs in order."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, Protocol, TypeAlias

import torch
from coremltools.models import MLModel

from ..errors import InputError
from ..runtime import Model, PteProgram
from ..runtime.inputs import carried_inputs
from ..runtime.interpreter import Interpreter, Mode
from ..runtime.ir import Function, StateType, TensorType
from ..runtime.ir import Program as CoreMLProgram

Runtime: TypeAlias = Literal["reference", "coreml", "executorch"]
RUNTIMES: tuple[Runtime, ...] = ("reference", "coreml", "executorch")


class Runner(Protocol):
    """A finished program, ready to run."""

    def reset(self) -> None:
        """Go back to the initial state."""

    def run(self, inputs: Sequence[Any]) -> list[Any]:
        """One call; state is kept."""


class PteRunner:
    """One method of a `.pte` in the reference runtime.

    Attributes:
        loaded: the method, with its delegates.
    """

    def __init__(self, data: bytes, method: str, mode: Mode) -> None:
        self.loaded = PteProgram(data, mode=mode).loaded(method)

    def reset(self) -> None:
        self.loaded.reset()

    def run(self, inputs: Sequence[Any]) -> list[Any]:
        return self.loaded.run(inputs)


class ExecuTorchRunner:
    """One method of a `.pte` in ExecuTorch's own runtime. Raises InputError: it does not load there."""

    def __init__(self, data: bytes, method: str) -> None:
        from executorch.runtime import Runtime as Native

        self._native, self._data, self._name = Native.get(), data, method
        self.reset()

    def reset(self) -> None:
        try:
            self._method = self._native.load_program(self._data).load_method(self._name)
        except RuntimeError as error:
            raise InputError(f"ExecuTorch's runtime cannot load method {self._name!r}: {error}") from error

    def run(self, inputs: Sequence[Any]) -> list[Any]:
        return [_own(one) for one in self._method.execute(list(inputs))]


class PackageRunner:
    """The default function of a Core ML model in the reference runtime; inputs by position.

    Args:
        order: the names of its inputs, in the order of the model's arguments.
    """

    def __init__(self, program: CoreMLProgram, order: Sequence[str], mode: Mode) -> None:
        self._model = Model(program, mode)
        self._function = self._model.function()
        self._interpreter = Interpreter(self._function, mode)
        self._order = order
        self.reset()

    def reset(self) -> None:
        self._state = self._model.make_state()

    def run(self, inputs: Sequence[Any]) -> list[Any]:
        given = {name: _as_declared(self._function, name, x) for name, x in zip(self._order, inputs, strict=True)}
        made = self._interpreter.run({**carried_inputs(self._function, given), **self._state.states})
        return [made[name] for name in self._function.body.outputs]


class DeviceRunner:
    """A Core ML model on Apple's own runtime, through coremltools."""

    def __init__(self, model: MLModel, function: Function, order: Sequence[str]) -> None:
        self._model, self._function, self._order = model, function, order
        self._stateful = any(isinstance(value.type, StateType) for value in function.inputs)
        self.reset()

    def reset(self) -> None:
        self._state = self._model.make_state() if self._stateful else None

    def run(self, inputs: Sequence[Any]) -> list[Any]:
        data = {
            name: _as_declared(self._function, name, x).numpy() for name, x in zip(self._order, inputs, strict=True)
        }
        made = self._model.predict(data, self._state) if self._stateful else self._model.predict(data)
        return [torch.as_tensor(made[name]) for name in self._function.body.outputs]


def require_runtime(runtime: str) -> None:
    """Raises InputError: no such runtime, or one that this machine does not have."""
    if runtime not in RUNTIMES:
        raise InputError(f"unknown runtime {runtime!r}; expected one of {', '.join(RUNTIMES)}")
    if runtime == "coreml" and sys.platform != "darwin":
        raise InputError(
            f"runtime 'coreml' is Apple's Core ML framework, which needs macOS; this is {sys.platform}: "
            "run the same command on a Mac, or leave the option out for the reference runtime"
        )


def require_executorch(data: bytes, method: str) -> None:
    """Raises InputError: ExecuTorch's runtime off macOS cannot run the method, for it has Core ML delegates."""
    delegates = PteProgram(data).program.methods[method].delegates
    if delegates and sys.platform != "darwin":
        raise InputError(
            f"runtime 'executorch' has no Core ML on {sys.platform}, and method {method!r} has {len(delegates)} "
            "delegate(s): use the reference runtime, or a program without delegates"
        )


def device_model(program: Any) -> MLModel:
    """The coremltools model of an `.mlpackage`, loaded for Apple's runtime."""
    return program if isinstance(program, MLModel) else MLModel(str(Path(program)))


def _as_declared(function: Function, name: str, given: Any) -> torch.Tensor:
    """The tensor in the type that the model takes (int64 as int32, bool as 0 and 1), which converters narrow to."""
    tensor = torch.as_tensor(given)
    declared = next(value.type for value in function.inputs if value.name == name)
    stored = declared.element.stored if isinstance(declared, TensorType) else None
    if isinstance(declared, TensorType) and tensor.dim() == 0 and declared.shape == (1,):
        tensor = tensor.reshape(1)
    if stored is None or (stored.is_floating_point and tensor.is_floating_point()):
        return tensor
    return tensor.to(stored)


def _own(value: Any) -> Any:
    """A copy: ExecuTorch's runtime gives views of memory that its next call uses."""
    return value.clone() if isinstance(value, torch.Tensor) else value
