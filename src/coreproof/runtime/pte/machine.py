"""Runs one method of a `.pte`: its values, its planned memory and one loop over its instructions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from ...errors import CoreproofError, InputError, ModelError
from . import program as ir
from .delegates import CoreMLDelegate, Loader
from .kernels import make_kernel
from .tensors import TensorValue, zeros

# A loop over a tensor's rows jumps back once a row; a broken file may jump back for ever.
_MAX_JUMPS = 1_000_000
# What torch raises on operands that it cannot take.
_OPERAND_ERRORS = (
    RuntimeError,
    ValueError,
    IndexError,
    TypeError,
    OverflowError,
    NotImplementedError,
    ZeroDivisionError,
)


class LoadedMethod:
    """A method ready to run; its mutable buffers and its delegates' states live as long as it does.

    Attributes:
        delegates: in the order of the file.

    Raises:
        ModelError: an operator that torch does not have, a broken delegate.
        UnsupportedFileError: a delegate for another backend than Core ML.
    """

    def __init__(self, method: ir.Method, loader: Loader) -> None:
        self.method = method
        self._start = self._fresh_values()
        self._values = list(self._start)
        self.delegates: list[CoreMLDelegate] = [
            loader.load(one, f"method {method.name!r}, delegate {i}") for i, one in enumerate(method.delegates)
        ]
        self._chains = [
            [self._step(one, f"method {method.name!r}, instruction {i}") for i, one in enumerate(chain)]
            for chain in method.chains
        ]

    def _fresh_values(self) -> list[Any]:
        # Memory starts as zeros: what ExecuTorch's runtime for Python gives a mutable buffer without initial value.
        arenas = [zeros(size if i else 0) for i, size in enumerate(self.method.buffer_sizes)]
        return [
            TensorValue(value, arenas)
            if isinstance(value, ir.TensorSpec)
            else value.value
            if isinstance(value, ir.Scalar)
            else value
            for value in self.method.values
        ]

    # -- values (the kernels' view of the machine) -----------------------------------------------------------------

    def read(self, index: int) -> Any:
        """A value as torch takes it: a tensor, a number, a list of them, None."""
        value = self._values[index]
        if isinstance(value, TensorValue):
            return value.tensor
        if isinstance(value, ir.IntList):
            return [self._values[one] for one in value.items]
        if isinstance(value, ir.Literals):
            return list(value.items)
        if isinstance(value, ir.TensorList):
            return [None if one is None else self.tensor(one).tensor for one in value.items]
        return value

    def tensor(self, index: int) -> TensorValue:
        """A tensor value. Raises ModelError: it is none."""
        value = self._values[index]
        if not isinstance(value, TensorValue):
            raise ModelError(f"expected a tensor in value {index}, got {_kind(value)}")
        return value

    def tensors(self, index: int) -> list[TensorValue]:
        """The tensors of a list value, or of a tensor value the one."""
        value = self._values[index]
        if isinstance(value, ir.TensorList):
            return [self.tensor(one) for one in value.items if one is not None]
        return [self.tensor(index)]

    def write(self, index: int, value: Any) -> None:
        """Set a number. Raises ModelError: a tensor or a list is there."""
        if isinstance(self._values[index], (TensorValue, ir.IntList, ir.Literals, ir.TensorList)):
            raise ModelError(f"it sets value {index} to a number; a {_kind(self._values[index])} is there")
        self._values[index] = value

    # -- preparing -------------------------------------------------------------------------------------------------

    def _step(self, instruction: ir.Instruction, where: str) -> tuple[Callable[[], int | None], str]:
        """What to call for an instruction (it returns where to go on, or None), and its name in messages."""
        match instruction:
            case ir.KernelCall(operator, args):
                name = self.method.operators[operator]
                where = f"{where} ({name})"
                try:
                    kernel = make_kernel(name)
                except ModelError as error:
                    raise ModelError(f"{where}: {error}") from error
                return lambda: kernel(self, args), where
            case ir.DelegateCall(number, args):
                delegate = self.delegates[number]
                expected = len(delegate.inputs) + len(delegate.outputs)
                where = f"{where} (delegate {number})"
                if len(args) != expected:
                    raise ModelError(f"{where}: {len(args)} operands; the delegate has {expected}")
                return lambda: self._delegate(delegate, args), where
            case ir.MoveCall(source, target):
                return lambda: self._move(source, target), f"{where} (move)"
            case ir.JumpFalseCall(condition, destination):
                return lambda: None if self._is_true(condition) else destination, f"{where} (jump)"
            case ir.FreeCall(value):
                return lambda: self.tensor(value).free(), f"{where} (free)"

    def _move(self, source: int, target: int) -> None:
        self._values[target] = self._values[source]

    def _is_true(self, index: int) -> bool:
        value = self._values[index]
        if isinstance(value, bool):
            return value
        if isinstance(value, TensorValue) and value.spec.dtype == torch.bool:
            return bool(value.tensor.all())
        raise ModelError(f"expected a bool as condition in value {index}, got {_kind(value)}")

    def _delegate(self, delegate: CoreMLDelegate, args: tuple[int, ...]) -> None:
        count = len(delegate.inputs)
        results = delegate.run([self.tensor(one).tensor for one in args[:count]])
        for index, result in zip(args[count:], results, strict=True):
            target = self.tensor(index)
            if result.dim() == 1 and len(result) == 1 and not target.spec.sizes:
                result = result.reshape(())
            target.assign(result)

    # -- running ---------------------------------------------------------------------------------------------------

    def run(self, inputs: Sequence[Any]) -> list[Any]:
        """Run the method once.

        Args:
            inputs: tensors, and numbers or strings where the method has them.

        Raises:
            InputError: another number of inputs, another dtype or shape than the method takes.
            ModelError: an instruction cannot do what the file says.
        """
        with torch.no_grad():
            self._values = list(self._start)
            self._take(inputs)
            for steps in self._chains:
                self._run(steps)
            return [self._given_back(index) for index in self.method.outputs]

    def reset(self) -> None:
        """Set mutable buffers and states to what they were at first."""
        self._start = self._fresh_values()
        for delegate in self.delegates:
            delegate.reset()

    def _run(self, steps: list[tuple[Callable[[], int | None], str]]) -> None:
        at = jumps = 0
        while at < len(steps):
            call, where = steps[at]
            try:
                to = call()
            except CoreproofError as error:
                raise type(error)(f"{where}: {error}") from error
            except _OPERAND_ERRORS as error:
                text = str(error).strip().splitlines()
                raise ModelError(f"{where}: {text[0] if text else type(error).__name__}") from error
            if to is not None and to <= at:
                jumps += 1
                if jumps > _MAX_JUMPS:
                    raise ModelError(f"{where}: the loop goes on for more than {_MAX_JUMPS} rounds")
            at = at + 1 if to is None else to

    def _take(self, inputs: Sequence[Any]) -> None:
        expected = self.method.inputs
        if len(inputs) != len(expected):
            raise InputError(f"method {self.method.name!r} takes {len(expected)} inputs; got {len(inputs)}")
        for number, (index, given) in enumerate(zip(expected, inputs, strict=True)):
            self._take_one(index, given, f"input {number} of method {self.method.name!r}")

    def _take_one(self, index: int, given: Any, what: str) -> None:
        value = self._values[index]
        if not isinstance(value, TensorValue):
            # ExecuTorch compiles numbers in; another one would need another program.
            if isinstance(given, torch.Tensor) or type(given) is not type(value) or given != value:
                raise InputError(f"{what}: expected {value!r}, the value of the export; got {_shown(given)}")
            return
        spec = value.spec
        if not isinstance(given, torch.Tensor) or given.dtype != spec.dtype:
            raise InputError(f"{what}: expected {spec}, got {_shown(given)}")
        fits = len(given.shape) == len(spec.sizes)
        if spec.dynamism == "static":
            fits = fits and tuple(given.shape) == spec.sizes
        elif spec.dynamism == "bounded":
            fits = fits and all(size <= most for size, most in zip(given.shape, spec.sizes, strict=True))
        if not fits:
            raise InputError(f"{what}: expected {spec}, got {_shown(given)}")
        value.assign(given.detach().cpu())

    def _given_back(self, index: int) -> Any:
        value = self.read(index)
        if isinstance(value, torch.Tensor):
            return value.clone()
        return value


def _kind(value: Any) -> str:
    if isinstance(value, TensorValue):
        return f"a tensor, {value.spec}"
    return f"{type(value).__name__}"


def _shown(given: Any) -> str:
    if isinstance(given, torch.Tensor):
        return f"{str(given.dtype).removeprefix('torch.')} of {list(given.shape)}"
    return repr(given) if isinstance(given, (bool, int, float, str)) or given is None else type(given).__name__
