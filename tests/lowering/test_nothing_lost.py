"""What lowers wholly on the stock backend lowers wholly into one delegate here."""

import coremltools as ct
import executorch.exir as exir
import pytest
import torch
from executorch.backends.apple.coreml.compiler import CoreMLBackend
from lowered import TARGETS, Call, lower, on_cpu, places
from torch import nn
from torch.export import Dim

import coreproof
from coreproof import CoreMLPartitioner


class ConvNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1),
            nn.BatchNorm2d(8),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(8, 8, 3, groups=2),
            nn.SiLU(),
            nn.AdaptiveAvgPool2d(1),
        )
        self.head = nn.Linear(8, 5)

    def forward(self, x):
        return self.head(self.body(x).flatten(1)).softmax(-1)


class Transformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(50, 16)
        self.norm = nn.LayerNorm(16)
        self.qkv = nn.Linear(16, 48)
        self.out = nn.Linear(16, 16)
        self.up, self.down = nn.Linear(16, 32), nn.Linear(32, 16)

    def forward(self, tokens):
        x = self.embed(tokens)
        q, k, v = self.qkv(self.norm(x)).unflatten(-1, (3, 2, 8)).permute(2, 0, 3, 1, 4).unbind(0)
        mixed = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        return x + self.down(nn.functional.gelu(self.up(x), approximate="tanh"))


MODELS = {
    "conv": (ConvNet, (torch.randn(1, 3, 16, 12),)),
    "transformer": (Transformer, (torch.randint(0, 50, (1, 6)),)),
}


@pytest.mark.parametrize("precision", ["float16", "float32"])
@pytest.mark.parametrize("target", TARGETS, ids=lambda t: t.name)
@pytest.mark.parametrize("name", MODELS)
def test_one_delegate_at_every_target(name, target, precision):
    build, inputs = MODELS[name]
    lowered = coreproof.lower(
        build().eval(), inputs, minimum_deployment_target=target, compute_precision=precision, lower_full_graph=True
    )
    assert lowered.placement.share == 1.0
    assert lowered.placement.delegates == 1


def test_with_a_skipped_op_the_rest_stays():
    build, inputs = MODELS["conv"]
    placement = coreproof.plan(build().eval(), inputs, skip_ops_for_coreml_delegation=["aten.relu"])
    assert [r.rule for r in placement.refusals] == ["user-skip"]
    assert placement.delegates == 2


@pytest.mark.parametrize("target", TARGETS, ids=lambda t: t.name)
def test_dynamic_shapes(target):
    length = Dim("length", min=2, max=32)
    lowered = lower(
        lambda m, x: m.net(x).relu().transpose(1, 2) @ x,
        (torch.randn(1, 6, 4),),
        members={"net": nn.Linear(4, 4)},
        dynamic_shapes={"inputs": ({1: length},)},
        minimum_deployment_target=target,
    )
    assert lowered.placement.share == 1.0
    assert lowered.placement.delegates == 1


def test_enumerated_shapes():
    module = Call(lambda m, x: m.net(x).relu(), net=nn.Linear(4, 4)).eval()
    program = torch.export.export(
        module, (torch.randn(6, 4),), dynamic_shapes={"inputs": ({0: Dim("n", min=2, max=64)},)}
    )
    (name,) = (s.arg.name for s in program.graph_signature.input_specs if s.kind.name == "USER_INPUT")
    specs = CoreMLBackend.generate_compile_specs(minimum_deployment_target=ct.target.iOS18)
    specs.append(CoreMLBackend.generate_enumerated_shapes_compile_spec(program, {name: [[2, 4], [8, 4]]}))
    partitioner = CoreMLPartitioner(compile_specs=specs, lower_full_graph=True)
    exir.to_edge_transform_and_lower(program, partitioner=[partitioner])
    assert partitioner.placement.share == 1.0
    with pytest.raises(coreproof.InputError, match="lower_full_graph=True"):
        CoreMLPartitioner(compile_specs=specs)


def test_several_methods_share_weights():
    net = nn.Linear(64, 64)
    decode = Call(lambda m, x: m.net(x) * 2, net=net).eval()
    prefill = Call(lambda m, x: m.net(x).relu(), net=net).eval()
    lowered = coreproof.lower(
        {
            "decode": torch.export.export(decode, (torch.randn(1, 64),)),
            "prefill": torch.export.export(prefill, (torch.randn(8, 64),)),
        }
    )
    assert set(lowered.placement) == {"decode", "prefill"}
    assert lowered.placement.share == 1.0
    # 64 x 64 float16 weights once are 8 kB; the whole file holds them once, not twice.
    assert lowered.pte.count(net.weight.detach().half().numpy().tobytes()[:512]) == 1


def test_a_plan_is_the_placement_of_the_lowering():
    build, inputs = MODELS["transformer"]
    model = build().eval()
    plan = coreproof.plan(model, inputs)
    lowered = coreproof.lower(model, inputs)
    assert plan["forward"].nodes == lowered.placement["forward"].nodes
    assert plan["forward"].partitions == lowered.placement["forward"].partitions


def test_the_same_verdicts_twice():
    first = places(lower(lambda m, x: on_cpu(x) + x * 2, (torch.randn(3),)))
    assert places(lower(lambda m, x: on_cpu(x) + x * 2, (torch.randn(3),))) == first
