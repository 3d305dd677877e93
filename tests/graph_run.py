"""Runs a lowered graph on torch, each delegate by the edge program that it was made from.

It shows what partitioning did to the model's values, apart from what Core ML
does to them: nothing, and that holds for buffers over several calls too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from executorch.exir import EdgeProgramManager
from executorch.exir.delegate import executorch_call_delegate
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, OutputKind
from torch.utils import _pytree as pytree


def run_lowered(edge_program_manager: EdgeProgramManager, inputs: Sequence[Any], method: str = "forward") -> list:
    """The user outputs, flat, of one call from the program's initial state."""
    return LoweredRun(edge_program_manager, method)(*inputs)


class LoweredRun:
    """A lowered method, ready to be called several times; its buffers keep their values between calls."""

    def __init__(self, edge_program_manager: EdgeProgramManager, method: str = "forward") -> None:
        self._main = _Program(edge_program_manager.exported_program(method))

    def __call__(self, *inputs: Any) -> list:
        """The user outputs, flat; `inputs` as the model takes them, of the shapes that it was lowered for."""
        with torch.no_grad():
            return self._main(pytree.tree_leaves(inputs))


class _Program:
    """One exported program with its own copy of every buffer that it changes."""

    def __init__(self, program: ExportedProgram) -> None:
        self._signature = program.graph_signature
        self._module = program.graph_module
        self._held = {**program.state_dict, **program.constants}
        mutated = self._signature.buffers_to_mutate.values()
        self._held.update({name: self._held[name].clone() for name in mutated})
        self._delegates: dict[int, _Program] = {}

    def __call__(self, inputs: Sequence[Any]) -> list:
        feed = iter(inputs)
        arguments = [
            next(feed) if spec.kind == InputKind.USER_INPUT else self._held[spec.target]
            for spec in self._signature.input_specs
        ]
        results = _Interpreter(self._module, self._delegates).run(*arguments)
        specs = self._signature.output_specs
        if len(results) < len(specs):
            # `to_executorch` has put a `copy_` into each buffer in the graph, and dropped the new values as outputs.
            specs = [spec for spec in specs if spec.kind != OutputKind.BUFFER_MUTATION]
        outputs = []
        for spec, value in zip(specs, results, strict=True):
            if spec.kind == OutputKind.BUFFER_MUTATION:
                # The old value may be an output or an operand of a view, so it is replaced, never written to.
                self._held[spec.target] = value.clone()
            elif spec.kind == OutputKind.USER_OUTPUT:
                outputs.append(value)
            else:
                raise NotImplementedError(f"an output of kind {spec.kind}")
        return outputs


class _Interpreter(torch.fx.Interpreter):
    def __init__(self, module: torch.fx.GraphModule, delegates: dict[int, _Program]) -> None:
        super().__init__(module)
        self._delegates = delegates

    def call_function(self, target: Any, args: tuple, kwargs: dict) -> Any:
        if target is not executorch_call_delegate:
            return super().call_function(target, args, kwargs)
        lowered, *inputs = args
        if id(lowered) not in self._delegates:
            self._delegates[id(lowered)] = _Program(lowered.original_module)
        return tuple(self._delegates[id(lowered)](inputs))
