"""No op is kept whole that ends up on the CPU without a kernel."""

import coremltools as ct
import executorch.exir as exir
import pytest
import torch
from executorch.backends.apple.coreml.compiler import CoreMLBackend
from lowered import Call, lower, lower_and_check, places
from torch import nn

import coreproof
from coreproof import CoreMLPartitioner


def test_matmul_is_not_kept_while_a_bfloat16_linear_needs_it_decomposed():
    half = nn.Linear(4, 4).bfloat16()

    def both(m, x):
        return torch.matmul(x, x.transpose(-1, -2)), m.linear(x.bfloat16()).float()

    lowered = lower_and_check(both, (torch.randn(2, 3, 4),), members={"linear": half})
    assert any(r.rule == "dtype" and "bfloat16" in r.reason for r in lowered.placement.refusals)


def test_matmul_of_uint8_decomposes():
    def product(m, x):
        return torch.matmul(x, x.mT).float(), torch.matmul(x.float(), x.mT.float())

    lower_and_check(product, (torch.randint(0, 9, (2, 3, 4), dtype=torch.uint8),))


def test_supported_ops_are_kept_whole():
    def attend(m, q):
        return nn.functional.scaled_dot_product_attention(q, q, q)

    placed = places(lower(attend, (torch.randn(1, 2, 3, 4),)))
    assert placed == {"scaled_dot_product_attention.default": [0]}


def test_a_skipped_op_is_kept_whole_on_the_cpu():
    net = nn.Linear(4, 3)
    lowered = lower(
        lambda m, x: m.net(x) * 2,
        (torch.randn(2, 4),),
        members={"net": net},
        skip_ops_for_coreml_delegation=["aten.linear.default"],
    )
    placed = places(lowered)
    assert placed["linear.default"] == [None]
    assert placed["mul.Tensor"] == [0]
    (refusal,) = (r for r in lowered.placement.refusals if r.op == "aten.linear.default")
    assert refusal.rule == "user-skip"


@pytest.mark.parametrize("name", ["aten.mul.Tensor", "aten.mul", "mul.tensor", "MUL"])
def test_spellings_of_an_op_to_skip(name):
    lowered = lower(lambda m, x: x * x + 1, (torch.randn(3),), skip_ops_for_coreml_delegation=[name])
    assert places(lowered)["mul.Tensor"] == [None]


def test_an_op_to_skip_that_occurs_nowhere():
    with pytest.raises(coreproof.InputError, match=r"no op named aten\.conv9d.*aten\.mul\.Tensor"):
        lower(lambda m, x: x * x, (torch.randn(3),), skip_ops_for_coreml_delegation=["aten.conv9d"])


def test_an_op_without_kernel_is_an_error_before_conversion():
    with pytest.raises(coreproof.MissingKernelError) as caught:
        lower(lambda m, x: torch.linalg.eigvalsh(x @ x.T) * 2, (torch.randn(3, 3),))
    message = str(caught.value)
    assert "eigh" in message and "lowered.py:" in message and "extra_kernels" in message


def test_executorch_is_answered_once_for_each_program(monkeypatch):
    from coreproof.partition import partitioner as module

    calls = []
    original = module.whole_ops
    monkeypatch.setattr(module, "whole_ops", lambda *a: calls.append(1) or original(*a))
    program = torch.export.export(Call(lambda m, x: torch.relu(x) * 2).eval(), (torch.randn(3),))
    specs = CoreMLBackend.generate_compile_specs(minimum_deployment_target=ct.target.iOS18)
    one = CoreMLPartitioner(compile_specs=specs)
    exir.to_edge_transform_and_lower(program, partitioner=[one])
    assert len(calls) == 1
