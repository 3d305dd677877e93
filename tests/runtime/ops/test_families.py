"""Values of ops, against torch, numpy and arithmetic; coremltools' own tests are run by tests/acceptance."""

import coremltools as ct
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from coremltools.converters.mil.mil import Builder as mb

from coreproof.runtime.ops import find_op

SEEDED = np.random.default_rng(0)


def run(op, opset="CoreML8", **operands):
    """Call an op function on plain operands."""
    return find_op(op, opset, op).call(**operands)


def t(values, dtype=torch.float32):
    return torch.tensor(values, dtype=dtype)


@pytest.mark.parametrize(
    "op, x, y, expected",
    [
        ("mod", [7, -7, 7, -7], [3, 3, -3, -3], [1, 2, -2, -1]),
        ("floor_div", [7, -7, 7, -7], [3, 3, -3, -3], [2, -3, -3, 2]),
        ("real_div", [7, -7, 7, -7], [3, 3, -3, -3], [2, -2, -2, 2]),
        ("pow", [2, -3, 10, 5], [10, 3, 0, 1], [1024, -27, 1, 5]),
        ("floor_div", [2**24 + 1, 5, 5, 5], [1, 1, 1, 1], [2**24 + 1, 5, 5, 5]),
    ],
)
def test_integers_divide_as_written(op, x, y, expected):
    assert run(op, x=t(x, torch.int32), y=t(y, torch.int32)).tolist() == expected


def test_epsilons_are_added():
    x = t([1e-3, 4.0])
    assert torch.allclose(run("inverse", x=x), t([1 / (1e-3 + 1e-4), 1 / 4.0001]))
    assert torch.allclose(run("rsqrt", x=t([0.0])), t([1e6]))
    assert run("log", x=t([0.0])).isfinite().all()


@pytest.mark.parametrize(
    "dtype, x, expected",
    [
        ("int32", [1.9, -1.9, 3e9, float("nan")], [1, -1, 2**31 - 1, 0]),
        ("uint8", [-1.0, 300.0, 2.5, 255.0], [0, 255, 2, 255]),
        ("bool", [0.0, 0.5, -1.0, float("nan")], [False, True, True, True]),
    ],
)
def test_casts_of_floats(dtype, x, expected):
    assert run("cast", x=t(x), dtype=dtype).tolist() == expected


def test_casts_between_integers_wrap():
    assert run("cast", x=t([70000, -1], torch.int32), dtype="int16").tolist() == [70000 - 65536, -1]
    assert run("cast", x=t([70000, -1], torch.int32), dtype="uint16").tolist() == [70000 - 65536, 65535]


def test_the_first_of_equal_values_wins():
    x = t([[1, 3, 3], [2, 2, 1]])
    assert run("reduce_argmax", x=x, axis=1).tolist() == [1, 0]
    values, indices = run("topk", x=x, k=2, axis=1)
    assert indices.tolist() == [[1, 2], [0, 1]] and values.tolist() == [[3, 3], [2, 2]]


@pytest.mark.parametrize("pad_type, sizes", [("same", (0, 1)), ("same_lower", (1, 0)), ("valid", (0, 0))])
def test_convolution_pads_the_odd_element_on_the_right_side(pad_type, sizes):
    x, weight = torch.randn(1, 2, 7, generator=torch.Generator().manual_seed(0)), torch.ones(3, 2, 2)
    expected = F.conv1d(F.pad(x, sizes), weight)
    assert torch.equal(run("conv", x=x, weight=weight, pad_type=pad_type), expected)


@pytest.mark.parametrize("stride, pad, output", [(2, [1, 1], None), (3, [0, 1], None), (2, [0, 0], [1, 3, 12])])
def test_transposed_convolution(stride, pad, output):
    generator = torch.Generator().manual_seed(0)
    x, weight = torch.randn(1, 2, 5, generator=generator), torch.randn(2, 3, 4, generator=generator)
    whole = F.conv_transpose1d(x, weight, stride=stride)
    got = run("conv_transpose", x=x, weight=weight, strides=[stride], pad=pad, pad_type="custom", output_shape=output)
    assert torch.equal(got, whole[..., pad[0] : whole.shape[-1] - pad[1]])


@pytest.mark.parametrize("ceil_mode", [False, True])
@pytest.mark.parametrize("counted", [False, True])
def test_average_pooling_counts_as_torch_does(ceil_mode, counted):
    x = torch.randn(1, 2, 7, 9, generator=torch.Generator().manual_seed(0))
    expected = F.avg_pool2d(x, 3, 2, 1, ceil_mode=ceil_mode, count_include_pad=counted)
    got = run(
        "avg_pool", x=x, kernel_sizes=[3, 3], strides=[2, 2], pad_type="custom", pad=[1, 1, 1, 1],
        ceil_mode=ceil_mode, exclude_padding_from_average=not counted,
    )  # fmt: skip
    torch.testing.assert_close(got, expected, rtol=0, atol=1e-6)  # 9 terms below 4: 9 * 4 * 2**-24 < 3e-6 / 3
    best = F.max_pool2d(x, 3, 2, 1, ceil_mode=ceil_mode)
    assert torch.equal(
        run("max_pool", x=x, kernel_sizes=[3, 3], strides=[2, 2], pad_type="custom", pad=[1, 1, 1, 1],
            ceil_mode=ceil_mode),
        best,
    )  # fmt: skip


