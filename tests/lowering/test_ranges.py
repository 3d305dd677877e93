"""The sizes that a dynamic dimension was declared to have are the sizes that the finished program takes."""

import pytest
import torch
from lowered import lower
from torch import nn
from torch.export import Dim

import coreproof
from coreproof.runtime import load


@pytest.mark.parametrize("least, takes", [(None, 1), (0, 1), (1, 1), (2, 2), (3, 3)])
def test_the_least_size_is_the_declared_one(least, takes):
    net = nn.Linear(4, 3)
    length = Dim("length", max=8) if least is None else Dim("length", min=least, max=8)
    lowered = lower(lambda m, x: m.net(x).relu(), (torch.randn(5, 4),), members={"net": net},
                    dynamic_shapes={"inputs": ({0: length},)}, compute_precision="float32")  # fmt: skip
    program = load(lowered.pte)
    for size in range(1, 9):
        x = torch.randn(size, 4)
        if size < takes:
            with pytest.raises(coreproof.InputError, match=f"size {size} in dimension 0; expected {takes} to 8"):
                program.run(x)
        else:  # float32 both ways, sums of 4 products: 5 roundings of 2**-24 relative to values below 8
            torch.testing.assert_close(program.run(x)[0], net(x).relu(), rtol=1e-6, atol=1e-6)


def test_two_dimensions_and_one_of_both():
    rows, columns = Dim("rows", min=1, max=4), Dim("columns", min=3, max=6)
    lowered = lower(lambda m, x: torch.cat([x, x * 2], 0), (torch.randn(2, 4),),
                    dynamic_shapes={"inputs": ({0: rows, 1: columns},)})  # fmt: skip
    assert load(lowered.pte).run(torch.ones(1, 3))[0].tolist() == [[1, 1, 1], [2, 2, 2]]
    with pytest.raises(coreproof.InputError, match="size 2 in dimension 1; expected 3 to 6"):
        load(lowered.pte).run(torch.ones(1, 2))
