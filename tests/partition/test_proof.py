"""What a conversion computes is held against torch: wrong ones are refused with evidence, right ones never are."""

import re

import pytest
import torch
import torch.nn.functional as F
from coremltools.converters.mil.frontend.torch.torch_op_registry import _TORCH_OPS_REGISTRY
from coremltools.converters.mil.mil import Builder as mb
from lowered import Call

import coreproof
from coreproof.convert import scope
from coreproof.partition.attempt import Attempts
from coreproof.partition.probes import Operand, large_constant, probes


@pytest.fixture(autouse=True)
def no_memory(monkeypatch):
    monkeypatch.setattr(Attempts, "_verdicts", {})


def plan(function, *inputs, **options):
    options = {"use_cache": False, "compute_precision": "float32"} | options
    return coreproof.plan(Call(function).eval(), inputs, **options)["forward"]


def without(monkeypatch, *names):
    """Our converters of these ops are switched off: coremltools' own take their place."""
    for name in names:
        monkeypatch.delitem(scope.CONVERTERS, name)


def converts(monkeypatch, name, function):
    """The op is converted by this function of its operands' MIL values."""

    def convert(context, node):
        values = [context[i] if isinstance(i, str) else i for i in node.inputs]
        context.add(function(*values, name=node.name))

    monkeypatch.setitem(scope.CONVERTERS, name, convert)


def refused(placement):
    return [(r.op, r.rule) for r in placement.refusals]


@pytest.fixture(autouse=True)
def loaded():
    with scope.conversion():
        assert _TORCH_OPS_REGISTRY.name_to_func_mapping


def test_tanh_gelu_by_coremltools_own_converter(monkeypatch):
    without(monkeypatch, "gelu")
    placement = plan(lambda m, x: F.gelu(x, approximate="tanh"), torch.randn(4, 8))
    (refusal,) = placement.refusals
    assert (refusal.op, refusal.rule) == ("aten.gelu.default", "value")
    assert "torch gives" in refusal.evidence and "the conversion" in refusal.evidence
    assert placement.on_coreml == 0
    assert not plan(lambda m, x: F.gelu(x), torch.randn(4, 8)).refusals  # the exact mode is right


def test_integer_fills_by_coremltools_own_converters(monkeypatch):
    without(monkeypatch, "full", "full_like", "zeros_like")
    placement = plan(
        lambda m, x: torch.full((1, 4), 4099) + torch.zeros_like(x > 0, dtype=torch.float32), torch.ones(1, 4)
    )
    assert [(r.op, r.rule) for r in placement.refusals] == [
        ("aten.full.default", "contract-dtype"),
        ("aten.full_like.default", "contract-dtype"),
    ]


def test_a_negative_index_next_to_a_slice_by_coremltools_own_converter(monkeypatch):
    without(monkeypatch, *[name for name in scope.CONVERTERS if "index" in name])

    def write(m, x, v):
        x = x.clone()
        x[:, torch.tensor([-1])] = v
        return x

    placement = plan(write, torch.zeros(2, 4), torch.ones(2, 1))
    assert [(r.op, bool(r.evidence) or r.rule != "value") for r in placement.refusals] == [
        ("aten.index_put.default", True)
    ]


