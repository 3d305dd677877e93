from __future__ import annotations

import torch
from rewrite.checks import Model, check, ops, untouched
from torch.export import Dim, export

from coreproof.rewrite import rewrite


def test_each_list_reader_gets_its_own_copy():
    def run(self, x):
        return (
            torch.cat([x, self.table, self.table.detach()]),
            torch.stack([self.table, x + 1]),
            x * self.table,
            torch.dropout(self.table, 0.5, False) - x,
        )

    new, *_ = check(Model(run, table=torch.randn(2, 3)), (torch.randn(2, 3),))
    assert ops(new).count("aten.clone.default") == 2
    table = next(node for node in new.graph.nodes if node.op == "placeholder" and node.name == "b_table")
    assert all(table in user.args or user.op == "output" for user in table.users)


def test_two_cats_parameters_lifted_constants_and_indices():
    class Readers(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.bias = torch.nn.Parameter(torch.randn(1, 3))
            self.register_buffer("rows", torch.tensor([2, 0]), persistent=False)

        def forward(self, x):
            extra = torch.tensor([[1.0, -2.0, 3.0]])
            y = torch.cat([x, self.bias, extra]), torch.cat([extra, self.bias])
            picked = x.index_put((self.rows,), torch.ones(3), accumulate=True)[self.rows]
            return *y, picked, x[self.rows], self.rows + 1

    shapes = {"x": {0: Dim("n", min=3, max=8)}}
    check(Readers(), (torch.randn(4, 3),), (torch.randn(6, 3),), dynamic_shapes=shapes)


def test_left_alone():
    table, x = torch.randn(2, 3), torch.randn(2, 3)
    assert untouched(Model(lambda self, x: torch.cat([self.t, self.t, x]), t=table), (x,))
    assert untouched(Model(lambda self, x: (x + self.t, x * self.t), t=table), (x,))
    assert untouched(Model(lambda self, x: (torch.cat([x, x]), x + 1)), (x,))

    def state(self, x):
        self.t.add_(x)
        return torch.cat([self.t, x]), self.t * 2

    assert untouched(Model(state, t=table), (x,))
    program = export(Model(lambda self, x: (torch.cat([self.t, x]), x * self.t), t=table), (x,))
    assert rewrite(program, keep=frozenset({torch.ops.aten.cat.default})) is program
    assert rewrite(program) is not program
