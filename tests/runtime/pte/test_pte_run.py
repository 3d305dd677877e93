"""Whole programs without delegates: the same values as the ExecuTorch runtime, dtypes and shapes included."""

import copy

import pytest
import torch
from executorch.exir import ExecutorchBackendConfig, to_edge
from executorch.exir.passes import MemoryPlanningPass
from executorch.exir.passes.init_mutable_pass import InitializedMutableBufferPass
from executorch.runtime import Runtime
from torch import nn
from torch._higher_order_ops.map import map as torch_map
from torch._higher_order_ops.scan import scan
from torch.export import Dim, export

from coreproof.errors import InputError, ModelError, UnsupportedFileError
from coreproof.runtime import PteProgram, load, read_program


class One(nn.Module):
    def __init__(self, function, **members):
        super().__init__()
        self.function = function
        for name, member in members.items():
            if isinstance(member, torch.Tensor):
                self.register_buffer(name, member)
            else:
                setattr(self, name, member)

    def forward(self, x):
        return self.function(self, x)


class Two(One):
    def forward(self, x, y):
        return self.function(self, x, y)


def emit(function, inputs, *, dynamic=None, config=None, **members):
    """The `.pte` of `function(module, *inputs)`; keyword arguments are the module's members."""
    module = (One if len(inputs) == 1 else Two)(function, **members).eval().requires_grad_(False)
    with torch.no_grad():
        exported = export(module, inputs, dynamic_shapes=dynamic, strict=False)
        return bytes(to_edge(exported).to_executorch(config or ExecutorchBackendConfig()).buffer)


def compare(pte, *calls, method="forward", tolerance=1e-5):
    """Both runtimes over the same calls; returns what ours gave."""
    program = load(pte)
    assert isinstance(program, PteProgram)
    assert program.missing_kernels == []
    theirs = Runtime.get().load_program(pte).load_method(method)
    results = []
    for inputs in calls:
        got, expected = program.run(*inputs, method=method), theirs.execute(list(inputs))
        assert len(got) == len(expected)
        for one, other in zip(got, expected, strict=True):
            if isinstance(other, torch.Tensor):
                torch.testing.assert_close(one, other, rtol=tolerance, atol=tolerance, equal_nan=True)
            else:
                assert type(one) is type(other) and one == other
        results.append(got)
    return results


def f(*shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(len(shape) * 100 + sum(shape)))


X = f(3, 4)
I = torch.tensor([[7, 5, -2, 6], [-5, 0, -3, 6], [0, 2, 1, 8]])  # noqa: E741
POSITIVE = torch.tensor([[3, 9, 2, 5], [9, 8, 2, 8], [2, 9, 1, 6]])
ODD = torch.tensor([[float("nan"), -1.5, 2.5], [float("inf"), -0.0, 0.5]])


def recurrent(module, x):
    return module.lstm(x)[0]


