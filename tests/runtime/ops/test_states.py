"""States: read, updated, and carried from call to call in both forms of a program."""

import coremltools as ct
import numpy as np
import pytest
import torch
from op_run import run

from coreproof.runtime import load
from coreproof.runtime.ir import TensorType
from coreproof.runtime.states import State


@pytest.mark.parametrize("op, names", [("coreml_update_state", ("state", "value")), ("write_state", ("input", "data"))])
def test_an_update_replaces_the_value_and_gives_it_back(op, names):
    before, after = torch.zeros(2), torch.ones(2)
    state = State("cache", TensorType("fp32", (2,)), before)
    held = run("read_state", input=state)
    assert torch.equal(run(op, **dict(zip(names, (state, after), strict=True))), after)
    assert torch.equal(run("read_state", input=state), after)
    assert held.tolist() == [0, 0]  # what was read earlier stays as it was


class Total(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("total", torch.zeros(3))

    def forward(self, x):
        self.total.add_(x)
        return self.total * 2


def test_a_running_total():
    model = ct.convert(
        torch.jit.trace(Total().eval(), torch.zeros(3)), inputs=[ct.TensorType("x", (3,))],
        states=[ct.StateType(ct.TensorType(shape=(3,), dtype=np.float16), name="total")],
        minimum_deployment_target=ct.target.iOS18, skip_model_load=True,
    )  # fmt: skip
    (block,) = model.get_spec().mlProgram.functions["main"].block_specializations.values()
    written = [(op.type, len(op.outputs)) for op in block.operations if "state" in op.type]
    assert written == [("read_state", 1), ("write_state", 0), ("read_state", 1)]
    steps = np.float32([[1, -2, 0.5], [3, 3, 3]])
    for form in (model, model._mil_program):
        runtime = load(form)
        one, other = runtime.make_state(), runtime.make_state()
        for step, total in zip(steps, steps.cumsum(0), strict=True):
            (got,) = runtime.predict({"x": step}, one).values()
            assert got.tolist() == (total * 2).tolist()
        (got,) = runtime.predict({"x": steps[1]}, other).values()
        assert got.tolist() == (steps[1] * 2).tolist()  # states are apart
