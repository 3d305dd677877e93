"""Resizing and sampling: the grids of the specification, torch's own samplers, positions outside the image."""

import coremltools as ct
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from coremltools.converters.mil.mil import Builder as mb
from op_run import run

from coreproof.errors import ModelError
from coreproof.runtime import load

# The specification's own grids over the two entries 0 and 1 (resize_bilinear), to two decimals.
GRIDS = {
    ("UNALIGN_CORNERS", 5): [0, 0.1, 0.5, 0.9, 1],
    ("STRICT_ALIGN_CORNERS", 5): [0, 0.25, 0.5, 0.75, 1],
    ("ALIGN_CORNERS", 5): [0, 0.25, 0.5, 0.75, 1],
    ("DEFAULT", 5): [0, 0.4, 0.8, 1, 1],
    ("OFFSET_CORNERS", 5): [0.1, 0.3, 0.5, 0.7, 0.9],
    ("UNALIGN_CORNERS", 6): [0, 0, 0.33, 0.67, 1, 1],
    ("STRICT_ALIGN_CORNERS", 6): [0, 0.2, 0.4, 0.6, 0.8, 1],
    ("DEFAULT", 6): [0, 0.33, 0.67, 1, 1, 1],
    ("OFFSET_CORNERS", 6): [0.08, 0.25, 0.42, 0.58, 0.75, 0.92],
    ("STRICT_ALIGN_CORNERS", 1): [0],
    ("ALIGN_CORNERS", 1): [0.5],
}


@pytest.mark.parametrize("mode, count", GRIDS)
def test_the_grids_of_the_specification(mode, count):
    x = torch.tensor([0.0, 1.0])
    wanted = torch.tensor(GRIDS[mode, count], dtype=torch.float32)
    wide = run("resize_bilinear", x=x.reshape(1, 1, 2), target_size_width=count, sampling_mode=mode)
    torch.testing.assert_close(wide[0, 0], wanted, rtol=0, atol=0.005)
    high = run("resize", x=x.reshape(2, 1), shape=[count, 1], resized_dims=2, sampling_mode=mode)
    torch.testing.assert_close(high[:, 0], wanted, rtol=0, atol=0.005)


def test_unknown_modes_and_sizes_are_refused():
    x = torch.zeros(1, 2, 2)
    for operands in ({"sampling_mode": "CORNERS"}, {"target_size_height": 0}):
        with pytest.raises(ValueError, match="sampling_mode|size 0"):
            run("resize_bilinear", x=x, **operands)
    with pytest.raises(ValueError, match="interpolation_mode"):
        run("resize", x=x, shape=[2], resized_dims=1, interpolation_mode="CUBIC")
    with pytest.raises(ValueError, match="resized_dims"):
        run("resize", x=x, shape=[2], resized_dims=2)
    with pytest.raises(ModelError, match="GiB"):
        run("resize", x=x, shape=[0, 2**60], resized_dims=2)


