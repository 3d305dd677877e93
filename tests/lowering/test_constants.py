"""Constants that several readers share: everyone gets a copy."""

import pytest
import torch
from lowered import lower_and_check, on_cpu

X = torch.randn(2, 3)

SHARED = {
    "cat on both sides": lambda m, x: (torch.cat([m.c, x]) * 2, on_cpu(torch.cat([x, m.c]).abs() + 1)),
    "two cats on the CPU": lambda m, x: on_cpu(torch.cat([m.c, x])) + on_cpu(torch.cat([x, m.c])),
    "two delegates": lambda m, x: torch.cat([on_cpu(torch.cat([m.c, x]) + 5), m.c]) * 3,
    "twice in one list": lambda m, x: torch.cat([m.c, x, m.c]) + on_cpu(m.c.sum() * 0 + 2),
    "stack": lambda m, x: (torch.stack([m.c, x]).sum(0), on_cpu(torch.stack([x, m.c]) + 9)),
    "direct and in a list": lambda m, x: (m.c * x, on_cpu(torch.cat([m.c, x]) + 9)),
    "index of index_put": lambda m, x: (
        x.index_put((m.i,), torch.ones(2, 3)),
        on_cpu(x + 9).index_put((m.i,), torch.zeros(2, 3)),
        x[m.i] * 2,
    ),
    "same buffer in one delegate twice": lambda m, x: (torch.cat([m.c, x]) * m.c.sum(), on_cpu(m.c + 9)),
}


@pytest.mark.parametrize("name", SHARED)
@pytest.mark.parametrize("own", [True, False])
def test_shared_constants(name, own):
    members = {"c": torch.randn(2, 3), "i": torch.tensor([1, 0])}
    lower_and_check(SHARED[name], (X,), members=members, take_over_constant_data=own)


RANKS = {
    "view and permute": lambda m, x: x.view(1, 2, 3, 2, 2, 2).permute(0, 2, 1, 3, 4, 5).reshape(6, 8) * 2,
    "arithmetic": lambda m, x: (x.view(1, 2, 3, 2, 2, 2) * 2).sum((0, 3)) + 1,
}


@pytest.mark.parametrize("name", RANKS)
def test_more_than_five_dimensions_run_on_the_cpu(name):
    lowered = lower_and_check(RANKS[name], (torch.randn(6, 8),))
    assert "rank" in {r.rule for r in lowered.placement.refusals}


def test_parts_of_a_constant_that_two_delegates_use():
    def parts(m, x):
        first, second = m.c.split([1, 2], 1)
        return on_cpu(x[:, :1] * first + 9) * second.sum() + x * first

    lower_and_check(parts, (X,), members={"c": torch.tensor([[1.0, 2.0, 4.0], [8.0, 16.0, 32.0]])})
