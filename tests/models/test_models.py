"""Whole models, lowered at both precisions: where they run, that the CPU ops have kernels, that no value is lost."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from pte import delegates, missing_kernels

import coreproof
from coreproof.verify.lowered_graph import LoweredRun

from . import MODELS

# Model: (share of its ops on Core ML at least, delegates at most), as measured.
MEASURED = {
    "act": (0.99, 2),
    "diffusion": (0.97, 2),  # frames of rank 6 are on the CPU
    "vqbet": (0.97, 2),
    "vqbet_sampled": (0.97, 2),
    "multitask_dit": (0.99, 2),
    "pi05": (0.43, 18),  # Core ML has no bfloat16: what the model computes in float32 alone is there
    "smolvlm_vision": (0.88, 3),  # a bool mask as an index has a size that depends on its values
    "decoder_decode": (1.0, 1),
    "decoder_decode_copy": (1.0, 1),
    "decoder_prefill": (1.0, 1),
    "decoder_prefill_copy": (1.0, 1),
}
IN_CI = {("act", "float16"), ("decoder_prefill", "float32")}
CASES = [
    pytest.param(
        (name, precision), id=f"{name}-{precision}", marks=() if (name, precision) in IN_CI else pytest.mark.models
    )
    for name in MODELS
    for precision in ("float16", "float32")
]


@dataclass
class Case:
    name: str
    lowered: Any
    inputs: tuple


@pytest.fixture(scope="module", params=CASES)
def case(request: pytest.FixtureRequest) -> Iterator[Case]:
    name, precision = request.param
    module, inputs, dynamic_shapes = MODELS[name]()
    lowered = coreproof.lower(module, inputs, dynamic_shapes=dynamic_shapes, compute_precision=precision)
    yield Case(name, lowered, inputs)


def test_every_cpu_op_has_a_kernel(case: Case) -> None:
    assert missing_kernels(case.lowered.pte) == set()


def test_stays_on_core_ml_as_measured(case: Case) -> None:
    share, most = MEASURED[case.name]
    assert case.lowered.placement.share >= share
    assert len(delegates(case.lowered.pte)) == case.lowered.placement.delegates <= most


def test_partitioning_keeps_the_values_of_three_calls(case: Case) -> None:
    """Eager against the graph whose delegates run by their edge programs: equal to rounding, buffers included."""
    module, _, _ = MODELS[case.name]()
    run = LoweredRun(case.lowered.edge_program_manager)
    # bfloat16 keeps 8 bits: ops that decompose round their parts, where the eager ones round once.
    tolerance = 1e-2 if case.name == "pi05" else 1e-5
    for call in range(3):
        inputs = [varied(x, call) for x in case.inputs]
        with torch.no_grad():
            expected = module(*inputs)
        (got,) = run(*inputs)
        assert got.dtype == expected.dtype
        torch.testing.assert_close(got, expected, rtol=0, atol=tolerance * expected.abs().max().item())


def varied(x: torch.Tensor, call: int) -> torch.Tensor:
    """Another input of the same kind for each call; masks stay, for a model may ask them to be rectangles."""
    if x.dtype == torch.bool:
        return x
    if x.dtype == torch.int64:
        return (x + call) % 40  # the smallest vocabulary
    return x + call if x.dtype == torch.uint8 else x * (1 - 0.2 * call)
