"""Mutable buffers: Core ML state where it is exact and in one place, an ExecuTorch buffer everywhere else."""

import pytest
import torch
from lowered import lower, lower_and_check, on_cpu, ops, specs

import coreproof
from coreproof.runtime import load

X = torch.tensor([1.5, -2.0, 3.25, 0.5])


def buffers(lowered):
    return {b.name: b.kind for b in lowered.placement["forward"].buffers}


def accumulate(m, x):
    m.total.add_(x)
    return m.total * 2


def test_a_float_buffer_is_state_at_float16():
    lowered = lower_and_check(accumulate, (X,), members={"total": torch.zeros(4)}, calls=3)
    assert buffers(lowered) == {"total": "state"}


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"compute_precision": "float32"}, "float16"),
        ({"minimum_deployment_target": "iOS17"}, "iOS 18"),
        ({"take_over_mutable_buffer": False}, "take_over_mutable_buffer"),
        ({"mutable_buffer_state": "never"}, "never"),
    ],
)
def test_a_float_buffer_that_state_cannot_hold_is_input_and_output(options, reason):
    lowered = lower_and_check(accumulate, (X,), members={"total": torch.zeros(4)}, calls=3, **options)
    (buffer,) = lowered.placement["forward"].buffers
    assert buffer.kind == "io"
    assert reason in buffer.reason
    assert lowered.placement.share == 1.0


def test_state_always_at_float32_on_request():
    lowered = lower_and_check(
        accumulate,
        (X,),
        members={"total": torch.zeros(4)},
        calls=2,
        compute_precision="float32",
        mutable_buffer_state="always",
    )
    assert buffers(lowered) == {"total": "state"}


def test_a_buffer_updated_from_a_parameter():
    def average(m, x):
        y = m.net(x)
        m.mean.copy_(m.mean * 0.5 + y * 0.5)
        return y

    net = torch.nn.Linear(4, 4)
    members = {"net": net, "mean": torch.zeros(4)}
    assert buffers(lower(average, (X,), members=members, compute_precision="float32")) == {"mean": "io"}


def test_an_int64_counter_is_not_state():
    def count(m, x):
        m.count.add_(1)
        return x + m.count

    lowered = lower_and_check(count, (X,), members={"count": torch.tensor([2047])}, calls=4)
    (buffer,) = lowered.placement["forward"].buffers
    assert (buffer.kind, buffer.dtype) == ("io", "int64")
    assert "does not hold int64 exactly" in buffer.reason


def test_a_buffer_used_on_the_cpu_and_on_coreml_is_an_error_that_lists_the_uses():
    def both(m, x):
        y = on_cpu(m.kept + 2) + m.kept
        z = on_cpu(m.kept)
        m.kept.copy_(x * 2)
        return y, z

    with pytest.raises(coreproof.StateError) as caught:
        lower(both, (X,), members={"kept": torch.zeros(4)})
    message = str(caught.value)
    assert "kept" in message
    assert "aten.fmod.Scalar" in message and "on the CPU because fmod of floats" in message
    assert "aten.add" in message and "Core ML delegate" in message
    assert "take_over_mutable_buffer=False" in message
    assert message.count("lowered.py:") >= 2
    lowered = lower_and_check(both, (X,), members={"kept": torch.ones(4) * 3}, calls=3, take_over_mutable_buffer=False)
    assert buffers(lowered) == {"kept": "io"}


def test_a_buffer_used_in_two_delegates_is_an_error():
    def twice(m, x):
        y = on_cpu(m.kept * 2 + 5)
        z = y + m.kept
        m.kept.copy_(x)
        return z

    with pytest.raises(coreproof.StateError, match="delegate 0.*delegate 1|delegate 1.*delegate 0"):
        lower(twice, (X,), members={"kept": torch.zeros(4)})
    lower_and_check(twice, (X,), members={"kept": torch.ones(4)}, calls=3, take_over_mutable_buffer=False)


