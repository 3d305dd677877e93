"""A model that writes to a tensor which it holds under two names."""

import pytest
import torch
from torch import nn

from coreproof import InputError, lower
from coreproof.verify.lowered_graph import LoweredRun


class Held:
    """A plain object that holds a tensor, as a cache does."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor = tensor


class TwoBuffers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("first", torch.zeros(4))
        self.register_buffer("second", self.first)

    def forward(self, x):
        self.first.add_(x)
        return self.second * 2


class BufferAndHeld(nn.Module):
    """Non-strict export takes the held tensor for a constant, and what is written to it would be lost."""

    def __init__(self) -> None:
        super().__init__()
        self.held = Held(torch.zeros(4))
        self.register_buffer("buffer", self.held.tensor)

    def forward(self, x):
        self.held.tensor.add_(x)
        return self.held.tensor + self.buffer * 2


class View(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("buffer", torch.zeros(4))
        self.held = Held(self.buffer.view(2, 2))

    def forward(self, x):
        self.held.tensor.add_(1.0)
        return self.buffer + x


@pytest.mark.parametrize("make, factor", [(TwoBuffers, 2), (BufferAndHeld, 3)])
def test_one_tensor_under_two_names_lowers_as_one(make, factor):
    lowered = lower(make(), (torch.arange(4.0),))
    run = LoweredRun(lowered.edge_program_manager)
    for call in (1, 2):  # the second call finds what the first one wrote
        (got,) = run(torch.arange(4.0))
        assert got.tolist() == (torch.arange(4.0) * call * factor).tolist()


def test_a_written_view_is_refused_with_both_names():
    with pytest.raises(InputError, match=r"several names \(buffer, .*\)"):
        lower(View(), (torch.ones(4),))


def test_a_program_exported_with_two_names_is_refused():
    program = torch.export.export(TwoBuffers(), (torch.ones(4),), strict=False)
    with pytest.raises(InputError, match=r"several names \(first, second\)"):
        lower(program)
