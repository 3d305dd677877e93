from __future__ import annotations

import torch
import torch.ao.quantization.fx._decomposed  # noqa: F401  (registers the quantized ops)
from rewrite.checks import Model, check, ops, untouched
from torch.export import Dim, export
from torchao.quantization import Int8WeightOnlyConfig, quantize_

from coreproof.rewrite import rewrite

BYTES = torch.tensor([[0, 1, 127], [128, 254, 255]], dtype=torch.uint8)
SIGNED = torch.tensor([[-128, -1, 0, 1], [127, 2, -2, 64], [5, 6, 7, 8]], dtype=torch.int8)


def small_integers(program) -> list[str]:
    return [
        node.name
        for node in program.graph.nodes
        if getattr(node.meta.get("val"), "dtype", None) in (torch.int8, torch.uint8)
    ]


def test_chains_on_known_operands_become_constants():
    class Chains(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("frame", BYTES.clone())
            self.register_buffer("hidden", BYTES.t().contiguous().t(), persistent=False)
            self.codes = torch.nn.Parameter(SIGNED.clone(), requires_grad=False)

        def forward(self, x):
            lifted = torch.tensor([[-128, 127, 3]], dtype=torch.int8)
            return (
                x + self.frame.permute(1, 0).flatten()[2:5].float(),
                x * self.frame.t().unsqueeze(0).select(2, 1).to(torch.float16)[0],
                x + self.hidden.reshape(3, 2)[:, 1].clone().to(torch.int64),
                x - lifted.squeeze(0).to(x.dtype),
                self.codes.transpose(0, 1).contiguous().view(2, 6).to(torch.int32),
                self.codes.flip(0).roll(1, 1).bool(),
                self.frame.expand(2, 2, 3).float(),
            )

    new, functional, edge = check(Chains(), (torch.tensor([1.0, -2.0, 0.5]),))
    assert small_integers(new) == small_integers(functional) == small_integers(edge) == []
    assert not set(ops(new)) & {"aten.permute.default", "aten.t.default", "aten.slice.Tensor", "aten.flip.default"}
    assert "frame" not in new.state_dict and "codes" not in new.state_dict and "hidden" not in new.constants
    frame = next(tensor for name, tensor in new.constants.items() if tensor.shape == (2, 3))
    assert torch.equal(frame, BYTES.float())


def test_run_time_operands_are_applied_to_the_cast_table():
    def run(self, rows, x):
        return (
            self.table[rows].float(),
            torch.index_select(self.table, 1, rows).to(torch.float32),
            torch.nn.functional.embedding(rows, self.table).permute(1, 0).float() * 2,
            self.table.t()[: x.shape[0]].float() + x.unsqueeze(1),
            x + self.table[self.places.long()].float().sum(),
        )

    buffers = {"table": SIGNED, "places": torch.tensor([1, 0], dtype=torch.uint8)}
    shapes = {"inputs": (None, {0: Dim("n", min=2, max=3)})}
    calls = [(torch.tensor([2, 0, 1]), torch.randn(3)), (torch.tensor([1, 1, 0]), torch.randn(2))]
    new, functional, edge = check(Model(run, **buffers), *calls, dynamic_shapes=shapes)
    assert small_integers(new) == small_integers(functional) == small_integers(edge) == []
    # One float table for the three chains that start at the table itself, one for its transpose.
    assert sorted(tuple(tensor.shape) for tensor in new.constants.values()) == [(2,), (3, 4), (4, 3)]


def test_a_cast_that_is_written_or_returned_keeps_its_own_memory():
    def run(self, x):
        grown = self.table.float()
        grown.add_(x)
        return grown, self.table.float(), self.table.float() * x

    model = Model(run, table=BYTES)
    new, *_ = check(model, (torch.full((2, 3), 0.5),), (torch.full((2, 3), -1.0),))
    assert list(new.constants) == ["b_table_float32"]


def test_a_functional_program():
    model = Model(lambda self, x: x + self.t.permute(1, 0).float(), t=BYTES)
    new, *_ = check(model, (torch.randn(3, 2),), functional=True)
    assert ops(new) == ["aten.add.Tensor"]


def test_left_alone():
    x = torch.randn(2, 3)

    def state(self, x):
        y = x + self.t.float()
        self.t.add_(1)
        return y

    def changed(self, x):
        codes = torch.tensor([1, 2, 3], dtype=torch.int8)
        codes.add_(1)
        return x + codes.float()

    assert untouched(Model(state, t=BYTES.clone()), (x,))
    functional = export(Model(state, t=BYTES.clone()), (x,)).run_decompositions({})
    assert rewrite(functional) is functional
    assert untouched(Model(changed), (x,))
    assert untouched(Model(lambda self, x: (self.t + 1).float() + x, t=BYTES), (x,))
    assert untouched(Model(lambda self, x: self.t.view(torch.int8).float() + x, t=BYTES), (x,))
    assert untouched(Model(lambda self, x: self.t.float() + x, t=torch.ones(2, 3, dtype=torch.int32)), (x,))
    assert untouched(Model(lambda self, frame: frame.float()), (BYTES,))
    program = export(Model(lambda self, x: x + self.t.t().t().float(), t=BYTES), (x,))
    assert rewrite(program, keep=frozenset({torch.ops.aten.t.default})) is program
    assert rewrite(program) is not program


def test_quantized_weights_are_left_alone():
    model = torch.nn.Sequential(torch.nn.Linear(8, 4)).eval()
    quantize_(model, Int8WeightOnlyConfig())
    program = export(model, (torch.randn(2, 8),))
    assert rewrite(program) is program

    def dequantized(self, x):
        quantized = torch.ops.quantized_decomposed.dequantize_per_tensor(self.w, 0.5, 3, -128, 127, torch.int8)
        return x + quantized + self.w.float()

    assert untouched(Model(dequantized, w=SIGNED), (torch.randn(3, 4),))