PROGRAMS = {
    "arithmetic": (lambda m, x, y: (x * y + 1, x > y, x / y, torch.where(x > 0, x, y).sum(1)), (X, X.flip(0)), {}),
    "odd floats": (lambda m, x: (x.round(), x.relu(), x.isnan(), x.amax(1), x.sign(), x.clamp(-1, 1)), (ODD,), {}),
    "conv": (
        lambda m, x: m.linear(m.conv(x).flatten(1)).softmax(-1),
        (f(2, 3, 8, 6),),
        {"conv": nn.Conv2d(3, 4, 3, padding=1, stride=2), "linear": nn.Linear(48, 5)},
    ),
    "channels last": (
        lambda m, x: (m.conv(x.to(memory_format=torch.channels_last)).relu(), x.clone()),
        (f(1, 3, 5, 6),),
        {"conv": nn.Conv2d(3, 2, 3)},
    ),
    "several results": (lambda m, x: nn.functional.max_pool2d(x, 2, return_indices=True), (f(1, 2, 6, 4),), {}),
    "lists": (lambda m, x: torch.split(x, [1, 3], 1) + torch.unbind(x), (X,), {}),
    "views": (
        lambda m, x: (x.view(2, -1).t().unsqueeze(1).permute(2, 1, 0)[..., 1:], x.expand(2, 3, 4).select(0, 1)),
        (X,),
        {},
    ),
    "integers": (
        lambda m, x, y: (x // y, y % 4, x.to(torch.int8), ~(x > y), (x > 2).any(), x.argmax(1)),
        (I, POSITIVE),
        {},
    ),
    "small types": (lambda m, x: (x.to(torch.uint8), x.to(torch.int16) * 3, x.to(torch.float64)), (POSITIVE,), {}),
    "half": (lambda m, x: (x.half() * 3, x.bfloat16() + 1), (X,), {}),
    "numbers": (lambda m, x: (x + 1, x.sum().item(), x.float().mean().item(), None, True), (I,), {}),
    "made tensors": (lambda m, x: (torch.full((2, 3), 1.5), torch.arange(2, 11, 3), torch.zeros_like(x)), (X,), {}),
    "attention": (
        lambda m, x: m.layer(x),
        (f(2, 5, 6),),
        {"layer": nn.TransformerEncoderLayer(6, 2, 8, batch_first=True)},
    ),
    "recurrent": (recurrent, (f(2, 5, 3),), {"lstm": nn.LSTM(3, 4, batch_first=True)}),
    "norm": (lambda m, x: m.norm(x), (f(2, 3, 5, 4),), {"norm": nn.BatchNorm2d(3)}),
    "embedding": (lambda m, x: m.table(x), (POSITIVE,), {"table": nn.Embedding(10, 4)}),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_values_are_those_of_executorch(name):
    function, inputs, members = PROGRAMS[name]
    torch.manual_seed(0)
    pte = emit(function, inputs, **members)
    compare(pte, inputs, inputs)


def test_sizes_that_change_from_call_to_call():
    def function(module, x):
        rows = x.shape[0]
        doubled = torch.cat([x, x]).reshape(-1, 2) * rows
        return doubled, rows * 2, x.mean(0), torch.zeros(rows, 2), torch.arange(rows), x.view(rows, 2, 2)

    pte = emit(function, (X,), dynamic=({0: Dim("rows", min=1, max=7)},))
    compare(pte, (f(2, 4),), (f(7, 4),), (f(1, 4),))


def test_a_mutable_buffer_lives_across_calls_until_reset():
    def function(module, x):
        module.kept.add_(x)
        return module.kept * 2

    pte = emit(function, (f(3),), kept=torch.zeros(3))
    calls = [(f(3),), (f(3) + 1,), (f(3) * 2,)]
    results = compare(pte, *calls)
    total = sum((inputs[0] for inputs in calls), torch.zeros(3))
    torch.testing.assert_close(results[-1][0], total * 2)
    program = load(pte)
    first = program.run(f(3))[0]
    program.run(f(3))
    program.reset()
    assert torch.equal(program.run(f(3))[0], first)


def test_a_mutable_buffer_that_starts_with_values():
    def function(module, x):
        module.kept.add_(x)
        return module.kept * 2

    config = ExecutorchBackendConfig(passes=[InitializedMutableBufferPass(["kept"])])
    pte = emit(function, (f(3),), kept=torch.tensor([1.0, 2.0, 3.0]), config=config)
    compare(pte, (f(3),), (f(3),))


def test_rows_of_a_cache_are_written_in_place():
    def function(module, x, at):
        module.kept[:, at] = x
        return module.kept * 2

    pte = emit(function, (f(2, 1, 3), torch.tensor([1])), kept=torch.zeros(2, 4, 3))
    compare(pte, (f(2, 1, 3), torch.tensor([1])), (f(2, 1, 3), torch.tensor([3])))


def test_control_flow():
    def either(module, x):
        return torch.cond(x.sum() > 0, lambda v: v.sin() + 1, lambda v: v.cos() * 2, (x,))

    compare(emit(either, (f(3),)), (torch.ones(3),), (-torch.ones(3),), (torch.ones(3),))
    rows = emit(lambda m, x, y: torch_map(lambda row, other: row * other + 1, x, y), (X, f(4)))
    compare(rows, (X, f(4)), (X + 1, f(4)))
    carried = emit(lambda m, x, y: scan(lambda c, row: (c + row, c * row), y, x), (X, f(4)))
    compare(carried, (X, f(4)), (X + 1, f(4)))


def test_several_methods():
    parts = {
        "first": export(One(lambda m, x: x + 1), (f(3),)),
        "second": export(One(lambda m, x: (x * 3, x.sum())), (X,)),
    }
    pte = bytes(to_edge(parts).to_executorch().buffer)
    assert load(pte).method_names == ["first", "second"]
    compare(pte, (f(3),), method="first")
    compare(pte, (X,), method="second")
    with pytest.raises(InputError, match=r"no method named 'forward'; expected first, second"):
        load(pte).run(X)


def test_inputs_and_outputs_that_are_not_planned():
    planning = MemoryPlanningPass(alloc_graph_input=False, alloc_graph_output=False)
    pte = emit(lambda m, x: (x + 1) * 2, (X,), config=ExecutorchBackendConfig(memory_planning_pass=planning))
    program = load(pte)
    given = X.clone()
    assert torch.equal(program.run(given)[0], (X + 1) * 2)
    assert torch.equal(given, X)


def test_outputs_are_the_callers_own():
    program = load(emit(lambda m, x: x + 1, (X,)))
    first = program.run(X)[0]
    kept = first.clone()
    program.run(X * 5)
    assert torch.equal(first, kept)


def test_inputs_in_another_memory_layout():
    program = load(emit(lambda m, x: x * 2, (f(1, 3, 5, 6),)))
    given = f(1, 3, 5, 6).to(memory_format=torch.channels_last)
    assert torch.equal(program.run(given)[0], given * 2)
    assert torch.equal(program.run(given.flip(3))[0], given.flip(3) * 2)


def test_values_where_executorch_is_wrong_are_eagers():
    # executorch 1.5.1's kernel gives an integer remainder the dividend's sign.
    pte = emit(lambda m, x, y: x % y, (I, POSITIVE))
    assert torch.equal(load(pte).run(I, POSITIVE)[0], I % POSITIVE)
    # It writes the rows of nonzero into a tensor that the export declares column by column.
    assert torch.equal(load(emit(lambda m, x: x.nonzero(), (I,))).run(I)[0], I.nonzero())


def test_wrong_inputs_are_refused():
    program = load(emit(lambda m, x: x * 2, (X,), dynamic=({0: Dim("rows", min=1, max=7)},)))
    for given, message in (
        ((), "takes 1 inputs; got 0"),
        ((X, X), "takes 1 inputs; got 2"),
        ((X.double(),), r"input 0 .* expected float32 of at most \[7, 4\], got float64 of \[3, 4\]"),
        ((f(8, 4),), r"expected float32 of at most \[7, 4\], got float32 of \[8, 4\]"),
        ((f(4),), r"got float32 of \[4\]"),
        ((2.0,), r"got 2.0"),
        ((X.numpy(),), r"got ndarray"),
    ):
        with pytest.raises(InputError, match=message):
            program.run(*given)
    fixed = load(emit(lambda m, x: x * 2, (X,)))
    with pytest.raises(InputError, match=r"expected float32 of \[3, 4\], got float32 of \[2, 4\]"):
        fixed.run(f(2, 4))


def test_a_number_must_be_that_of_the_export():
    pte = emit(lambda m, x, y: x * y, (X, 3))
    compare(pte, (X, 3))
    with pytest.raises(InputError, match=r"input 1 .* expected 3, the value of the export; got 4"):
        load(pte).run(X, 4)


def test_an_index_out_of_range_names_the_instruction():
    program = load(emit(lambda m, x: m.table(x), (POSITIVE,), table=nn.Embedding(10, 4)))
    with pytest.raises(ModelError, match=r"method 'forward', instruction \d+ \(aten::embedding.out\): "):
        program.run(POSITIVE + 5)


def test_external_data(tmp_path):
    module = One(lambda m, x: m.linear(x), linear=nn.Linear(4, 3)).eval().requires_grad_(False)
    expected = copy.deepcopy(module)(X)
    made = to_edge(export(module, (X,))).to_executorch(ExecutorchBackendConfig(external_constants=True))
    made.write_tensor_data_to_file(str(tmp_path))
    (path,) = tmp_path.glob("*.ptd")
    pte = bytes(made.buffer)
    for external in (path, path.read_bytes()):
        torch.testing.assert_close(load(pte, external=(external,)).run(X)[0], expected)
    with pytest.raises(ModelError, match=r"in an external .ptd file; none given holds it"):
        load(pte)
    data = path.read_bytes()
    for cut in range(0, len(data), 7):
        with pytest.raises(ModelError):
            load(pte, external=(data[:cut],))


def test_load_takes_paths_and_bytes(tmp_path):
    pte = emit(lambda m, x: x + 1, (X,))
    path = tmp_path / "model.pte"
    path.write_bytes(pte)
    for source in (path, str(path), pte, bytearray(pte), memoryview(pte)):
        assert torch.equal(load(source).run(X)[0], X + 1)
    with pytest.raises(UnsupportedFileError, match="whole .pte program"):
        read_program(path)


def test_a_kernel_that_executorch_lacks_is_named():
    pte = emit(lambda m, x: x + 1, (X,)).replace(b"aten::add\0", b"aten::nop\0")
    assert load(pte).missing_kernels == ["aten::nop.out"]
    with pytest.raises(ModelError, match=r"instruction 0 \(aten::nop.out\).*torch has no operator 'aten::nop'"):
        load(pte).run(X)
