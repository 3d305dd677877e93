"""Faults planted in the protobuf of a finished delegate."""

from __future__ import annotations

import functools
import json
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from coremltools.converters.mil.backend.mil import helper
from coremltools.proto import Model_pb2
from executorch.backends.apple.coreml import executorchcoreml
from torch import nn
from verify.faulty_models import MODELS

import coreproof
from coreproof.runtime.ir import Function
from coreproof.verify.compare import tolerance
from coreproof.verify.delegates import Recording, check_delegate, record
from coreproof.verify.lowered import Method, example_call, explained
from coreproof.verify.record import Check


class Edited:
    """One delegate whose program may be changed.

    Attributes:
        metadata: what ExecuTorch's runtime reads: names of inputs and outputs in order.
    """

    def __init__(self, folder: Path, function: Function) -> None:
        self._folder, self._function = folder, function
        (self._model,) = folder.rglob("*.mlmodel")
        self._spec = Model_pb2.Model()
        self._spec.ParseFromString(self._model.read_bytes())
        main = self._spec.mlProgram.functions["main"]
        self.block = main.block_specializations[main.opset]
        (self._metadata_file,) = (p for p in folder.rglob("metadata.json") if "mlpackage" not in str(p))
        self.metadata = json.loads(self._metadata_file.read_text())

    def op(self, kind: str, nth: int = 0) -> Any:
        """The nth op of a type."""
        return [op for op in self.block.operations if op.type == kind][nth]

    def get(self, op: Any, operand: str) -> np.ndarray:
        """The value of a constant operand."""
        name = op.inputs[operand].arguments[0].name
        made = next(one for one in self._function.body.operations if any(v.name == name for v in one.outputs))
        value = made.inputs["val"][0].load()
        return value.numpy() if isinstance(value, torch.Tensor) else value

    def set(self, op: Any, operand: str, value: Any) -> None:
        """Give the operand a constant written in place: a string, a bool or an array of the dtype it is to have."""
        binding = op.inputs[operand].arguments
        del binding[:]
        array = np.asarray(value)
        single = isinstance(value, (str, bool)) or array.ndim == 0
        proto = helper.create_scalar_value(array.item()) if single else helper.create_tensor_value(array)
        if single and array.dtype == np.float16:
            tensor = helper.create_tensor_value(array.reshape(1))
            tensor.type.tensorType.rank = 0
            del tensor.type.tensorType.dimensions[:]
            proto = tensor
        binding.add().value.CopyFrom(proto)

    def change(self, op: Any, operand: str, how: Callable[[np.ndarray], Any]) -> None:
        """Replace a constant operand by what `how` makes of it, in the same dtype."""
        old = self.get(op, operand)
        self.set(op, operand, np.array(how(old), old.dtype, order="C"))

    def swap(self, op: Any, first: str, second: str) -> None:
        """Exchange two operands."""
        a, b = type(op.inputs[first])(), type(op.inputs[second])()
        a.CopyFrom(op.inputs[first])
        b.CopyFrom(op.inputs[second])
        op.inputs[first].CopyFrom(b)
        op.inputs[second].CopyFrom(a)

    def reversed(self, op: Any, operand: str) -> None:
        """The values of a variadic operand in the opposite order."""
        names = [one.name for one in op.inputs[operand].arguments]
        for one, name in zip(op.inputs[operand].arguments, reversed(names), strict=True):
            one.name = name

    def read(self, op: Any, operand: str, value: str) -> None:
        """Let the operand be another value."""
        op.inputs[operand].arguments[0].name = value

    def pass_on(self, op: Any, operand: str = "x") -> None:
        """Let the op's result be its operand."""
        op.type = "identity"
        given = type(op.inputs[operand])()
        given.CopyFrom(op.inputs[operand])
        op.inputs.clear()
        op.inputs["x"].CopyFrom(given)

    def remove(self, op: Any) -> None:
        """Leave the op out."""
        self.block.operations.remove(op)

    def shape(self, op: Any, sizes: list[int]) -> None:
        """Declare another shape for the op's result."""
        tensor = op.outputs[0].type.tensorType
        del tensor.dimensions[:]
        for size in sizes:
            tensor.dimensions.add().constant.size = size
        tensor.rank = len(sizes)

    def finished(self) -> bytes:
        """The delegate with the changes."""
        self._model.write_bytes(self._spec.SerializeToString())
        self._metadata_file.write_text(json.dumps(self.metadata))
        return executorchcoreml.flatten_directory_contents(str(self._folder))


@dataclass(frozen=True)
class Fault:
    """A change of one converted program, the torch op that it makes wrong, and the node where there are several."""

    model: str
    name: str
    plant: Callable[[Edited], None]
    op: str
    node: str = ""


def faulty_check(fault: Fault) -> Check:
    """What the verification of the delegate finds once the fault is in it."""
    recording = recorded(fault.model)
    with tempfile.TemporaryDirectory() as folder:
        executorchcoreml.unflatten_directory_contents(bytes(recording.data.data), folder)
        edited = Edited(Path(folder), recording.load("exact").function)
        fault.plant(edited)
        data = edited.finished()
    changed = replace(recording, data=replace(recording.data, data=memoryview(data)))
    return explained(changed, check_delegate(changed, tolerance()))


@functools.cache
def recorded(model: str) -> Recording:
    """The one delegate of a model of `MODELS`, and what it is given; right as it is."""
    torch.manual_seed(0)
    make, inputs = MODELS[model]
    module: nn.Module = make().eval()
    lowered = coreproof.lower(module, inputs, verify=False)
    rest = [
        (n.op, [r.reason for r in lowered.placement["forward"].refusals])
        for n in lowered.placement["forward"].nodes
        if n.partition is None
    ]
    assert not rest, rest
    program = torch.export.export(module, inputs)
    method = Method(program, module, example_call(inputs), steps=None, variations=1, seed=0)
    (recording,) = record(lowered.edge_program_manager, "forward", method.cases)
    return recording
