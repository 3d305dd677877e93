"""Ops outside ExecuTorch's core set and without a kernel, which torch can decompose."""

import pytest
import torch
import torch.nn.functional as F
from lowered import Call, lower
from pte import missing_kernels

import coreproof
from coreproof.verify.lowered_graph import run_lowered

X = torch.tensor([[1.5, -2.0, 0.25, -0.0], [float("nan"), 3.0, -7.5, 2.0]])
IMAGE = torch.randn(1, 2, 5, 4)

FORMS = {
    "bicubic": (lambda m, x: F.interpolate(x, size=(7, 9), mode="bicubic") * 2, (IMAGE,)),
    "trilinear": (lambda m, x: F.interpolate(x[None], size=(3, 7, 6), mode="trilinear")[0] * 2, (IMAGE,)),
    "triangle indices": (lambda m, x: x[:2, :2][tuple(torch.tril_indices(2, 2))] * 2, (X,)),
}


@pytest.mark.parametrize("name", FORMS)
def test_decomposed_by_torch(name):
    function, inputs = FORMS[name]
    lowered = lower(function, inputs)
    assert missing_kernels(lowered.pte) == set()
    expected = Call(function)(*inputs)
    expected = expected if isinstance(expected, tuple) else (expected,)
    for got, want in zip(run_lowered(lowered.edge_program_manager, inputs), expected, strict=True):
        # A decomposition may sum up to 16 products in another order: 16 roundings of 2**-24 each, relative to
        # values below 10, stay under 1e-5.
        torch.testing.assert_close(got, want, rtol=0, atol=1e-5, equal_nan=True)


@pytest.mark.parametrize("name", ["lgamma", "signbit"])  # torch has no decomposition; one that ends in prims
def test_what_torch_cannot_decompose_is_named(name):
    with pytest.raises(coreproof.MissingKernelError, match=name):
        lower(lambda m, x: getattr(torch, name)(x), (X,))
