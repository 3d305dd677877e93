"""Gathers and scatters, against loops: ranks, batches, repeats, negative and wrong indices, empty tensors."""

import itertools

import numpy as np
import pytest
import torch
from op_run import run

RANDOM = np.random.default_rng(0)


def indices(bound, shape, kind=np.int32):
    return torch.from_numpy(np.asarray(RANDOM.integers(0, bound, shape), kind))


@pytest.mark.parametrize("opset", ["CoreML5", "CoreML6", "CoreML7", "CoreML8"])
@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("shape", [(), (4,), (2, 3), (0,)])
def test_gather_is_numpys_take(opset, axis, shape):
    x = torch.arange(60.0).reshape(3, 4, 5)
    where = indices(x.shape[axis], shape)
    expected = np.take(x.numpy(), where.numpy(), axis)
    got = run("gather", opset, x=x, indices=where, axis=axis)
    assert got.tolist() == expected.tolist() and got.shape == expected.shape


@pytest.mark.parametrize("where", [2, -1])
def test_gather_of_one_value_has_no_dimensions(where):
    got = run("gather", x=torch.tensor([3.0, 4.0, 5.0]), indices=torch.tensor(where), axis=0)
    assert got.shape == () and got.item() == 5.0


@pytest.mark.parametrize("batch, axis", [(1, 1), (1, 2), (1, -1), (2, 2), (-1, 3), (-2, 1)])
def test_gather_by_entry_of_the_batch(batch, axis):
    x, where = torch.arange(240.0).reshape(2, 3, 8, 5), indices(3, (2, 3, 4))
    shared, axis = batch % 3, axis % 4
    rows = [
        np.take(x[e].numpy(), where[e].numpy(), axis - shared)
        for e in itertools.product(*map(range, where.shape[:shared]))
    ]
    expected = np.stack(rows).reshape(*where.shape[:shared], *rows[0].shape)
    assert run("gather", x=x, indices=where, axis=axis, batch_dims=batch).tolist() == expected.tolist()


def test_empty_batches_and_wrong_ones():
    x = torch.zeros(0, 4, 5)
    assert run("gather", x=x, indices=indices(4, (0, 3)), axis=1, batch_dims=1).shape == (0, 3, 5)
    assert run("gather_nd", x=x, indices=indices(4, (0, 3, 1)), batch_dims=1).shape == (0, 3, 5)
    with pytest.raises(ValueError, match="differ"):
        run("gather", x=torch.zeros(2, 4), indices=indices(4, (3, 1)), axis=1, batch_dims=1)
    with pytest.raises(ValueError, match="batch dimensions"):
        run("gather", x=torch.zeros(2, 4), indices=indices(2, (2, 1)), axis=0, batch_dims=1)


@pytest.mark.parametrize("depth, batch", [(1, 0), (2, 0), (3, 0), (1, 1), (2, 1), (1, 2)])
def test_gather_nd_follows_its_rows(depth, batch):
    x = torch.arange(24.0).reshape(2, 3, 4)
    lead = (2, 3)[:batch] + (5,)
    where = indices(2, (*lead, depth))
    expected = np.empty(lead + x.shape[batch + depth :])
    for place in itertools.product(*map(range, lead)):
        expected[place] = x[(*place[:batch], *where[place].tolist())]
    assert run("gather_nd", x=x, indices=where, batch_dims=batch).tolist() == expected.tolist()


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_along_an_axis(axis):
    x = torch.arange(12.0).reshape(3, 4)
    shape = [3, 4]
    shape[axis] = 6
    where = indices(3, shape)
    assert (
        run("gather_along_axis", x=x, indices=where, axis=axis).tolist()
        == np.take_along_axis(x.numpy(), where.numpy(), axis).tolist()
    )
    order = torch.argsort(torch.rand(x.shape, generator=torch.Generator().manual_seed(0)), axis)
    expected = x.numpy().copy()
    np.put_along_axis(expected, order.numpy(), -x.numpy(), axis)
    got = run("scatter_along_axis", data=x, indices=order.int(), updates=-x, axis=axis, mode="update")
    assert got.tolist() == expected.tolist()


