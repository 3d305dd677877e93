"""Core ML delegates of a `.pte`, run by the reference runtime."""

from __future__ import annotations

import json
import posixpath
from collections.abc import Collection, Sequence
from typing import Any, Literal

import torch

from ...errors import ModelError, UnsupportedFileError
from ..inputs import carried_inputs
from ..interpreter import Interpreter, Mode
from ..ir import Program, TensorType
from ..model import Model
from ..package import Flattened, is_flattened
from .program import Delegate

BACKEND = "CoreMLBackend"
_REFERENCE = b"CMJR"  # Core ML JSON reference: the model itself is named data, shared by several methods
_METADATA = "metadata.json"


class Loader:
    """Makes delegates ready to run; a model that several methods share is read once.

    Args:
        named_data: of the program.
        mode: as `coreproof.runtime.load` takes it.
    """

    def __init__(self, named_data: dict[str, memoryview], mode: Mode) -> None:
        self._named = named_data
        self._mode: Mode = mode
        self._models: dict[str, tuple[Model, dict[str, Any]]] = {}

    def load(self, delegate: Delegate, where: str) -> CoreMLDelegate:
        """The delegate, with states of its own.

        Raises:
            UnsupportedFileError: it is another backend's.
            ModelError: it is broken, or names data that the file does not have.
        """
        if delegate.id != BACKEND:
            raise UnsupportedFileError(
                f"{where}: made for the backend {delegate.id!r}; the reference runtime runs {BACKEND} only"
            )
        key, function = self.reference(delegate, where)
        if key is None:
            model, metadata = _read(delegate.data, self._mode, where)
            return CoreMLDelegate(model, metadata, None, where)
        if key not in self._models:
            self._models[key] = _read(self.model_data(delegate, where), self._mode, where)
        model, metadata = self._models[key]
        methods = metadata.get("methods")
        if (
            not isinstance(function, str)
            or not isinstance(methods, dict)
            or not isinstance(methods.get(function), dict)
        ):
            raise ModelError(f"{where}: the model's {_METADATA} describes no function {function!r}")
        return CoreMLDelegate(model, methods[function], function, where)

    def model_data(self, delegate: Delegate, where: str) -> memoryview:
        """The bytes of the delegate's model: its own, or the named data that it refers to.

        Raises:
            ModelError: it refers to data that the file does not have.
        """
        key, _ = self.reference(delegate, where)
        return delegate.data if key is None else self._named[key]

    def reference(self, delegate: Delegate, where: str) -> tuple[str | None, Any]:
        """The key of the named data that the delegate refers to and the function that it runs; None: it refers to none.

        Raises:
            ModelError: the reference is broken, or the file has no data of that name.
        """
        if bytes(delegate.data[: len(_REFERENCE)]) != _REFERENCE:
            return None, None
        found = _json(bytes(delegate.data[len(_REFERENCE) :]), where)
        key = found.get("key")
        if not isinstance(key, str) or key not in self._named:
            raise ModelError(f"{where}: refers to the model {key!r}, which is not in the file's named data")
        return key, found.get("functionName")


class CoreMLDelegate:
    """A Core ML model as a delegate: operands by position, and states that live as long as it does.

    Attributes:
        function: the one that it runs.
        inputs, outputs: names in the order of the operands.
    """

    def __init__(self, model: Model, metadata: dict[str, Any], function: str | None, where: str) -> None:
        self._model = model
        self.function = model.function(function)
        self._where = where
        self.inputs = _names(metadata, "inputNames", where)
        self.outputs = _names(metadata, "outputNames", where)
        self._types = {value.name: value.type for value in self.function.inputs}
        unknown = sorted(set(self.inputs) - set(self._types))
        if unknown:
            raise ModelError(f"{where}: its {_METADATA} names an input {unknown[0]!r} that the model does not have")
        self._interpreter = Interpreter(self.function, model.mode)
        self.reset()

    @property
    def program(self) -> Program:
        """The program that holds the function."""
        return self._model.program

    @property
    def states(self) -> dict[str, torch.Tensor]:
        """What each state holds now, by name, as the interpreter carries it."""
        return {name: state.tensor for name, state in self._state.states.items()}

    def reset(self) -> None:
        """Set the states to zeros again."""
        self._state = self._model.make_state(self.function.name)

    def run(self, inputs: Sequence[torch.Tensor], *, rounding: Collection[str] = ()) -> list[torch.Tensor]:
        """The outputs, as the interpreter carries them; a scalar may come as one dimension of size 1.

        Args:
            rounding: as `Interpreter.run` takes it.

        Raises:
            InputError: an input has a shape that the model does not take.
            ModelError: the model is malformed, or does not make what its metadata names.
        """
        made = self._run(inputs, (), rounding)
        missing = [name for name in self.outputs if not isinstance(made.get(name), torch.Tensor)]
        if missing:
            raise ModelError(f"{self._where}: the model makes no output {missing[0]!r}, which its {_METADATA} names")
        return [made[name] for name in self.outputs]

    def values(self, inputs: Sequence[torch.Tensor]) -> dict[str, Any]:
        """As `run`, but every value of the function, by name, in the order in which they are made."""
        return self._run(inputs, "all")

    def _run(
        self, inputs: Sequence[torch.Tensor], taps: Collection[str] | Literal["all"], rounding: Collection[str] = ()
    ) -> dict[str, Any]:
        given = {name: self._given(name, tensor) for name, tensor in zip(self.inputs, inputs, strict=True)}
        carried = carried_inputs(self.function, given)
        if self._model.mode == "exact":  # half inputs are not rounded at the border either
            carried |= {name: x.to(carried[name].dtype) for name, x in given.items() if x.is_floating_point()}
        return self._interpreter.run({**carried, **self._state.states}, taps=taps, rounding=rounding)

    def _given(self, name: str, tensor: torch.Tensor) -> torch.Tensor:
        """ExecuTorch's delegate converts the dtype at the border, and gives a scalar as one dimension."""
        declared = self._types[name]
        if not isinstance(declared, TensorType):
            return tensor
        if tensor.dim() == 0 and declared.shape == (1,):
            tensor = tensor.reshape(1)
        element = declared.element
        if element.stored is None or (element.is_float and tensor.is_floating_point()):
            return tensor
        return tensor.to(element.stored)


def _read(data: memoryview, mode: Mode, where: str) -> tuple[Model, dict[str, Any]]:
    from ..load import read_program

    if not is_flattened(data):
        raise ModelError(f"{where}: no Core ML model: no list of files at the end of its {len(data)} bytes")
    files = Flattened(data)
    found = [path for path in files.paths if posixpath.basename(path) == _METADATA and "mlpackage" not in path]
    if not found:
        raise ModelError(f"{where}: the delegate has no {_METADATA}")
    metadata = _json(bytes(files.source(min(found, key=len))), where)
    return Model(read_program(data), mode), metadata


def _json(text: bytes, where: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ModelError(f"{where}: its JSON is broken ({error})") from error
    if not isinstance(found, dict):
        raise ModelError(f"{where}: its JSON is a {type(found).__name__}; expected an object")
    return found


def _names(metadata: dict[str, Any], key: str, where: str) -> list[str]:
    names = metadata.get(key)
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ModelError(f"{where}: {key} in its {_METADATA} is no list of names")
    return names
