"""Ops that make, join, cut, order and pad tensors, against numpy and torch."""

import numpy as np
import pytest
import torch
from op_run import run

X = torch.tensor([[3.0, -1.0, 3.0], [0.5, 7.0, -2.0]])


def test_equal_values_keep_their_order_in_both_directions():
    x = torch.tensor([2, 1, 2, 1, 2], dtype=torch.int32)
    assert run("argsort", x=x).tolist() == [0, 2, 4, 1, 3]
    assert run("argsort", x=x, ascending=True).tolist() == [1, 3, 0, 2, 4]
    values, indices = run("topk", x=x, k=3, ascending=True)
    assert (values.tolist(), indices.tolist()) == ([1, 1, 2], [1, 3, 0])


@pytest.mark.parametrize("lower, upper", [(0, 0), (1, -1), (-1, 0), (-1, -1), (0, 5), (2, 1)])
def test_band_part_keeps_the_band_and_no_more(lower, upper):
    x = np.arange(1.0, 25.0).reshape(2, 3, 4)
    x[0, 0, 3] = np.inf  # outside of a narrow band it becomes 0, not inf * 0
    rows, columns = np.indices((3, 4))
    inside = ((lower < 0) | (rows - columns <= lower)) & ((upper < 0) | (columns - rows <= upper))
    got = run("band_part", x=torch.from_numpy(x), lower=lower, upper=upper)
    assert got.tolist() == np.where(inside, x, 0).tolist()


def test_concat_in_turn_of_scalars_and_with_negative_axis():
    a, b = torch.arange(6).reshape(2, 3), torch.arange(10, 16).reshape(2, 3)
    assert run("concat", values=[a, b], axis=-1).tolist() == [[0, 1, 2, 10, 11, 12], [3, 4, 5, 13, 14, 15]]
    assert run("concat", values=[a, b], axis=-2, interleave=True).tolist() == [a[0].tolist(), b[0].tolist()] + [
        a[1].tolist(),
        b[1].tolist(),
    ]
    scalars = [torch.tensor(4, dtype=torch.int32), torch.tensor(5, dtype=torch.int32)]
    assert run("concat", values=scalars, axis=0).tolist() == [4, 5]


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("exclusive", [False, True])
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("kind", [np.float32, np.int32])
def test_running_sums(axis, exclusive, reverse, kind):
    x = np.array([[1, -2, 4], [8, 16, -32]], kind)
    expected = np.zeros_like(x)
    for position in range(x.shape[axis]):
        summed = range(position + exclusive, x.shape[axis]) if reverse else range(position + 1 - exclusive)
        index = (position, slice(None)) if axis == 0 else (slice(None), position)
        expected[index] = x.take(list(summed), axis).sum(axis)
    got = run("cumsum", x=torch.from_numpy(x), axis=axis, exclusive=exclusive, reverse=reverse)
    assert got.tolist() == expected.tolist()


def test_exclusive_sums_of_infinity_and_of_nothing():
    assert run("cumsum", x=[1.0, float("inf"), 2.0], exclusive=True).tolist() == [0, 1, float("inf")]
    assert run("cumsum", x=torch.zeros(2, 0), axis=1, exclusive=True).shape == (2, 0)


def test_fill_takes_the_type_of_its_value():
    assert run("fill", shape=[2, 1]).tolist() == [[0.0], [0.0]] and run("fill", shape=[1]).dtype == torch.float32
    assert run("fill", shape=[2], value=torch.tensor(7, dtype=torch.int32)).dtype == torch.int32
    got = run("fill_like", ref_tensor=X, value=torch.tensor(True))
    assert got.dtype == torch.bool and got.shape == X.shape and bool(got.all())
    assert run("fill", shape=torch.zeros(0, dtype=torch.int32), value=2.5).tolist() == 2.5


@pytest.mark.parametrize(
    "shape, axis, expected",
    [
        ((3,), -1, (1, 3)),
        ((3,), 1, (3, 1)),
        ((4, 3), -1, (4, 3)),
        ((2, 3, 2), -1, (6, 2)),
        ((5, 5, 2), 0, (1, 50)),
        ((0, 3), 1, (0, 3)),
    ],
)
def test_flatten2d(shape, axis, expected):
    assert run("flatten2d", x=torch.zeros(shape), axis=axis).shape == expected


def test_positions_of_what_is_not_zero():
    assert run("non_zero", x=[[0, 5], [-1, 0]]).tolist() == [[0, 1], [1, 0]]
    assert run("non_zero", x=torch.zeros(2, 2)).shape == (0, 2)


def test_one_hot_places_the_new_axis_and_leaves_out_what_lies_outside():
    indices = torch.tensor([1, 3, 0], dtype=torch.int32)
    rows = [[0, 1, 0], [0, 0, 0], [1, 0, 0]]
    got = run("one_hot", indices=indices, one_hot_vector_size=3)
    assert got.tolist() == rows and got.dtype == torch.int32
    assert run("one_hot", indices=indices, one_hot_vector_size=3, axis=0).tolist() == np.transpose(rows).tolist()
    got = run("one_hot", indices=indices, one_hot_vector_size=3, on_value=2.0, off_value=0.5)
    assert got.tolist() == [[0.5, 2, 0.5], [0.5, 0.5, 0.5], [2, 0.5, 0.5]]


