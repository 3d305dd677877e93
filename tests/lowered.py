"""Lower a small function of a module in one line, and hold the lowered graph against eager torch."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import coremltools as ct
import torch
from coremltools.models import MLModel
from executorch.backends.apple.coreml import executorchcoreml
from pte import delegates, missing_kernels
from torch import nn
from torch.utils import _pytree as pytree

import coreproof
from coreproof.verify.lowered_graph import LoweredRun


class Call(nn.Module):
    """A module that calls `function(self, *inputs)`; keyword arguments are its buffers, parameters or children."""

    def __init__(self, function: Callable, **members: Any) -> None:
        super().__init__()
        self.function = function
        for name, member in members.items():
            if isinstance(member, torch.Tensor) and not isinstance(member, nn.Parameter):
                self.register_buffer(name, member)
            else:
                setattr(self, name, member)

    def forward(self, *inputs: Any) -> Any:
        return self.function(self, *inputs)


def on_cpu(x: torch.Tensor) -> torch.Tensor:
    """An op that has a kernel in ExecuTorch and no right conversion to Core ML."""
    return torch.fmod(x, 97.0)


def lower(
    function: Callable, inputs: tuple, *, members: dict[str, Any] | None = None, **options: Any
) -> coreproof.Lowered:
    """`coreproof.lower` of a module that is the function."""
    return coreproof.lower(Call(function, **(members or {})).eval(), inputs, **options)


def lower_and_check(
    function: Callable, inputs: tuple, *, members: dict[str, Any] | None = None, calls: int = 1, **options: Any
) -> coreproof.Lowered:
    """Lower; the lowered graph must give eager's values (bit for bit, over `calls` calls) and have every kernel."""
    module = Call(function, **(members or {})).eval()
    eager = copy.deepcopy(module)
    lowered = coreproof.lower(module, inputs, **options)
    assert missing_kernels(lowered.pte) == set()
    run = LoweredRun(lowered.edge_program_manager)
    for _ in range(calls):
        expected = pytree.tree_leaves(eager(*copy.deepcopy(inputs)))
        for got, want in zip(run(*copy.deepcopy(inputs)), expected, strict=True):
            assert got.dtype == want.dtype
            torch.testing.assert_close(got, want, rtol=0, atol=0, equal_nan=True)
    return lowered


def places(lowered: coreproof.Lowered | coreproof.Placement) -> dict[str, list[int | None]]:
    """For each op (`mul.Tensor`), where its nodes run, in graph order."""
    placement = lowered.placement if isinstance(lowered, coreproof.Lowered) else lowered
    found: dict[str, list[int | None]] = {}
    for node in placement["forward"].nodes:
        found.setdefault(node.op.split(".", 1)[1], []).append(node.partition)
    return found


def specs(lowered: coreproof.Lowered, folder: Any) -> list[Any]:
    """The Core ML protobuf of each delegate; `folder` is an empty temporary folder."""
    found = []
    for number, data in enumerate(delegates(lowered.pte)):
        target = folder / f"delegate{number}"
        target.mkdir()
        assert executorchcoreml.unflatten_directory_contents(data, str(target))
        found.append(MLModel(str(target / "lowered_module" / "model.mlpackage"), skip_model_load=True).get_spec())
    return found


def ops(spec: Any) -> list[Any]:
    """The operations of the main function, in order."""
    function = spec.mlProgram.functions["main"]
    return list(function.block_specializations[function.opset].operations)


def output_producers(spec: Any) -> list[str]:
    """The op type that makes each output of the main function."""
    function = spec.mlProgram.functions["main"]
    block = function.block_specializations[function.opset]
    makers = {output.name: op.type for op in block.operations for output in op.outputs}
    return [makers[name] for name in block.outputs]


TARGETS = (ct.target.iOS15, ct.target.iOS16, ct.target.iOS17, ct.target.iOS18)
