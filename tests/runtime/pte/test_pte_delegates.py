"""Whole programs with Core ML delegates, against eager torch."""

import copy
import json

import pytest
import torch
from lowered import Call, lower
from torch import nn
from torch.export import Dim, export

import coreproof
from coreproof.errors import InputError, ModelError
from coreproof.runtime import load
from coreproof.runtime.pte.delegates import Loader
from coreproof.runtime.pte.program import Delegate

X = torch.randn(3, 4, generator=torch.Generator().manual_seed(0))
I = torch.tensor([[3, -5], [2, 9]])  # noqa: E741


def compare(function, *calls, delegates=1, tolerance=1e-5, members=None, **options):
    """Lower in float32, and run every call in the runtime and in eager torch."""
    module = Call(function, **(members or {})).eval()
    eager = copy.deepcopy(module)
    pte = coreproof.lower(module, calls[0], compute_precision="float32", **options).pte
    program = load(pte)
    assert len(program.delegates) == delegates
    assert program.missing_kernels == []
    for inputs in calls:
        expected = eager(*inputs)
        for got, want in zip(program.run(*inputs), [expected] if isinstance(expected, torch.Tensor) else expected):
            torch.testing.assert_close(got, want, rtol=tolerance, atol=tolerance)
    return program


def test_conv_and_linear():
    torch.manual_seed(0)
    members = {"conv": nn.Conv2d(3, 4, 3, padding=1), "linear": nn.Linear(48, 5)}
    x = torch.randn(2, 3, 3, 4)
    compare(lambda m, x: m.linear(torch.relu(m.conv(x)).reshape(2, -1)).softmax(-1), (x,), (x * 2,), members=members)


def test_dtypes_are_converted_at_the_border():
    compare(lambda m, x, y: (x + y, x > y, x * 2.5, x.sum()), (I, I.flip(0)))
    compare(lambda m, x: (x * 2 + 1, x.to(torch.float64)), (X.half(),))
    compare(lambda m, x: x * 2 + 1, (X.double(),))
    compare(lambda m, mask, x: (torch.where(mask, x, -x), ~mask), (X > 0, X))


def test_scalars():
    compare(lambda m, x, y: (x.sum() * y, x.max(), y + 1), (X, torch.tensor(2.5)))


def test_sizes_that_change():
    linear = nn.Linear(4, 3)
    rows = ({0: Dim("rows", min=2, max=7)},)
    calls = [(X,), (torch.cat([X, X]),), (X[:2],)]
    module = nn.Sequential(linear, nn.ReLU()).eval()
    program = load(coreproof.lower(module, calls[0], compute_precision="float32", dynamic_shapes=rows).pte)
    for inputs in calls:
        torch.testing.assert_close(program.run(*inputs)[0], module(*inputs))


@pytest.mark.parametrize("state", ["always", "never"])
def test_state_lives_across_calls_until_reset(state):
    def function(module, x):
        module.kept.add_(x)
        return module.kept * 2

    calls = [(X,), (X + 1,), (X * 2,)]
    # Core ML holds states in half precision.
    program = compare(
        function,
        *calls,
        members={"kept": torch.zeros(3, 4)},
        mutable_buffer_state=state,
        tolerance=1e-2 if state == "always" else 1e-5,
    )
    program.reset()
    torch.testing.assert_close(program.run(X)[0], X * 2, rtol=1e-2, atol=1e-2)


def test_methods_that_share_weights():
    linear = nn.Linear(4, 4)
    first, second = Call(lambda m, x: m.linear(x), linear=linear), Call(lambda m, x: m.linear(x) * 2, linear=linear)
    methods = {"a": export(first.eval(), (X,)), "b": export(second.eval(), (X[:2],))}
    program = load(coreproof.lower(methods, compute_precision="float32").pte)
    assert program.method_names == ["a", "b"]
    assert all(data.startswith(b"CMJR") for data in program.delegates)
    torch.testing.assert_close(program.run(X, method="a")[0], first(X))
    torch.testing.assert_close(program.run(X[:2], method="b")[0], second(X[:2]))


def test_mode_exact_computes_in_float32():
    pte = lower(lambda m, x: x * 3.1 + 0.7, (X,)).pte
    expected = X * 3.1 + 0.7
    assert (load(pte).run(X)[0] - expected).abs().max() > 1e-5
    torch.testing.assert_close(load(pte, mode="exact").run(X)[0], expected)
    with pytest.raises(InputError, match="unknown mode"):
        load(pte, mode="half")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "no list of files"),
        (b"CMJR{", "its JSON is broken"),
        (b"CMJR[]", "its JSON is a list"),
        (b"CMJR" + json.dumps({"key": "other"}).encode(), "refers to the model 'other'"),
        (b"CMJR" + json.dumps({"key": ["x"]}).encode(), "refers to the model"),
        (b"}" * 50 + b"{", "no list of files"),
    ],
)
def test_broken_delegates(data, message):
    with pytest.raises(ModelError, match=message):
        Loader({}, "declared").load(Delegate("CoreMLBackend", memoryview(data)), "delegate 0")


def test_an_altered_delegate_gives_a_result_or_one_clear_error():
    pte = lower(lambda m, x: x * 3 + 1, (X,), compute_precision="float32").pte
    start = pte.index(load(pte).delegates[0])
    for at in range(start, len(pte), 97):
        altered = bytearray(pte)
        altered[at] ^= 0x41
        try:
            load(bytes(altered)).run(X)
        except coreproof.CoreproofError as error:
            assert str(error)