@pytest.mark.parametrize(
    "begin, end, stride, masks",
    [
        ([0, 1], [2, 4], [1, 2], {}),
        ([1, 3], [-3, 0], [-1, -2], {}),
        ([0, 0], [1, 1], [1, -1], {"begin_mask": [False, True], "end_mask": [False, True]}),
        ([-1, 0], [0, 3], [1, 1], {"squeeze_mask": [True, False]}),
    ],
)
def test_slices_are_numpys(begin, end, stride, masks):
    x = np.arange(10.0).reshape(2, 5)
    where = tuple(
        begin[i]
        if masks.get("squeeze_mask", [0, 0])[i]
        else slice(
            None if masks.get("begin_mask", [0, 0])[i] else begin[i],
            None if masks.get("end_mask", [0, 0])[i] else end[i],
            stride[i],
        )
        for i in range(2)
    )
    got = run("slice_by_index", x=torch.from_numpy(x), begin=begin, end=end, stride=stride, **masks)
    assert got.tolist() == x[where].tolist()
    update = np.full_like(x[where], -1.0)
    expected = x.copy()
    expected[where] = update
    got = run(
        "slice_update", x=torch.from_numpy(x), update=torch.from_numpy(update), begin=begin, end=end, stride=stride,
        **masks,
    )  # fmt: skip
    assert got.tolist() == expected.tolist()


@pytest.mark.parametrize("mode", ["add", "sub", "mul", "div", "max", "min", "update"])
def test_scatter_combines_repeated_indices_one_after_another(mode):
    data, indices, updates = t([1.0, 2.0, 3.0]), [2, 0, 2], [4.0, 8.0, 0.5]
    expected = data.tolist()
    for index, update in zip(indices, updates, strict=True):
        old = expected[index]
        expected[index] = {
            "add": old + update, "sub": old - update, "mul": old * update, "div": old / update,
            "max": max(old, update), "min": min(old, update), "update": update,
        }[mode]  # fmt: skip
    whole = t(indices, torch.int32)
    assert run("scatter", data=data, indices=whole, updates=t(updates), axis=0, mode=mode).tolist() == expected
    assert run("scatter_nd", data=data, indices=whole[:, None], updates=t(updates), mode=mode).tolist() == expected
    along = run("scatter_along_axis", data=data, indices=whole, updates=t(updates), axis=0, mode=mode)
    assert along.tolist() == expected


def test_gather_takes_negative_indices_and_refuses_others():
    x = t([[1, 2, 3], [4, 5, 6]])
    assert run("gather", x=x, indices=t([-1, 0], torch.int32), axis=1).tolist() == [[3, 1], [6, 4]]
    batched = run("gather", x=x, indices=t([[2], [0]], torch.int32), axis=1, batch_dims=1)
    assert batched.tolist() == [[3], [4]]
    with pytest.raises(ValueError, match="outside the size 3"):
        run("gather", x=x, indices=t([3], torch.int32), axis=1)


def test_reshape_zero_counts_from_the_right_from_ios17_on():
    x = torch.zeros(2, 50)
    assert run("reshape", x=x, shape=[1, 0, -1, 0]).shape == (1, 1, 2, 50)  # the specification's own example
    with pytest.raises(ValueError, match="another rank"):
        run("reshape", "CoreML6", x=x, shape=[1, 0, -1, 0])


@pytest.mark.parametrize("mode, padding", [("constant", "zeros"), ("border", "border"), ("reflection", "reflection")])
@pytest.mark.parametrize("sampling", ["bilinear", "nearest"])
@pytest.mark.parametrize("corners", [True, False])
def test_resample_is_grid_sample(mode, padding, sampling, corners):
    if mode == "reflection" and not corners:
        pytest.skip("torch reflects about the edge of the pixel there, which Core ML calls symmetric")
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(2, 3, 5, 6, generator=generator)
    grid = torch.rand(2, 4, 7, 2, generator=generator) * 3 - 1.5
    expected = F.grid_sample(x, grid, sampling, padding, corners)
    got = run(
        "resample", x=x, coordinates=grid, sampling_mode=sampling, padding_mode=mode, padding_value=0.0,
        coordinates_mode="normalized_minus_one_to_one", align_corners=corners,
    )  # fmt: skip
    # Positions differ by a few 2**-24 of 6 pixels, values between neighbours by up to 6.
    torch.testing.assert_close(got, expected, rtol=0, atol=2e-5)


