"""What must hold after any rewrite: same values, same object when done, accepted by ExecuTorch, provenance kept."""

from __future__ import annotations

import copy

import torch
from executorch.exir import ExecutorchBackendConfig, to_edge_transform_and_lower
from executorch.exir.passes.init_mutable_pass import InitializedMutableBufferPass
from executorch.runtime import Runtime
from torch.export import ExportedProgram, export

from coreproof.rewrite import rewrite


class Model(torch.nn.Module):
    """A module whose forward is a plain function of itself and the inputs, with the given buffers."""

    def __init__(self, run, **buffers):
        super().__init__()
        self.run = run
        for name, tensor in buffers.items():
            self.register_buffer(name, tensor)

    def forward(self, *inputs):
        return self.run(self, *inputs)


def ops(program: ExportedProgram) -> list[str]:
    """`aten.cat.default` and so on, in the order of the graph."""
    return [str(node.target) for node in program.graph.nodes if node.op == "call_function"]


def assert_same(actual, expected) -> None:
    torch.testing.assert_close(actual, expected, rtol=0, atol=0, equal_nan=True, check_stride=False)


@torch.no_grad()
def steps(runnable, calls) -> list:
    """The outputs of several calls, copied: a returned buffer changes with the next call."""
    return [copy.deepcopy(runnable(*inputs)) for inputs in calls]


def module_steps(program: ExportedProgram, calls) -> list:
    """`steps` of the program's own module, on buffers of its own: the program keeps its initial state."""
    return steps(copy.deepcopy(program.module()), calls)


def check(model, *calls, dynamic_shapes=None, compare=assert_same, functional=False, lower=True):
    """Rewrite the exported model and check all that holds for every rewrite.

    Expected outputs are those of the eager model over `calls` (tuples of inputs), one after the other.

    Returns:
        The new program, the same after functionalisation, and with `lower` as ExecuTorch's edge program, which is
        then run on ExecuTorch's CPU kernels too.
    """
    program = export(model, calls[0], dynamic_shapes=dynamic_shapes)
    if functional:
        program = program.run_decompositions({})
    expected = steps(copy.deepcopy(model), calls)
    before, names = str(program), set(program.state_dict) | set(program.constants)
    new = rewrite(program)
    assert new is not program
    assert str(program) == before
    assert names == set(program.state_dict) | set(program.constants)
    assert rewrite(new) is new
    assert not [node for node in new.graph.nodes if node.op == "call_function" and not node.meta.get("nn_module_stack")]
    compare(module_steps(new, calls), expected)
    functionalised = new.run_decompositions({})
    assert rewrite(functionalised) is functionalised
    compare(module_steps(functionalised, calls), expected)
    if not lower:
        return new, functionalised
    edge = to_edge_transform_and_lower(new)
    edge_program = copy.deepcopy(edge.exported_program())  # to_executorch changes it
    # Without this pass a mutable buffer starts with whatever the memory holds.
    config = ExecutorchBackendConfig(passes=[InitializedMutableBufferPass([*program.state_dict])])
    pte = edge.to_executorch(config).buffer  # held to the end: the runtime reads constants from it and keeps no copy
    method = Runtime.get().load_program(pte).load_method("forward")
    compare(steps(lambda *inputs: _execute(method, inputs), calls), expected)
    return new, functionalised, edge_program


def _execute(method, inputs):
    outputs = method.execute(inputs)
    return outputs[0] if len(outputs) == 1 else tuple(outputs)


def untouched(model, inputs, **options) -> bool:
    program = export(model, inputs, **options)
    return rewrite(program) is program