MODES = {
    "add": lambda a, b: a + b, "sub": lambda a, b: a - b, "mul": lambda a, b: a * b, "max": max, "min": min,
    "div": lambda a, b: int(a / b), "update": lambda a, b: b,
}  # fmt: skip


@pytest.mark.parametrize("mode", MODES)
def test_integer_scatters_follow_the_order_of_the_updates(mode):
    data = torch.tensor([[100, -7, 3], [50, 9, -8]], dtype=torch.int32)
    updates = torch.tensor([[3, -2, 5], [-4, 2, 3], [2, 2, -2]], dtype=torch.int32)
    where = torch.tensor([1, 0, 1], dtype=torch.int32)
    expected = data.tolist()
    for row, update in zip(where.tolist(), updates.tolist(), strict=True):
        expected[row] = [MODES[mode](old, new) for old, new in zip(expected[row], update, strict=True)]
    operands = {"data": data, "updates": updates, "mode": mode}
    assert run("scatter", indices=where, axis=0, **operands).tolist() == expected
    assert run("scatter_nd", indices=where[:, None], **operands).tolist() == expected
    along = where[:, None].expand(3, 3)
    assert run("scatter_along_axis", indices=along, axis=0, **operands).tolist() == expected
    turned = run("scatter", indices=where, axis=-1, data=data.T, updates=updates.T, mode=mode)
    assert turned.T.tolist() == expected


def test_scatter_takes_indices_of_any_rank_and_none():
    data = torch.zeros(2, 3)
    got = run("scatter", data=data, indices=torch.tensor([[0, 2], [1, 0]]), updates=torch.ones(2, 2, 2), axis=1)
    assert got.tolist() == [[2, 1, 1]] * 2
    assert run("scatter", data=data, indices=torch.tensor(1), updates=torch.ones(2), axis=1)[:, 1].tolist() == [1, 1]
    none = run("scatter", data=data, indices=indices(2, (0,)), updates=torch.ones(2, 0), axis=1)
    assert none.tolist() == data.tolist()
    assert run("scatter", data=torch.zeros(2, 0), indices=indices(2, (3,)), updates=torch.ones(3, 0)).shape == (2, 0)


def test_scatters_of_another_shape_and_mode_are_refused():
    data, where = torch.zeros(2, 3), torch.tensor([0, 1])
    with pytest.raises(ValueError, match="updates have shape"):
        run("scatter", data=data, indices=where, updates=torch.ones(3, 2), axis=0)
    with pytest.raises(ValueError, match="updates have shape"):
        run("scatter_nd", data=data, indices=where[:, None], updates=torch.ones(3, 2))
    with pytest.raises(ValueError, match="unknown mode"):
        run("scatter", data=data, indices=where, updates=torch.ones(2, 3), mode="mean")


@pytest.mark.parametrize("op", ["gather", "gather_along_axis", "gather_nd"])
def test_validated_indices_are_not_negative(op):
    x, where = torch.tensor([1.0, 2.0, 3.0]), torch.tensor([[-1]]) if op == "gather_nd" else torch.tensor([-1])
    for opset in ("CoreML5", "CoreML7"):
        assert run(op, opset, x=x, indices=where).tolist() == [3]
    with pytest.raises(ValueError, match="outside the size 3"):
        run(op, x=x, indices=where, validate_indices=True)
    with pytest.raises(ValueError, match="outside the size 3"):
        run(op, x=x, indices=where + 4)
    scattered = {"data": x, "indices": where, "updates": torch.ones(1), "validate_indices": True}
    with pytest.raises(ValueError, match="outside the size 3"):
        run(op.replace("gather", "scatter"), **scattered)
