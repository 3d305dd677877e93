from __future__ import annotations

import pytest
import torch
from rewrite.checks import Model, check, untouched
from torch.export import export
from torch.export.graph_signature import OutputKind

from coreproof.rewrite import rewrite


def assert_updates_stand_alone(functional, edge) -> None:
    """A node that updates a buffer is no input and no other output, before and after lowering."""
    for program in (functional, edge):
        returned = [node.name for node in program.graph.output_node().args[0]]
        inputs = {node.name for node in program.graph.nodes if node.op == "placeholder"}
        updates = [s.arg.name for s in program.graph_signature.output_specs if s.kind == OutputKind.BUFFER_MUTATION]
        assert updates and all(returned.count(name) == 1 and name not in inputs for name in updates)


def same_input(self, x):
    self.a.copy_(x)
    self.b.copy_(x)
    return self.a + 1, x * 2


def unchanged_input(self, x):
    self.a.copy_(x.contiguous())
    return x.float(), self.a * self.b


def returned(self, x):
    self.a.add_(x)
    return self.a


def returned_twice(self, x):
    y = x * -2
    self.a.copy_(y)
    self.b.mul_(self.a)
    return y, self.a, self.b.contiguous(), self.b + self.a


def chained(self, x):
    y = x - 1
    self.b.copy_(y)
    self.a.copy_(self.b)
    return self.a * 3


def updated_again(self, x):
    """What reads the buffer between and after the updates reads the value of that moment."""
    self.a.copy_(x)
    between = self.a * 2
    self.a.add_(1)
    after = self.a * 2
    self.b.copy_(self.a)
    self.a.mul_(self.b)
    return between, after, self.a, self.b


def through_a_view(self, x):
    self.a.detach().copy_(x)
    self.b[1:] = x[1:]
    view = self.b.view(3)
    view.mul_(2)
    return self.a.sum(), view


def swapped(self, x):
    old = self.a.clone()
    self.a.copy_(self.b)
    self.b.copy_(old)
    return x + self.a - self.b * 2


@pytest.mark.parametrize(
    "run", [same_input, unchanged_input, returned, returned_twice, chained, updated_again, through_a_view, swapped]
)
def test_updates_stand_alone(run):
    calls = [(torch.tensor([1.0, -2.0, 3.5]),), (torch.tensor([-7.0, float("inf"), 0.0]),)]
    _, *programs = check(Model(run, a=torch.tensor([1.0, 2.0, 3.0]), b=torch.tensor([-4.0, 5.0, -6.0])), *calls)
    assert_updates_stand_alone(*programs)


def test_functional_program():
    model = Model(returned_twice, a=torch.ones(3), b=torch.ones(3))
    new, *programs = check(model, (torch.randn(3),), (torch.randn(3),), functional=True)
    assert_updates_stand_alone(*programs)
    assert [str(node.target) for node in new.graph.nodes].count("aten.clone.default") == 3


def test_counters_of_layers_with_one_input():
    def run(self, x, position):
        self.a.copy_(position).add_(1)
        self.b.copy_(position)
        self.c.copy_(position)
        return x + self.a + self.b - self.c

    buffers = {name: torch.zeros(1, dtype=torch.long) for name in "abc"}
    calls = [(torch.randn(1, 4), torch.tensor([3])), (torch.randn(1, 4), torch.tensor([9]))]
    _, *programs = check(Model(run, **buffers), *calls)
    assert_updates_stand_alone(*programs)


def test_nothing_to_separate():
    def run(self, x):
        self.a.add_(x)
        self.b[0] = x[1]
        self.c.copy_(x * 2)
        return self.a + self.b, self.c[1:], x

    buffers = {name: torch.ones(3) for name in "abc"}
    assert untouched(Model(run, **buffers), (torch.randn(3),))
    functional = export(Model(run, **buffers), (torch.randn(3),)).run_decompositions({})
    assert rewrite(functional) is functional
    assert untouched(Model(lambda self, x: (x, x, self.a), a=torch.ones(3)), (torch.randn(3),))
