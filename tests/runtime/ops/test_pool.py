"""Pools, window by window: each kind of padding, ceil mode, padding that counts and that does not."""

import itertools

import pytest
import torch
from op_run import run


def pads(pad_type, size, kernel, stride, pad):
    if pad_type == "custom":
        return pad
    if pad_type == "valid":
        return 0, 0
    total = max(0, (-(-size // stride) - 1) * stride + kernel - size)
    return (total // 2, total - total // 2) if pad_type == "same" else (total - total // 2, total // 2)


def windows(x, kernel, strides, pad_type, pad, ceil):
    """The values and the counted size of each window of [D...], and the result's shape."""
    ranges = []
    for size, k, s, given in zip(x.shape, kernel, strides, pad, strict=True):
        before, after = pads(pad_type, size, k, s, given)
        length = size + before + after
        count = (-(-(length - k) // s) if ceil else (length - k) // s) + 1
        if ceil and (count - 1) * s >= size + before:  # a window that starts beyond the end
            count -= 1
        ranges.append([(i * s - before, min(i * s - before + k, size + after)) for i in range(count)])
    for place in itertools.product(*ranges):
        inside = tuple(slice(max(0, a), min(b, n)) for (a, b), n in zip(place, x.shape, strict=True))
        counted = 1
        for a, b in place:
            counted *= b - a
        yield x[inside], counted
    yield [len(one) for one in ranges], None


SHAPES = {1: (9,), 2: (7, 6), 3: (5, 6, 4)}
CASES = [(r, t, c) for r in SHAPES for t in ("valid", "same", "same_lower", "custom") for c in (False, True)]


@pytest.mark.parametrize("rank, pad_type, ceil", [c for c in CASES if not (c[2] and (c[1][:4] == "same" or c[0] == 3))])
def test_pools(rank, pad_type, ceil):
    generator = torch.Generator().manual_seed(0)
    x = torch.randint(-8, 9, (1, 1, *SHAPES[rank]), generator=generator).double() - 3.5
    kernel, strides = [3, 2, 3][:rank], [2, 3, 2][:rank]
    pad = [(1, 1), (1, 1), (1, 2)][:rank] if ceil or rank == 3 else [(1, 0), (0, 1)][:rank]
    *found, (shape, _) = windows(x[0, 0], kernel, strides, pad_type, pad, ceil)
    given = {"x": x, "kernel_sizes": kernel, "strides": strides, "pad_type": pad_type, "ceil_mode": ceil}
    if pad_type == "custom":
        given["pad"] = [amount for pair in pad for amount in pair]
    expected = {
        "max_pool": [values.max() for values, _ in found],
        "avg_pool": [values.sum() / counted for values, counted in found],
        "l2_pool": [values.square().sum().sqrt() for values, _ in found],
    }
    for op, results in expected.items():
        got = run(op, **given)
        torch.testing.assert_close(got[0, 0], torch.stack(results).reshape(shape), rtol=1e-12, atol=1e-12)
    got = run("avg_pool", exclude_padding_from_average=True, **given)
    expected_mean = torch.stack([values.mean() for values, _ in found]).reshape(shape)
    torch.testing.assert_close(got[0, 0], expected_mean, rtol=1e-12, atol=1e-12)


def test_defaults_and_names_of_the_padding():
    x = torch.tensor([[[1.0, 5.0, -2.0]]])
    assert run("max_pool", x=x, kernel_sizes=[2], pad_type="valid").tolist() == [[[5, 5]]]
    assert run("avg_pool", x=x, kernel_sizes=[2], pad_type="SAME").tolist() == [[[3, 1.5, -1]]]
    with pytest.raises(ValueError, match="unknown pad_type"):
        run("max_pool", x=x, kernel_sizes=[2], pad_type="full")
    with pytest.raises(ValueError, match="rank 3 to 5"):
        run("max_pool", x=x, kernel_sizes=[2, 2], pad_type="valid")


def test_padding_is_below_every_value():
    got = run("max_pool", x=torch.full((1, 1, 2), -7.0), kernel_sizes=[2], pad_type="custom", pad=[1, 1])
    assert got.tolist() == [[[-7, -7, -7]]]
