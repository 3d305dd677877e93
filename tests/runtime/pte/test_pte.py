"""A whole `.pte` in the reference runtime, against ExecuTorch's own runtime and against eager torch."""

import copy

import executorch.exir as exir
import pytest
import torch
from executorch.runtime import Runtime
from lowered import Call, lower, on_cpu

from coreproof.errors import CoreproofError, InputError
from coreproof.runtime import load

X = torch.tensor([[1.5, -2.0, 0.25], [3.0, -0.5, 8.0]])


def program_of(function, inputs, members=None, **options):
    """A `.pte` without delegates."""
    module = Call(function, **(members or {})).eval()
    return bytes(exir.to_edge(torch.export.export(module, inputs, **options)).to_executorch().buffer)


FORMS = {
    "arithmetic": (lambda m, x: (x * 2 + x.sum(1, keepdim=True), x.argmax(1)), (X,)),
    "network": (
        lambda m, x: torch.softmax(m.net(x), -1).relu(),
        (X,),
        {"net": torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.GELU())},
    ),
    "convolution": (
        lambda m, x: m.conv(x).mean((2, 3)),
        (torch.randn(1, 3, 8, 8),),
        {"conv": torch.nn.Conv2d(3, 4, 3)},
    ),
    "views": (lambda m, x: x.t().reshape(2, 3)[:, 1:].contiguous().view(-1), (X,)),
    "types": (lambda m, x: ((x > 0), x.to(torch.int64) * 3, x.to(torch.float64)), (X,)),
    "branch": (
        lambda m, x: torch.cond(x.sum() > 0, lambda v: v * 2, lambda v: v - 1, (x,)),
        (X,),
    ),
}


@pytest.mark.parametrize("name", FORMS)
def test_as_executorchs_own_runtime(name):
    function, inputs, *members = FORMS[name]
    data = program_of(function, inputs, *members)
    expected = Runtime.get().load_program(data).load_method("forward").execute(list(inputs))
    got = load(data).run(*inputs)
    assert len(got) == len(expected)
    for ours, theirs in zip(got, expected, strict=True):
        assert ours.dtype == theirs.dtype
        # Sums of at most 27 products of values below 10, in another order: under 27 * 30 * 2**-24.
        torch.testing.assert_close(ours, theirs, rtol=0, atol=5e-5)


def test_a_mutable_buffer_lives_across_calls():
    def count(m, x):
        m.total.add_(x)
        return m.total * 2

    program = load(program_of(count, (torch.ones(3),), {"total": torch.zeros(3)}))
    for call in (1, 2, 3):
        (got,) = program.run(torch.ones(3))
        assert got.tolist() == [2.0 * call] * 3


def test_a_lowered_model_gives_eagers_values():
    net = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))

    def policy(m, frames, state):
        pixels = frames.permute(0, 3, 1, 2).float() / 255
        return on_cpu(1 + m.net(pixels.mean((2, 3)) + state).abs())

    inputs = (torch.arange(96, dtype=torch.uint8).reshape(2, 4, 4, 3), X)
    eager = Call(policy, net=copy.deepcopy(net))(*inputs)
    lowered = lower(policy, inputs, members={"net": net}, compute_precision="float32")
    (got,) = load(lowered.pte).run(*inputs)
    # float32 both ways: a mean of 16 pixels and sums of a few products below 10, some ten roundings of 2**-24 each.
    torch.testing.assert_close(got, eager.detach(), rtol=1e-5, atol=1e-5)


def test_wrong_inputs_are_named():
    program = load(program_of(lambda m, x: x * 2, (X,)))
    with pytest.raises(InputError):
        program.run()
    with pytest.raises(InputError):
        program.run(X.to(torch.int64))
    with pytest.raises(InputError):
        program.run(torch.zeros(3, 3))


def test_altered_files_are_one_error():
    """Seeded: each file may still run, or is refused with an error of ours."""
    data = program_of(lambda m, x: m.net(x).relu(), (X,), {"net": torch.nn.Linear(3, 4)})
    generator = torch.Generator().manual_seed(0)
    for case in range(120):
        altered = bytearray(data)
        if case % 4 == 0:
            altered = altered[: int(torch.randint(len(data), (1,), generator=generator))]
        for position in torch.randint(max(1, len(altered)), (6,), generator=generator).tolist():
            if altered:
                altered[position] = int(torch.randint(256, (1,), generator=generator))
        try:
            load(bytes(altered)).run(X)
        except CoreproofError:
            continue
