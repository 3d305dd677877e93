"""Ops that rearrange values, against numpy and torch."""

import numpy as np
import pytest
import torch
from op_run import run

from coreproof.errors import ModelError


def block_of(x, n, c, h, w):
    return float(x[n, c, h, w])


def test_depth_to_space_takes_the_block_position_from_the_slow_part_of_the_channels():
    x = torch.arange(2 * 12 * 2 * 3.0).reshape(2, 12, 2, 3)
    got = run("depth_to_space", x=x, block_size=2)
    assert got.shape == (2, 3, 4, 6)
    for n, c, h, w in np.ndindex(2, 3, 4, 6):
        source = ((h % 2) * 2 + w % 2) * 3 + c
        assert block_of(got, n, c, h, w) == block_of(x, n, source, h // 2, w // 2)
    assert torch.equal(run("space_to_depth", x=got, block_size=2), x)
    assert not torch.equal(got, torch.nn.functional.pixel_shuffle(x, 2))  # where the position is the fast part


def test_pixel_shuffle_is_torchs():
    x = torch.arange(2 * 8 * 2 * 3.0).reshape(2, 8, 2, 3)
    got = run("pixel_shuffle", x=x, upscale_factor=2)
    assert torch.equal(got, torch.nn.functional.pixel_shuffle(x, 2))
    assert torch.equal(run("pixel_unshuffle", x=got, downscale_factor=2), x)


def test_space_to_batch_and_back():
    x = torch.arange(1.0, 2 * 3 * 3 * 4 + 1).reshape(2, 3, 3, 4)
    got = run("space_to_batch", x=x, block_shape=[2, 3], paddings=torch.tensor([[1, 0], [0, 2]]))
    padded = np.pad(x.numpy(), [(0, 0), (0, 0), (1, 0), (0, 2)])
    assert got.shape == (12, 3, 2, 2)
    for batch, c, h, w in np.ndindex(*got.shape):
        block, n = divmod(batch, 2)
        assert block_of(got, batch, c, h, w) == padded[n, c, h * 2 + block // 3, w * 3 + block % 3]
    back = run("batch_to_space", x=got, block_shape=[2, 3], crops=torch.tensor([[1, 0], [0, 2]]))
    assert torch.equal(back, x)
    with pytest.raises(RuntimeError):
        run("batch_to_space", x=got, block_shape=[2, 3], crops=torch.tensor([[9, 0], [0, 0]]))
    with pytest.raises(ModelError, match="GiB"):
        run("space_to_batch", x=x, block_shape=[1, 1], paddings=torch.tensor([[0, 2**40], [0, 0]]))


def test_axes_of_size_one():
    x = torch.zeros(1, 3, 1)
    assert run("expand_dims", x=x, axes=[-1, 0]).shape == (1, 1, 3, 1, 1)
    assert run("expand_dims", x=torch.tensor(1.0), axes=[0]).shape == (1,)
    assert run("squeeze", x=x).shape == (3,)
    assert run("squeeze", x=x, axes=[-1]).shape == (1, 3)
    assert run("squeeze", x=x, axes=[0, 1]).shape == (3, 1)  # as torch: an axis of another size stays
    for op in ("squeeze", "expand_dims"):
        with pytest.raises(ValueError, match="axis 7"):
            run(op, x=x, axes=[7])


@pytest.mark.parametrize(
    "opset, have, want, expected",
    [
        ("CoreML5", (2, 3, 4), [0, -1], None),
        ("CoreML5", (2, 3, 4), [0, -1, 2], (2, 6, 2)),
        ("CoreML7", (2, 50), [1, 0, -1, 0], (1, 1, 2, 50)),
        ("CoreML7", (2, 3, 4), [-1, 0], (6, 4)),
        ("CoreML7", (4,), [0, 0, 0], (1, 1, 4)),
        ("CoreML5", (0, 3), [0, 0], (0, 3)),
        ("CoreML7", (0, 3), [0], (0,)),
        ("CoreML5", (6,), [-1, -1], None),
        ("CoreML5", (), [1, 1], (1, 1)),
    ],
)
def test_reshape_by_version(opset, have, want, expected):
    if expected is None:
        with pytest.raises((ValueError, RuntimeError)):
            run("reshape", opset, x=torch.zeros(have), shape=want)
    else:
        assert run("reshape", opset, x=torch.zeros(have), shape=want).shape == expected


def test_reshape_like_joins_parts_of_shapes():
    refs = [torch.zeros(2, 3, 4), torch.zeros(1, 5, 6)]
    begins, ends = [torch.tensor(0), torch.tensor(-2)], [torch.tensor(2), torch.tensor(0)]
    masks = [torch.tensor(False), torch.tensor(True)]
    x = torch.arange(180)
    got = run("reshape_like", x=x, ref_tensors=refs, begins=begins, ends=ends, end_masks=masks)
    assert got.shape == (2, 3, 5, 6) and torch.equal(got.reshape(-1), x)


def test_reversed_axes_and_sequences():
    x = np.arange(12).reshape(2, 2, 3)
    assert run("reverse", x=torch.from_numpy(x)).tolist() == np.flip(x).tolist()
    assert run("reverse", x=torch.from_numpy(x), axes=[-1]).tolist() == np.flip(x, -1).tolist()
    sequence = torch.arange(8).reshape(2, 4)
    got = run("reverse_sequence", x=sequence, lengths=torch.tensor([3, 0]), seq_axis=1, batch_axis=0)
    assert got.tolist() == [[2, 1, 0, 3], [4, 5, 6, 7]]
    got = run("reverse_sequence", x=sequence.T, lengths=torch.tensor([1, 4]), seq_axis=0, batch_axis=1)
    assert got.T.tolist() == [[0, 1, 2, 3], [7, 6, 5, 4]]
    assert sequence.tolist() == [[0, 1, 2, 3], [4, 5, 6, 7]]
    for lengths in ([5, 0], [-1, 0]):
        with pytest.raises(ValueError, match="lengths"):
            run("reverse_sequence", x=sequence, lengths=torch.tensor(lengths), seq_axis=1)


def slices(generator, shape):
    """Random operands of slice_by_index, and the same as a numpy index."""
    rank = len(shape)
    begin, end = generator.integers(-6, 7, (2, rank)).tolist()
    stride = generator.choice([-3, -2, -1, 1, 2, 3], rank).tolist()
    masks = {name: (generator.random(rank) < 0.3).tolist() for name in ("begin_mask", "end_mask", "squeeze_mask")}
    index = []
    for axis, size in enumerate(shape):
        first = None if masks["begin_mask"][axis] else begin[axis]
        if masks["squeeze_mask"][axis]:
            begin[axis] = int(generator.integers(-size, size))
            index.append(0 if masks["begin_mask"][axis] else begin[axis])
        else:
            index.append(slice(first, None if masks["end_mask"][axis] else end[axis], stride[axis]))
    return {"begin": begin, "end": end, "stride": stride, **masks}, tuple(index)


def test_slices_and_their_updates_are_numpys():
    generator = np.random.default_rng(0)
    for _ in range(300):
        shape = tuple(generator.integers(1, 5, generator.integers(1, 4)).tolist())
        operands, index = slices(generator, shape)
        x = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
        assert run("slice_by_index", x=torch.from_numpy(x), **operands).tolist() == x[index].tolist(), (shape, operands)
        update = -1 - np.arange(x[index].size, dtype=np.float32).reshape(x[index].shape)
        expected = x.copy()
        expected[index] = update
        given = torch.from_numpy(x)
        got = run("slice_update", x=given, update=torch.as_tensor(update), **operands)
        assert got.tolist() == expected.tolist(), (shape, operands)
        assert given.tolist() == x.tolist()  # the operand is not changed


def test_an_update_of_another_shape_is_refused():
    operands = {"x": torch.zeros(4, 3), "begin": [0, 0], "end": [2, 3]}
    for shape in ((3, 2), (1, 3), (6,)):
        with pytest.raises(ValueError, match=r"expected \[2, 3\]"):
            run("slice_update", update=torch.zeros(shape), **operands)
    # An expanded x shares its memory between rows: only the rows of the slice may change.
    got = run("slice_update", x=torch.zeros(1, 3).expand(4, 3), update=torch.ones(2, 3), begin=[0, 0], end=[2, 3])
    assert got.sum(1).tolist() == [3, 3, 0, 0]


def test_slice_by_size():
    x = np.arange(12).reshape(3, 4)
    got = run("slice_by_size", x=torch.from_numpy(x), begin=[-2, 1], size=[-1, 2])
    assert got.tolist() == x[1:, 1:3].tolist()
    assert run("slice_by_size", x=torch.from_numpy(x), begin=[0, 0], size=[0, 1]).shape == (0, 1)
    with pytest.raises(ValueError, match="reach beyond"):
        run("slice_by_size", x=torch.from_numpy(x), begin=[2, 0], size=[2, 1])


def test_sliding_windows():
    x = torch.arange(10).reshape(2, 5)
    got = run("sliding_windows", x=x, axis=-1, size=3, stride=2)
    assert got.tolist() == [[[0, 1, 2], [2, 3, 4]], [[5, 6, 7], [7, 8, 9]]]
    got = run("sliding_windows", x=x, axis=0, size=1)
    assert got.shape == (2, 1, 5)
    with pytest.raises(ModelError, match="GiB"):  # a view of few bytes stands for very many
        run("sliding_windows", x=torch.zeros(1).expand(2**24), axis=0, size=2**23)


def test_transpose():
    x = np.arange(24).reshape(2, 3, 4)
    assert run("transpose", x=torch.from_numpy(x), perm=[-1, 0, 1]).tolist() == x.transpose(2, 0, 1).tolist()
