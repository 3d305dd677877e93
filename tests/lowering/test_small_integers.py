"""uint8 and int8: at the border on the CPU, as constants on Core ML."""

import pytest
import torch
from lowered import Call, lower, lower_and_check, places
from torch import nn
from torch.export import Dim

import coreproof

FRAME = torch.tensor([[0, 1, 127, 128], [255, 254, 3, 2]], dtype=torch.uint8)
SIGNED = torch.tensor([[-128, -1, 0], [127, 5, -7]], dtype=torch.int8)

READERS = {
    "cast": (lambda m, x: x.float() / 255, FRAME),
    "permute": (lambda m, x: x.permute(1, 0).float() / 255, FRAME),
    "zeros_like": (lambda m, x: torch.zeros_like(x).float() + 1, FRAME),
    "masked_fill": (lambda m, x: x.masked_fill(x > 5, 3).float() * 2, FRAME),
    "channel swap": (lambda m, x: x[:, [2, 1, 0]].float() / 255, FRAME),
    "max over a dim": (lambda m, x: x.max(dim=1)[0].float() + 1, FRAME),
    "split": (lambda m, x: [part.float() * 2 for part in x.split(2, 1)], FRAME),
    "abs": (lambda m, x: x.abs().float() * 3, FRAME),
    "arithmetic that wraps": (lambda m, x: (x + x).float() / 2, FRAME),
    "int8 permute": (lambda m, x: x.permute(1, 0).float() * 2, SIGNED),
    "int8 abs": (lambda m, x: x.abs().float() * 2, SIGNED),
    "int8 to int32": (lambda m, x: x.int() * 2, SIGNED),
}


@pytest.mark.parametrize("name", READERS)
@pytest.mark.parametrize("target", ["iOS15", "iOS18"])
def test_reading_ops_run_on_the_cpu_and_the_rest_on_coreml(name, target):
    function, tensor = READERS[name]
    lowered = lower_and_check(function, (tensor,), minimum_deployment_target=target)
    placed = places(lowered)
    assert lowered.placement.delegates == 1
    allowed = {"boundary-dtype", "constant-for-cpu", "converter", "no-inputs"}
    assert {r.rule for r in lowered.placement.refusals} <= allowed
    last = lowered.placement["forward"].nodes[-1]
    assert last.partition == 0, placed  # the float arithmetic after the conversion


def test_frame_into_a_convolution():
    net = nn.Conv2d(3, 4, 3)
    frame = torch.randint(0, 256, (1, 8, 6, 3), dtype=torch.uint8)
    lowered = lower(lambda m, x: m.net(x.permute(0, 3, 1, 2).float() / 255), (frame,), members={"net": net})
    placed = places(lowered)
    assert placed["permute_copy.default"] == [None]
    assert [where for op, where in placed.items() if op.startswith("conv")] == [[0]]
    assert placed["div.Tensor"] == [0]


def test_roll_with_a_dynamic_height():
    frame = torch.randint(0, 256, (6, 4), dtype=torch.uint8)
    lowered = lower(
        lambda m, x: torch.roll(x, 1, 0).float() / 255,
        (frame,),
        dynamic_shapes={"inputs": ({0: Dim("height", min=2, max=64)},)},
    )
    assert places(lowered)["div.Tensor"] != [None]


def test_an_op_that_makes_uint8_for_the_caller_stays_on_the_cpu():
    lowered = lower_and_check(lambda m, x: ((x * 2).to(torch.uint8), x * 3), (torch.tensor([0.0, 1.5, 100.0]),))
    assert places(lowered)["_to_dim_order_copy.default"].count(None) == 1
    assert {r.rule for r in lowered.placement.refusals} <= {"boundary-dtype", "converter"}


def test_full_graph_names_the_tensor_its_dtype_and_the_line():
    with pytest.raises(coreproof.RequirementError) as caught:
        lower(lambda m, frame: frame.float() / 255, (FRAME,), lower_full_graph=True)
    message = str(caught.value)
    assert "[inputs_0: uint8[2, 4]]" in message
    assert "lowered.py:" in message  # the innermost `forward`
    assert "lower_full_graph=False" in message


def test_a_partition_without_inputs_needs_ios18():
    function = lambda m, x: (torch.full((3,), 7.0), x.abs())  # noqa: E731
    assert places(lower_and_check(function, (FRAME,), minimum_deployment_target="iOS18"))["full.default"] == [0]
    old = lower_and_check(function, (FRAME,), minimum_deployment_target="iOS17")
    assert old.placement.delegates == 0
    assert "no-inputs" in {r.rule for r in old.placement.refusals}


def test_a_partition_left_with_only_sizes_runs_on_the_cpu():
    function = lambda m, x: (x.abs(), torch.zeros(x.shape[0], 2) + 1)  # noqa: E731
    module = Call(function).eval()
    lowered = coreproof.lower(module, (FRAME,), dynamic_shapes={"inputs": ({0: Dim("n", min=2, max=9)},)})
    assert places(lowered)["full.default"] == [None]
    (partition,) = lowered.placement["forward"].partitions
    assert len(partition.inputs) == 1 and "float32" in partition.inputs[0]  # the tensor that the CPU made, no size


CONSTANTS = {
    "float": lambda m, x: x * m.table.float(),
    "int as an index": lambda m, x: x[:, m.table.int().clamp(max=2)],
    "under a permute": lambda m, x: x * m.square.permute(1, 0).float(),
    "under a slice": lambda m, x: x * m.square[0].float(),
    "indexed at run time": lambda m, x: x * m.square[(x[0, :2] > 0).long()].float(),
}


@pytest.mark.parametrize("name", CONSTANTS)
@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8])
@pytest.mark.parametrize("target", ["iOS15", "iOS18"])
def test_a_constant_that_the_model_casts_stays_on_coreml(name, dtype, target):
    members = {
        "table": torch.tensor([0, 2, 1], dtype=dtype),
        "square": torch.tensor([[1, 2, 3], [4, 5, 6], [7, 8, 120]], dtype=dtype),
    }
    x = torch.randn(2 if name == "indexed at run time" else 3, 3)
    lowered = lower_and_check(CONSTANTS[name], (x,), members=members, minimum_deployment_target=target)
    assert lowered.placement.share == 1.0, lowered.placement.refusals
    assert lowered.placement.delegates == 1