@pytest.mark.parametrize("corners, op_mode", [(True, "STRICT_ALIGN_CORNERS"), (False, "UNALIGN_CORNERS")])
def test_resizes_are_torchs(corners, op_mode):
    x = torch.randn(1, 2, 5, 6, generator=torch.Generator().manual_seed(0))
    expected = F.interpolate(x, (8, 11), mode="bilinear", align_corners=corners)
    got = run("resize_bilinear", x=x, target_size_height=8, target_size_width=11, sampling_mode=op_mode)
    torch.testing.assert_close(got, expected, rtol=0, atol=1e-5)
    nearest = run("resize_nearest_neighbor", x=x, target_size_height=10, target_size_width=12)
    assert torch.equal(nearest, F.interpolate(x, (10, 12), mode="nearest"))


def test_recurrent_layers_are_torchs():
    torch.manual_seed(0)
    x, h, c = torch.randn(4, 2, 3), torch.randn(1, 2, 5), torch.randn(1, 2, 5)
    layer = torch.nn.LSTM(3, 5)
    i, f, z, o = range(4)  # torch's order of gates; MIL's is i, f, o, z

    def ordered(weight, order, count):
        return torch.cat([weight.detach().chunk(count)[k] for k in order])

    steps, (last_h, last_c) = layer(x, (h, c))
    bias = ordered(layer.bias_ih_l0 + layer.bias_hh_l0, (i, f, o, z), 4)
    got = run(
        "lstm", x=x, initial_h=h[0], initial_c=c[0], weight_ih=ordered(layer.weight_ih_l0, (i, f, o, z), 4),
        weight_hh=ordered(layer.weight_hh_l0, (i, f, o, z), 4), bias=bias, output_sequence=True,
    )  # fmt: skip
    for ours, theirs in zip(got, (steps, last_h[0], last_c[0]), strict=True):
        torch.testing.assert_close(ours, theirs.detach(), rtol=0, atol=1e-6)
    gru = torch.nn.GRU(3, 5)
    r, u, n = range(3)  # torch's order; MIL's is reset, new, update
    steps, last_h = gru(x, h)
    got = run(
        "gru", x=x, initial_h=h[0], weight_ih=ordered(gru.weight_ih_l0, (r, n, u), 3),
        weight_hh=ordered(gru.weight_hh_l0, (r, n, u), 3), bias=ordered(gru.bias_hh_l0, (r, n, u), 3),
        input_bias=ordered(gru.bias_ih_l0, (r, n, u), 3), reset_after=True, output_sequence=True,
    )  # fmt: skip
    for ours, theirs in zip(got, (steps, last_h[0]), strict=True):
        torch.testing.assert_close(ours, theirs.detach(), rtol=0, atol=1e-6)


def test_lookup_tables_of_the_specification():
    indices = t([2, 3, 3, 0, 1, 0, 3, 0, 2, 1, 0, 3], torch.uint8).reshape(6, 2)
    lut = t([1.0, 5.0, 9.0, 13.0, 2.0, 10.0, 18.0, 26.0]).reshape(2, 1, 4, 1)
    expected = [[9, 13], [13, 1], [5, 1], [26, 2], [18, 10], [2, 26]]
    assert run("constexpr_lut_to_dense", indices=indices, lut=lut).tolist() == expected
    packed = t([0b11_00_01_10, 0b01], torch.uint8)  # 2, 1, 0, 3, 1: the least significant bits first
    old = run("constexpr_lut_to_dense", "CoreML6", indices=packed, lut=t([10.0, 11.0, 12.0, 13.0]), shape=[5])
    assert old.tolist() == [12, 11, 10, 13, 11]


def test_a_loop_and_a_branch_run():
    from coreproof.runtime import load

    @mb.program(input_specs=[mb.TensorSpec(shape=(1,))], opset_version=ct.target.iOS17)
    def program(x):
        def again(value, count):
            return mb.less(x=mb.reduce_sum(x=value), y=100.0)

        def body(value, count):
            return mb.mul(x=value, y=2.0), mb.add(x=count, y=1.0)

        doubled, count = mb.while_loop(_cond=again, _body=body, loop_vars=(x, mb.identity(x=np.float32([0.0]))))
        return mb.cond(
            pred=mb.greater(x=mb.reduce_sum(x=count), y=3.0),
            _true_fn=lambda: mb.add(x=doubled, y=0.5),
            _false_fn=lambda: mb.identity(x=doubled),
        )

    model = load(program)
    (long,) = model.predict({"x": np.float32([3.0])}).values()  # 3, 6, 12, 24, 48, 96, 192: six times
    assert long.tolist() == [192.5]
    (short,) = model.predict({"x": np.float32([60.0])}).values()
    assert short.tolist() == [120.0]


def test_sizes_beyond_memory_are_refused():
    from coreproof.errors import ModelError

    for op, operands in {
        "fill": {"shape": [2**20, 2**20, 2**10]},
        "tile": {"x": t([1.0]), "reps": [2**50]},
        "range_1d": {"end": t(1e15), "start": t(0.0), "step": t(1.0)},
        "one_hot": {"indices": t([0], torch.int32), "one_hot_vector_size": 2**50},
        "pad": {"x": t([1.0]), "pad": [0, 2**50]},
        "resize_bilinear": {"x": torch.zeros(1, 1, 1), "target_size_height": 2**30, "target_size_width": 2**30},
    }.items():
        with pytest.raises(ModelError, match="GiB"):
            run(op, **operands)
