"""Convolutions in each number of dimensions, kind of padding and group, against torch."""

import pytest
import torch
import torch.nn.functional as F
from op_run import run

from coreproof.errors import ModelError

CONV = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}
TRANSPOSED = {1: F.conv_transpose1d, 2: F.conv_transpose2d, 3: F.conv_transpose3d}


def draw(*shape, seed=0):
    """Small whole numbers, so that sums are exact in any order."""
    return torch.randint(-4, 5, shape, generator=torch.Generator().manual_seed(seed)).float()


@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize("groups", [1, 2])
def test_custom_padding_strides_dilations_groups(rank, groups):
    x, weight, bias = draw(2, 4, *(7, 8, 9)[:rank]), draw(6, 4 // groups, *(3, 2, 3)[:rank]), draw(6)
    pad, strides, dilations = [1, 2, 0, 1, 2, 2][: 2 * rank], [2, 1, 3][:rank], [1, 2, 1][:rank]
    backwards = [amount for axis in reversed(range(rank)) for amount in pad[2 * axis : 2 * axis + 2]]
    expected = CONV[rank](F.pad(x, backwards), weight, bias, strides, 0, dilations, groups)
    got = run(
        "conv", x=x, weight=weight, bias=bias, strides=strides, pad_type="custom", pad=pad, dilations=dilations,
        groups=groups,
    )  # fmt: skip
    assert torch.equal(got, expected)


@pytest.mark.parametrize("size, kernel, stride, dilation", [(7, 4, 2, 1), (8, 3, 3, 1), (9, 2, 1, 3), (5, 1, 2, 1)])
@pytest.mark.parametrize("pad_type", ["same", "same_lower", "SAME"])
def test_same_padding_makes_the_size_over_the_stride(size, kernel, stride, dilation, pad_type):
    x, weight = draw(1, 1, size), draw(1, 1, kernel, seed=1)
    count = -(-size // stride)
    total = max(0, (count - 1) * stride + (kernel - 1) * dilation + 1 - size)
    before = total - total // 2 if pad_type == "same_lower" else total // 2
    expected = F.conv1d(F.pad(x, (before, total - before)), weight, None, stride, 0, dilation)
    got = run("conv", x=x, weight=weight, pad_type=pad_type, strides=[stride], dilations=[dilation])
    assert torch.equal(got, expected) and got.shape[-1] == count


@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize("groups", [1, 2])
def test_transposed_with_torchs_padding_and_output_padding(rank, groups):
    x, weight, bias = draw(2, 4, *(3, 4, 2)[:rank]), draw(4, 3, *(2, 3, 2)[:rank]), draw(3 * groups) + 10
    # A stride above the kernel's reach: what output padding adds is touched by no kernel and holds the bias.
    expected = TRANSPOSED[rank](x, weight, bias, 4, 1, 3, groups)
    shape = list(expected.shape)
    got = run(
        "conv_transpose", x=x, weight=weight, bias=bias, strides=[4] * rank, pad=[1] * 2 * rank, pad_type="custom",
        output_shape=shape, groups=groups,
    )  # fmt: skip
    assert torch.equal(got, expected)
    shorter = run(
        "conv_transpose", x=x, weight=weight, bias=bias, strides=[4] * rank, pad=[1, -2] * rank, pad_type="custom",
        groups=groups,
    )  # fmt: skip
    assert torch.equal(shorter, expected)


@pytest.mark.parametrize("kernel, stride, before, after", [(4, 2, 1, 1), (3, 2, 0, 1), (2, 3, 0, -1), (5, 1, 2, 2)])
def test_transposed_same_is_the_size_times_the_stride(kernel, stride, before, after):
    x, weight = draw(1, 2, 5), draw(2, 3, kernel, seed=1)
    whole = F.conv_transpose1d(x, weight, None, stride)
    got = run("conv_transpose", x=x, weight=weight, strides=[stride], pad_type="same")
    assert torch.equal(got, F.pad(whole, (-before, -after))) and got.shape[-1] == 5 * stride


def test_transposed_valid_and_dilated():
    x, weight = draw(1, 2, 3, 4), draw(2, 1, 2, 3)
    expected = F.conv_transpose2d(x, weight, None, 2, dilation=(1, 2))
    assert torch.equal(run("conv_transpose", x=x, weight=weight, strides=[2, 2], dilations=[1, 2]), expected)


@pytest.mark.parametrize("each", [False, True])
def test_quantised_weights(each):
    x, codes = draw(1, 2, 5), torch.tensor([0, 255, 7, 128, 1, 2, 3, 4], dtype=torch.uint8).reshape(2, 2, 2)
    scale, shift = (
        (torch.tensor([0.5, 2.0]), torch.tensor([-3.0, 1.0])) if each else (torch.tensor(0.5), torch.tensor(-3.0))
    )
    column = (-1, 1, 1) if each else ()
    expected = F.conv1d(x, codes.float() * scale.view(column) + shift.view(column))
    got = run("conv_quantized", x=x, weight=codes, quantization_type="linear", quant_scale=scale, quant_bias=shift)
    assert torch.equal(got, expected)
    with pytest.raises(ValueError, match="expected linear"):
        run("conv_quantized", x=x, weight=codes, quantization_type="lut", quant_scale=scale, quant_bias=shift)


def test_what_does_not_fit_is_refused():
    with pytest.raises(ValueError, match="rank 3 to 5"):
        run("conv", x=draw(1, 2), weight=draw(1, 2))
    with pytest.raises(ValueError, match="pad has 3"):
        run("conv", x=draw(1, 1, 3), weight=draw(1, 1, 2), pad_type="custom", pad=[1, 1, 1])
    for op, pad_type in (("conv", "full"), ("conv_transpose", "same_lower")):
        with pytest.raises(ValueError, match="unknown pad_type"):
            run(op, x=draw(1, 1, 3), weight=draw(1, 1, 2), pad_type=pad_type)
    wide = torch.zeros(1, 1, 1)
    with pytest.raises(ModelError, match="GiB"):
        run("conv", x=wide.expand(1, 1, 2**25), weight=wide.expand(2**20, 1, 1))
    with pytest.raises(ModelError, match="GiB"):
        run("conv_transpose", x=wide, weight=wide, pad_type="custom", pad=[0, -(2**50)])