def test_nearest_entries():
    a, b = 1.0, 2.0
    x = torch.tensor([[[a, b]]])
    assert run("resize_nearest_neighbor", x=x, target_size_height=1, target_size_width=4).tolist() == [[[a, a, b, b]]]
    how = {"resized_dims": 1, "interpolation_mode": "NEAREST_NEIGHBOR"}
    assert run("resize", x=x, shape=[3], **how).tolist() == [[[a, b, b]]]  # as coremltools' test has it
    assert run("resize_nearest_neighbor", x=x, target_size_height=1, target_size_width=3).tolist() == [[[a, b, b]]]
    exact = F.interpolate(torch.arange(7.0).reshape(1, 1, 7), 12, mode="nearest-exact").flatten().tolist()
    for mode in ("DEFAULT", "UNALIGN_CORNERS"):
        assert run("resize", x=torch.arange(7.0), shape=[12], sampling_mode=mode, **how).tolist() == exact
        for factor in (2, 3, 6):
            got = run("resize", x=torch.arange(5), shape=[5 * factor], sampling_mode=mode, **how)
            assert got.tolist() == [i // factor for i in range(5 * factor)]
    corners = run("resize", x=torch.arange(5), shape=[3], sampling_mode="STRICT_ALIGN_CORNERS", **how)
    assert corners.tolist() == [0, 2, 4]
    for size, count in ((7, 10), (10, 14)):  # torch's `nearest` starts at the corner, as the upsampling does
        row = torch.arange(float(size)).reshape(1, 1, size)
        got = run("upsample_nearest_neighbor", x=row, scale_factor_width=count / size + 0.01)
        assert torch.equal(got, F.interpolate(row, count, mode="nearest"))


def test_resize_keeps_sizes_given_as_zero_and_integers():
    x = torch.tensor([[[0, 10, 20], [5, 15, 25]]], dtype=torch.int32)
    got = run("resize", x=x, shape=[9, 0, 5], resized_dims=2, sampling_mode="STRICT_ALIGN_CORNERS")
    assert got.tolist() == [[[0, 5, 10, 15, 20], [5, 10, 15, 20, 25]]] and got.dtype == torch.int32


@pytest.mark.parametrize("align, half, torchs", [(True, None, True), (False, None, False), (False, True, False)])
def test_upsampling_is_torchs(align, half, torchs):
    x = torch.randn(2, 3, 4, 5, generator=torch.Generator().manual_seed(0))
    given = {} if half is None else {"half_pixel_centers": half}
    got = run("upsample_bilinear", x=x, scale_factor_height=2, scale_factor_width=2.5, align_corners=align, **given)
    expected = F.interpolate(x, (8, 12), mode="bilinear", align_corners=torchs)
    torch.testing.assert_close(got, expected, rtol=0, atol=2e-6)
    near = run("upsample_nearest_neighbor", x=x, scale_factor_height=3, scale_factor_width=2)
    assert torch.equal(near, x.repeat_interleave(3, -2).repeat_interleave(2, -1))


def test_upsampling_without_half_pixels_starts_at_the_corner():
    x = torch.tensor([[[0.0, 1.0]]])
    got = run("upsample_bilinear", x=x, scale_factor_width=2, align_corners=False, half_pixel_centers=False)
    assert got.tolist() == [[[0, 0.5, 1, 1]]]


@pytest.mark.parametrize("factor", [0.7, 1.3, 2.6])
def test_a_fractional_factor_gives_the_declared_size(factor):
    @mb.program(input_specs=[mb.TensorSpec(shape=(1, 1, 10, 10))], opset_version=ct.target.iOS16)
    def program(x):
        wide = mb.upsample_bilinear(x=x, scale_factor_height=np.float32(factor), scale_factor_width=np.float32(factor))
        return wide, mb.upsample_nearest_neighbor(x=x, scale_factor_height=np.float32(factor))

    declared = [tuple(one.shape) for one in program.functions["main"].outputs]
    got = load(program).predict({"x": np.zeros((1, 1, 10, 10), np.float32)})
    assert [one.shape for one in got.values()] == declared


def test_crop():
    x = torch.arange(40).reshape(2, 4, 5)
    assert torch.equal(run("crop", x=x, crop_height=[1, 0], crop_width=[0, 2]), x[:, 1:, :3])
    assert torch.equal(run("crop", x=x, crop_height=[0, 0], crop_width=[0, 0]), x)
    with pytest.raises(ValueError, match="crop_height"):
        run("crop", x=x, crop_height=[-1, 0], crop_width=[0, 0])


IMAGES = torch.arange(2 * 4 * 5.0).reshape(2, 1, 4, 5)  # 20 n + 5 row + column: linear, so that samples are known


def linear(image, rows, columns):
    return (20 * image + 5 * torch.tensor(rows)[:, None] + torch.tensor(columns)).tolist()


@pytest.mark.parametrize(
    "mode, box",
    [
        ("CORNERS_HEIGHT_FIRST", [1, 0, 2, 3]), ("CORNERS_WIDTH_FIRST", [0, 1, 3, 2]),
        ("CENTER_SIZE_HEIGHT_FIRST", [1.5, 1.5, 1, 3]), ("CENTER_SIZE_WIDTH_FIRST", [1.5, 1.5, 3, 1]),
    ],
)  # fmt: skip
def test_boxes_in_each_notation(mode, box):
    rows, columns = [1.0, 1.5, 2.0], [0.0, 3.0]
    how = {
        "target_height": 3, "target_width": 2, "box_coordinate_mode": mode, "sampling_mode": "STRICT_ALIGN_CORNERS",
    }  # fmt: skip
    newest = run("crop_resize", x=IMAGES, boxes=[box], box_indices=[1], **how)
    assert newest.shape == (1, 1, 3, 2) and newest[0, 0].tolist() == linear(1, rows, columns)
    for opset in ("CoreML5", "CoreML6"):
        roi = torch.tensor(box).float().reshape(1, 1, 4, 1, 1)
        both = run("crop_resize", opset, x=IMAGES, roi=roi, **how)
        assert both.shape == (1, 2, 1, 3, 2) and both[0, 1, 0].tolist() == linear(1, rows, columns)
        one = run("crop_resize", opset, x=IMAGES, roi=torch.cat([torch.ones(1, 1, 1, 1, 1), roi], 2), **how)
        assert one.shape == (1, 1, 1, 3, 2) and one[0, 0, 0].tolist() == linear(1, rows, columns)


@pytest.mark.parametrize(
    "mode, columns",
    [("DEFAULT", [1, 2]), ("UNALIGN_CORNERS", [1, 2]), ("OFFSET_CORNERS", [1.25, 1.75]), ("ALIGN_CORNERS", [1, 2])],
)
def test_positions_in_a_box(mode, columns):
    got = run("crop_resize", x=IMAGES, boxes=[[0.0, 1.0, 0.0, 2.0]], target_width=2, sampling_mode=mode)
    assert got.flatten().tolist() == pytest.approx(columns)


def test_boxes_scaled_normalised_and_of_no_image():
    how = {"target_height": 2, "target_width": 2, "sampling_mode": "ALIGN_CORNERS"}
    whole = run("crop_resize", x=IMAGES, boxes=[[0.0, 0.0, 1.0, 1.0]], normalized_coordinates=True, **how)
    assert whole[0, 0].tolist() == linear(0, [0, 3], [0, 4])
    half = run("crop_resize", x=IMAGES, boxes=[[2.0, 2.0, 4.0, 6.0]], spatial_scale=0.5, **how)
    assert half[0, 0].tolist() == linear(0, [1, 2], [1, 3])
    assert run("crop_resize", x=IMAGES, boxes=torch.zeros(0, 4), **how).shape == (0, 1, 2, 2)
    with pytest.raises(ValueError, match="box_indices"):
        run("crop_resize", x=IMAGES, boxes=torch.zeros(1, 4), box_indices=[2])
    with pytest.raises(ValueError, match="image 2"):
        run("crop_resize", "CoreML5", x=IMAGES, roi=torch.tensor([2.0, 0, 0, 1, 1]).reshape(1, 1, 5, 1, 1))


def test_outside_the_image_is_the_edge_at_first_and_the_pad_value_from_ios16_on():
    box = torch.tensor([-1.0, 0.0, 1.0, 1.0])
    how = {"target_height": 2, "target_width": 1, "sampling_mode": "STRICT_ALIGN_CORNERS"}
    roi = torch.cat([torch.zeros(1), box]).reshape(1, 1, 5, 1, 1)
    assert run("crop_resize", "CoreML5", x=IMAGES + 1, roi=roi, **how).flatten().tolist() == [1, 6]
    assert run("crop_resize", "CoreML6", x=IMAGES + 1, roi=roi, **how).flatten().tolist() == [0, 6]
    assert run("crop_resize", "CoreML6", x=IMAGES + 1, roi=roi, pad_value=9.0, **how).flatten().tolist() == [9, 6]
    assert run("crop_resize", x=IMAGES + 1, boxes=box[None], pad_value=9.0, **how).flatten().tolist() == [9, 6]


# coremltools' own test of resample: coordinates and, for each way of sampling, what Core ML gives.
POINTS = torch.tensor([-1.0, -2.0, -3.7, -1.0, 0.0, 0.0, 3.5, 1.2]).reshape(1, 2, 2, 2)
WAYS = [
    ("bilinear", "constant", 6.17, "normalized_minus_one_to_one", True, [8.585, 6.17, 27.5, 6.17]),
    ("nearest", "border", -1.0, "unnormalized", False, [11, 11, 11, 44]),
    ("bilinear", "reflection", -1.0, "normalized_zero_to_one", True, [22, 36.3, 11, 34.1]),
    ("nearest", "symmetric", -1.0, "normalized_zero_to_one", False, [22, 33, 11, 33]),
]


@pytest.mark.parametrize("sampling, padding, value, mode, align, expected", WAYS)
def test_resample_gives_what_core_ml_gives(sampling, padding, value, mode, align, expected):
    x = torch.tensor([11.0, 22.0, 33.0, 44.0]).reshape(1, 1, 2, 2)
    got = run(
        "resample", x=x, coordinates=POINTS, sampling_mode=sampling, padding_mode=padding, padding_value=value,
        coordinates_mode=mode, align_corners=align,
    )  # fmt: skip
    torch.testing.assert_close(got.flatten(), torch.tensor(expected, dtype=torch.float32), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "padding, index", [("reflection", [2, 1, 0, 1, 2, 1, 0]), ("symmetric", [1, 0, 0, 1, 2, 2, 1])]
)
def test_whole_positions_outside_turn_back(padding, index):
    x = torch.tensor([[[[1.0, 2.0, 3.0]]]])
    columns = torch.arange(-2, 5, dtype=torch.int32)
    grid = torch.stack([columns, torch.zeros_like(columns)], -1).reshape(1, 1, 7, 2)
    for sampling in ("nearest", "bilinear"):
        got = run(
            "resample", x=x, coordinates=grid, sampling_mode=sampling, padding_mode=padding, padding_value=0.0,
            coordinates_mode="unnormalized", align_corners=False,
        )  # fmt: skip
        assert got.flatten().tolist() == [index_ + 1 for index_ in index]


def test_affine_is_torchs_grid():
    x = torch.randn(2, 3, 5, 6, generator=torch.Generator().manual_seed(0))
    matrix = torch.tensor([[0.9, 0.2, -0.1, -0.3, 1.1, 0.2], [1.5, 0.0, 0.0, 0.0, -1.0, 0.4]])
    grid = F.affine_grid(matrix.reshape(2, 2, 3), [2, 3, 4, 7], align_corners=True)
    expected = F.grid_sample(x, grid, align_corners=True)
    got = run(
        "affine", x=x, transform_matrix=matrix, output_height=4, output_width=7, sampling_mode="bilinear",
        padding_mode="constant", padding_value=0.0, coordinates_mode="normalized_minus_one_to_one",
        align_corners=True,
    )  # fmt: skip
    torch.testing.assert_close(got, expected, rtol=0, atol=1e-5)
