from __future__ import annotations

import pytest
import torch
from rewrite.checks import Model, check, ops, untouched
from torch.export import Dim, export

from coreproof.rewrite import rewrite

nan, inf = float("nan"), float("inf")
SORTED = torch.tensor([-inf, -2.0, 0.1, 0.1, 0.3, inf])
# 0.1 is below, at and above the float32 boundary 0.1.
VALUES = torch.tensor([[nan, -inf, inf, -2.0, 0.0], [0.1, 0.10000001, 0.3, -3.0, 1e30]])


@pytest.mark.parametrize(("right", "out_int32", "functional"), [(False, True, True), (True, False, False)])
def test_bucketize_and_searchsorted(right, out_int32, functional):
    options = {"right": right, "out_int32": out_int32}

    def run(self, values):
        return (
            torch.bucketize(values, self.edges, **options),
            torch.searchsorted(self.edges, values, **options),
            torch.bucketize(0.1, self.edges, **options) + values.long().nan_to_num(0) * 0,
        )

    new, *_ = check(Model(run, edges=SORTED), (VALUES,), functional=functional)
    assert not [op for op in ops(new) if "bucketize" in op or "searchsorted" in op]


def test_sides_sorters_and_batches():
    rows = torch.tensor([[3, -1, 5], [9, 2, 7]])
    order = rows.argsort(-1)

    def run(self, values, line):
        return (
            torch.searchsorted(self.rows, values, sorter=self.order, side="right"),
            torch.searchsorted(self.rows, values, sorter=self.order, side="left", out_int32=True),
            torch.searchsorted(self.rows[0], line, sorter=self.order[0]),
            torch.searchsorted(self.rows[1], 7, sorter=self.order[1], right=True),
        )

    values = torch.tensor([[-2, -1, 3, 5], [2, 8, 9, 10]])
    check(Model(run, rows=rows, order=order), (values, torch.tensor([[4, -1]])))


def test_dtypes_are_promoted_as_torch_does():
    """2**24 + 1 is 2**24 as float32; 2**53 + 1 stays an int64; a Python number takes the boundaries' dtype."""

    def run(self, reals, longs, point):
        return (
            torch.searchsorted(self.wide, reals, right=True),
            torch.searchsorted(self.wider, longs),
            torch.searchsorted(self.wide, point),
            torch.bucketize(2.5, self.small),
            torch.searchsorted(self.reals, 0.1),
            torch.searchsorted(self.small, longs - 2**53),
        )

    buffers = {
        "wide": torch.tensor([2**24, 2**24 + 1]),
        "wider": torch.tensor([2**53, 2**53 + 1]),
        "small": torch.tensor([-1, 1, 3], dtype=torch.int8),
        "reals": torch.tensor([0.1, 0.3]),
    }
    check(Model(run, **buffers), (torch.tensor([2.0**24]), torch.tensor([2**53 + 1]), torch.tensor(2.0**24 - 1)))


def test_dynamic_shapes_and_run_time_boundaries():
    def run(self, edges, values):
        return torch.bucketize(values, edges), torch.searchsorted(edges, values, right=True)

    shapes = {"inputs": ({0: Dim("edges", min=2, max=8)}, {1: Dim("values", min=2, max=8)})}
    calls = [(SORTED, VALUES), (SORTED[:3], VALUES[:, :4].contiguous()), (SORTED[:2], torch.randn(2, 7))]
    new, *_ = check(Model(run), *calls, dynamic_shapes=shapes)
    symbols = [node for node in new.graph.nodes if node.target is torch.ops.aten.sum.dim_IntList]
    assert all(isinstance(node.meta["val"].shape[1], torch.SymInt) for node in symbols)


def test_new_ops_keep_the_users_line():
    class Bins(torch.nn.Module):
        def forward(self, x, edges):
            return torch.bucketize(x, edges)

    new = rewrite(export(Bins(), (VALUES, SORTED)))
    assert len(ops(new)) > 1
    for node in new.graph.nodes:
        if node.op == "call_function":
            assert "torch.bucketize(x, edges)" in node.meta["stack_trace"]


def test_kept_and_absent():
    model = Model(lambda self, x: torch.bucketize(x, self.edges), edges=SORTED)
    program = export(model, (VALUES,))
    assert rewrite(program, keep=frozenset({torch.ops.aten.bucketize.Tensor})) is program
    assert untouched(Model(lambda self, x: torch.sort(x).values), (VALUES,))