@pytest.mark.parametrize("mode, theirs", [("constant", "constant"), ("reflect", "reflect"), ("replicate", "edge")])
@pytest.mark.parametrize("pad", [[1, 2], [0, 1, 2, 0], [1, 0, 1, 1, 2, 1]])
def test_pad_reaches_any_number_of_last_axes(mode, theirs, pad):
    x = np.arange(24.0).reshape(2, 4, 3)
    pairs = [(0, 0)] * (3 - len(pad) // 2) + list(zip(pad[::2], pad[1::2], strict=True))
    extra = {"constant_values": 1.5} if mode == "constant" else {}
    got = run("pad", x=torch.from_numpy(x), pad=pad, mode=mode, constant_val=1.5)
    assert got.tolist() == np.pad(x, pairs, theirs, **extra).tolist()


def test_pad_refuses_what_the_mode_cannot_do():
    for operands, text in (
        ({"pad": [3, 0], "mode": "reflect"}, "cannot pad axis 1 of size 3"),
        ({"pad": [1]}, r"pad \[1\]"),
        ({"pad": [-1, 0]}, r"pad \[-1, 0\]"),
        ({"pad": [1, 1], "mode": "wrap"}, "unknown mode 'wrap'"),
    ):
        with pytest.raises(ValueError, match=text):
            run("pad", x=X, **operands)
    empty = run("pad", x=torch.zeros(0, 3), pad=[0, 0, 1, 1], mode="reflect")
    assert empty.shape == (0, 5)  # an empty axis may stay as it is
    assert run("pad", x=torch.tensor([True]), pad=[1, 0]).tolist() == [False, True]


@pytest.mark.parametrize(
    "start, end, step, expected",
    [(0, 5, 2, [0, 2, 4]), (5, 0, -2, [5, 3, 1]), (0, 5, -1, []), (2**24, 2**24 + 3, 2, [2**24, 2**24 + 2])],
)
def test_ranges_of_integers(start, end, step, expected):
    start, end, step = (torch.tensor(one, dtype=torch.int32) for one in (start, end, step))
    got = run("range_1d", start=start, end=end, step=step)
    assert got.tolist() == expected and got.dtype == torch.int32


def test_a_range_of_floats_has_as_many_steps_as_its_operands_round_to():
    # In float64 the operands' quotient is 3.00000008, which would make a fourth step.
    assert np.ceil(np.float32(0.3) / np.float32(0.1)) == 3 < float(np.float32(0.3)) / float(np.float32(0.1))
    got = run("range_1d", start=0.0, end=0.3, step=0.1)
    torch.testing.assert_close(got, torch.tensor([0.0, 0.1, 0.2]), rtol=1e-6, atol=0)
    for step in (0.0, float("nan")):
        with pytest.raises(ValueError, match="range from"):
            run("range_1d", start=0.0, end=1.0, step=step)


def test_split_into_equal_and_into_given_parts():
    x = torch.arange(6).reshape(1, 6)
    assert [one.tolist() for one in run("split", x=x, axis=-1, num_splits=3)] == [[[0, 1]], [[2, 3]], [[4, 5]]]
    got = run("split", x=x, axis=1, num_splits=3, split_sizes=[1, 0, 5])
    assert [one.tolist() for one in got] == [[[0]], [[]], [[1, 2, 3, 4, 5]]]
    with pytest.raises(ValueError, match="4 equal parts"):
        run("split", x=x, axis=1, num_splits=4)


def test_small_ones():
    assert run("identity", x=X) is X
    assert run("shape", x=torch.zeros(2, 0, 3)).tolist() == [2, 0, 3]
    assert run("shape", x=torch.tensor(1.0)).tolist() == []
    assert run("stack", values=[X[0], X[1]], axis=-1).tolist() == X.T.tolist()
    assert run("tile", x=X, reps=[2, 3]).tolist() == np.tile(X.numpy(), (2, 3)).tolist()
    with pytest.raises(ValueError, match="reps"):
        run("tile", x=X, reps=[2])


def test_topk_over_the_versions():
    values, indices = run("topk", "CoreML5", x=X, k=2, axis=1)
    assert (values.tolist(), indices.tolist()) == ([[3, 3], [7, 0.5]], [[0, 2], [1, 0]])
    (only,) = run("topk", "CoreML6", x=X, k=1, axis=0, return_indices=False)
    assert only.tolist() == [[3, 7, 3]]
    values, _ = run("topk", "CoreML7", x=X, k=-1, axis=1, output_indices_dtype="uint16")
    assert values.tolist() == [[3, 3, -1], [7, 0.5, -2]]
    with pytest.raises(ValueError, match="k is 4"):
        run("topk", x=X, k=4)
