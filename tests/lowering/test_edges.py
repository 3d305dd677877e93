"""Less common programs: each lowers, or is refused in one line."""

import pytest
import torch
from lowered import Call, lower, lower_and_check, on_cpu, ops, places, specs
from torch import nn

import coreproof
from coreproof.verify.lowered_graph import LoweredRun

X = torch.tensor([[1.5, -2.0, 0.25], [3.0, -0.5, 8.0]])


def test_control_flow_runs_on_the_cpu():
    def branch(m, x):
        return torch.cond(x.sum() > 0, lambda v: v * 2, lambda v: v - 1, (x,)) + 1

    lowered = lower_and_check(branch, (X,))
    assert "control-flow" in {r.rule for r in lowered.placement.refusals}


def test_ops_in_branches_are_decomposed_until_they_have_kernels():
    """`matmul` is kept whole for Core ML and has no kernel: the one in a branch may not stay."""

    def branch(m, x):
        product = (x @ x.transpose(0, 1)).relu()
        return torch.cond(
            x.sum() > 0,
            lambda v: torch.matmul(v, v),
            lambda v: torch.cond(v.mean() > 0, lambda u: torch.matmul(u, u) * 2, lambda u: u - 1, (v,)),
            (product,),
        )

    for x in (X, -X):
        lowered = lower_and_check(branch, (x,))
        inside = [r for r in lowered.placement.refusals if "in a subgraph" in r.reason]
        assert [r.op for r in inside].count("aten.mm.default") == 2
        assert all(r.rule == "control-flow" and "<" not in r.source for r in inside)
    assert lowered.placement["forward"].on_coreml > 0


def test_methods_with_different_numbers_of_delegates():
    net = nn.Linear(3, 3)
    one = Call(lambda m, x: m.net(x) * 2, net=net).eval()
    two = Call(lambda m, x: on_cpu(m.net(x).abs() + 1) * 2, net=net).eval()
    lowered = coreproof.lower({"one": torch.export.export(one, (X,)), "two": torch.export.export(two, (X,))})
    assert [len(method.partitions) for method in lowered.placement.values()] == [1, 2]


def test_a_method_that_only_updates_a_buffer():
    def reset(m, x):
        m.kept.mul_(0.5)
        return x

    lower_and_check(reset, (X,), members={"kept": torch.ones(3)}, calls=3)
    lowered = lower(reset, (X,), members={"kept": torch.zeros(3)})
    (buffer,) = lowered.placement["forward"].buffers
    assert buffer.kind == "io" and "return nothing" in buffer.reason


def test_a_buffer_without_dimensions_is_no_state():
    def count(m, x):
        m.count.add_(1.0)
        return x * m.count

    lowered = lower_and_check(count, (X,), members={"count": torch.tensor(0.0)}, calls=3)
    (buffer,) = lowered.placement["forward"].buffers
    assert buffer.kind == "io" and "without dimensions" in buffer.reason


def test_a_named_tuple_is_refused_before_the_work():
    with pytest.raises(coreproof.InputError, match=r"return_types\.max.*tuple\(x\.max\(1\)\)"):
        lower(lambda m, x: x.max(1), (X,))


def test_weights_laid_out_as_channels_last_stay_on_coreml():
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()).eval()
    lowered = coreproof.lower(
        net.to(memory_format=torch.channels_last), (torch.randn(1, 3, 8, 6),), lower_full_graph=True
    )
    assert lowered.placement.delegates == 1


def test_where_on_values_without_dimensions():
    lowered = lower_and_check(lambda m, x: x * torch.where(x.sum() > 0, 1.0, 0.5), (X,))
    assert lowered.placement.share == 1.0


def test_a_constant_beyond_int32_stays_on_the_cpu():
    big = torch.tensor([2**40, -300, 3])
    lowered = lower_and_check(lambda m, x: x.long() + m.big, (X,), members={"big": big})
    assert "int64-range" in {r.rule for r in lowered.placement.refusals}
    assert places(lowered)["add.Tensor"] == [None]


def test_integers_keep_32_bits_at_float16_precision(tmp_path):
    lowered = lower(lambda m, t: t[m.i] * 2, (torch.tensor([70000, -1, -40000]),), members={"i": torch.tensor([2, 0])})
    (spec,) = specs(lowered, tmp_path)
    narrow = {"INT16", "UINT16"}
    types = {
        type(output.type.tensorType)
        .DESCRIPTOR.fields_by_name["dataType"]
        .enum_type.values_by_number[output.type.tensorType.dataType]
        .name
        for op in ops(spec)
        if op.type != "const"
        for output in op.outputs
    }
    assert "INT32" in types and not narrow & types


def test_a_rule_of_torch_that_leads_nowhere_names_the_op():
    with pytest.raises(coreproof.MissingKernelError, match="diagonal_scatter"):
        lower(lambda m, x: x.diagonal_scatter(torch.zeros(2)) * 2, (X,))


def test_a_program_can_be_lowered_again():
    members = {"weight": torch.ones(3), "net": nn.Linear(3, 3)}
    module = Call(lambda m, x: m.net(x) * m.weight + torch.tensor([1.0, 2.0, 3.0]), **members)
    program = torch.export.export(module, (X,))
    names = list(program.constants)
    for _ in range(2):
        (got,) = LoweredRun(coreproof.lower(program).edge_program_manager)(X)
        assert torch.equal(got, module(X))
        assert list(program.constants) == names


def test_a_program_with_a_data_dependent_size_can_be_lowered_again():
    program = torch.export.export(Call(lambda m, x: x[x > 0].sum() + torch.nonzero(x).sum()), (X,))
    for _ in range(2):
        assert coreproof.lower(program).pte


@pytest.mark.parametrize("mode, op", [("bilinear", "upsample_bilinear2d"), ("nearest", "upsample_nearest2d")])
def test_a_resize_to_a_computed_size_runs_on_the_cpu(mode, op):
    """coremltools converts it in a pass after its frontend, which gives up on a size that it cannot trace back."""

    def resize(m, x):
        return torch.nn.functional.interpolate(x, size=(x.shape[2] * 2 + 1, 7), mode=mode) * 2

    shapes = {"inputs": ({2: torch.export.Dim("height", min=2, max=16)},)}
    lowered = lower(resize, (torch.randn(1, 2, 4, 5),), dynamic_shapes=shapes)
    assert op in {r.op.split(".")[1] for r in lowered.placement.refusals}


def test_arithmetic_on_sizes_that_the_runtime_lacks_is_named():
    shapes = {"inputs": ({1: torch.export.Dim("length", min=2, max=16)},)}
    with pytest.raises(coreproof.MissingKernelError, match=r"operator\.pow .*lowered.py:\d+"):
        lower(lambda m, x: x * x.shape[1] ** 0.5, (torch.ones(2, 4),), dynamic_shapes=shapes)