WRONG = {
    "operands swapped": ("sub", lambda x, y, **k: mb.sub(x=y, y=x, **k), lambda m, x, y: x - y),
    "another function": ("sin", lambda x, **k: mb.cos(x=x, **k), lambda m, x: x.sin()),
    "an epsilon": ("sqrt", lambda x, **k: mb.sqrt(x=mb.add(x=x, y=1e-4), **k), lambda m, x: x.sqrt()),
    "wrong only below zero": ("tanh", lambda x, **k: mb.tanh(x=mb.relu(x=x), **k), lambda m, x: x.tanh()),
    "wrong only far out": ("abs", lambda x, **k: mb.minimum(x=mb.abs(x=x), y=50.0, **k), lambda m, x: x.abs()),
    "wrong only on ties": ("round", lambda x, **k: mb.floor(x=mb.add(x=x, y=0.5), **k), lambda m, x: x.round()),
    "NaN becomes a number": (
        "relu",
        lambda x, **k: mb.select(cond=mb.greater(x=x, y=0.0), a=x, b=0.0, **k),
        lambda m, x: x.relu(),
    ),
    "a constant dropped": ("mul", lambda x, y, **k: mb.identity(x=x, **k), lambda m, x: x * 1.25),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_converter_is_refused_with_evidence(monkeypatch, case):
    name, conversion, function = WRONG[case]
    inputs = (torch.rand(3, 5), torch.rand(3, 5))[: function.__code__.co_argcount - 1]
    assert not plan(function, *inputs).refusals  # coremltools' own, or ours, is right
    converts(monkeypatch, name, conversion)
    placement = plan(function, *inputs)
    assert [r.rule for r in placement.refusals] == ["value"]
    assert placement.refusals[0].evidence.startswith("on ")


def test_the_evidence_names_input_expected_and_got(monkeypatch):
    converts(monkeypatch, "sin", lambda x, **k: mb.mul(x=x, y=0.0, **k))
    (refusal,) = plan(lambda m, x: x.sin(), torch.rand(3)).refusals
    found = re.fullmatch(r"on ordinary values, at .* = (.*)\) torch gives (.*), the conversion (.*)", refusal.evidence)
    at, expected, got = (float(number) for number in found.groups())
    assert got == 0
    assert abs(torch.tensor(at).sin().item() - expected) < 1e-5


def test_a_full_graph_lists_the_evidence(monkeypatch):
    without(monkeypatch, "gelu")
    model = Call(lambda m, x: F.gelu(x, approximate="tanh")).eval()
    with pytest.raises(coreproof.RequirementError, match="torch gives .*, the conversion ") as raised:
        coreproof.plan(model, (torch.randn(8),), lower_full_graph=True, use_cache=False)
    assert raised.value.refusals[0].rule == "value"


RIGHT = {
    "linear": lambda m, x: F.linear(x, torch.ones(7, 6) * torch.arange(6.0), torch.arange(7.0)),
    "softmax": lambda m, x: x.softmax(-1),
    "layer norm": lambda m, x: F.layer_norm(x, (6,)),
    "conv": lambda m, x: F.conv1d(x, torch.arange(36.0).reshape(3, 4, 3) / 36, padding=1),
    "index": lambda m, x: x[:, torch.tensor([2, -1, 0])],
    "where": lambda m, x: torch.where(x > 0, x, x * 2),
    "sum": lambda m, x: x.sum(1),
    "cumsum": lambda m, x: x.cumsum(1),
    "transpose": lambda m, x: x.transpose(1, 2).reshape(2, -1),
    "argmax": lambda m, x: x.argmax(1),
    "attention": lambda m, x: F.scaled_dot_product_attention(x, x, x),
    "pool": lambda m, x: F.max_pool1d(x, 2),
    "int arithmetic": lambda m, x: x.argmax(1) * 3 - 1,
    "float16": lambda m, x: (x.half() * 3).float(),
}


@pytest.mark.parametrize("case", RIGHT)
def test_right_conversions_are_proven(case):
    placement = plan(RIGHT[case], torch.randn(2, 4, 6))
    assert refused(placement) == []
    assert placement.unproven == []


def test_random_ops_are_unproven_and_reported():
    placement = plan(lambda m, x: torch.multinomial(x.softmax(-1), 4, replacement=True), torch.zeros(3, 5))
    assert refused(placement) == []
    assert [(u.op, u.reason) for u in placement.unproven] == [("aten.multinomial.default", "its values are random")]


def test_an_index_probe_stays_in_range():
    weight = torch.randn(5, 40)
    operands = [Operand("ids", torch.int64, (1, 300))]
    seen = [probe.values[0] for probe, _ in probes(operands, lambda values: F.embedding(values[0], weight))]
    assert seen and all(ids.min() >= 0 and ids.max() < 5 for ids in seen)
    assert any(int(ids.max()) == 4 or ids.unique().numel() > 1 for ids in seen)


def test_what_torch_raises_on_is_no_probe():
    def never(values):
        raise RuntimeError("no")

    assert list(probes([Operand("x", torch.float32, (2,))], never)) == []


def test_special_values_meet_in_pairs():
    operands = [Operand("x", torch.float32, (1024,)), Operand("y", torch.float32, (1024,))]
    (special,) = [p for p, _ in probes(operands, lambda values: values[0]) if p.kind.startswith("special")]
    pairs = set(zip(special.values[0].tolist(), special.values[1].tolist(), strict=True))
    assert {(1.0, 1.0), (-1.0, 2.0), (100.0, -100.0), (0.5, 0.0)} <= pairs


@pytest.mark.parametrize("shape", [(8, 8), (4, 4, 3, 3), (5, 5, 5)])
def test_a_large_constant_is_symmetric_in_no_two_axes(shape):
    value = large_constant(torch.float32, shape)
    assert value.shape == shape
    for one in range(len(shape)):
        for other in range(one):
            turned = value.transpose(one, other)
            assert turned.shape != value.shape or not torch.equal(turned, value)


def test_a_large_constant_takes_little_memory():
    value = large_constant(torch.float32, (4096, 4096))
    assert value.untyped_storage().nbytes() < 200_000