def test_state_that_only_the_cpu_reads_stays_there():
    def read(m, x):
        y = on_cpu(m.kept)
        m.kept.copy_(x * 2)
        return y

    lowered = lower_and_check(read, (X.abs() + 1,), members={"kept": torch.ones(4) * 2}, calls=3)
    assert buffers(lowered) == {"kept": "cpu"}


SAME = {
    "equal new values": lambda m, x: (m.a.copy_(x).add_(1), m.b.copy_(x).add_(1), x + m.a + m.b)[2],
    "the same input": lambda m, x: (x + m.a + m.b, m.a.copy_(x), m.b.copy_(x))[0],
    "one value, two buffers, an output": lambda m, x: _one_value(m, x),
    "made one after the other": lambda m, x: (x + m.a * m.b, m.a.copy_(x + 1), m.b.copy_(x + 2))[0],
    "swapped": lambda m, x: _swap(m, x),
    "returned": lambda m, x: (m.a.add_(x), m.b.mul_(x), m.a, m.b)[2:],
}


def _one_value(m, x):
    y = x * 2 + m.a + m.b
    m.a.copy_(y)
    m.b.copy_(y)
    return y


def _swap(m, x):
    a = m.a.clone()
    m.a.copy_(m.b)
    m.b.copy_(a)
    return x + m.a


@pytest.mark.parametrize("name", SAME)
@pytest.mark.parametrize("dtype", [torch.float32, torch.int64])
def test_two_buffers_with_related_values(name, dtype):
    members = {"a": torch.tensor([1, 2, 3, 4]).to(dtype), "b": torch.tensor([5, 6, 7, 8]).to(dtype)}
    x = torch.tensor([3, 1, -2, 4]).to(dtype)
    lowered = lower_and_check(SAME[name], (x,), members=members, calls=3)
    if dtype == torch.int64:
        assert set(buffers(lowered).values()) <= {"io", "cpu"}


def test_the_state_is_updated_in_the_program(tmp_path):
    lowered = lower(SAME["the same input"], (X,), members={"a": torch.zeros(4), "b": torch.zeros(4)})
    (spec,) = specs(lowered, tmp_path)
    updates = [op for op in ops(spec) if op.type == "write_state"]
    states = {op.inputs["input"].arguments[0].name for op in updates}
    values = [op.inputs["data"].arguments[0].name for op in updates]
    assert len(states) == 2
    assert len(set(values)) == 2  # one value of its own for each state
    assert {s.name for s in spec.description.state} == states


def test_a_new_value_used_in_a_later_delegate_stays_outside_state():
    """ExecuTorch would take the value out of the graph though another delegate reads it."""

    def run(m, x):
        m.acc.add_(x)
        return on_cpu(x.abs() + 1).softmax(-1) + m.acc

    lowered = lower_and_check(run, (torch.randn(2, 3),), members={"acc": torch.zeros(2, 3)}, calls=3)
    (buffer,) = lowered.placement["forward"].buffers
    assert (buffer.kind, buffer.reason) == ("io", "its new value is used outside the delegate that makes it")
    assert lowered.placement.delegates == 2


@pytest.mark.parametrize("start", [torch.ones(2, 3), torch.tensor([[0.0, 0.0, 0.0], [0.0, 0.0, -0.5]])])
def test_a_buffer_that_does_not_start_at_zero_keeps_its_start(start):
    """A Core ML state starts at zero, and ExecuTorch writes no start unless told to."""

    def run(m, x):
        m.acc.add_(x)
        return m.acc * 2

    x = torch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    lowered = lower_and_check(run, (x,), members={"acc": start.clone()}, calls=3)
    (buffer,) = lowered.placement["forward"].buffers
    assert buffer.kind == "io" and "does not start at zero" in buffer.reason
    program = load(lowered.pte)
    for step in (1, 2, 3):
        assert program.run(x)[0].tolist() == ((start + step * x) * 2).tolist()
