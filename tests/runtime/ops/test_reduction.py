"""Reductions: axes, empty lists of axes, integers, NaN, ties."""

import numpy as np
import pytest
import torch
from op_run import run

RANDOM = np.random.default_rng(0)
NUMPYS = {
    "reduce_l1_norm": lambda x, **how: np.abs(x).sum(**how),
    "reduce_l2_norm": lambda x, **how: np.sqrt((x * x).sum(**how)),
    "reduce_log_sum": lambda x, **how: np.log(x.sum(**how)),
    "reduce_log_sum_exp": lambda x, **how: np.log(np.exp(x).sum(**how)),
    "reduce_max": lambda x, **how: x.max(**how),
    "reduce_mean": lambda x, **how: x.mean(**how),
    "reduce_min": lambda x, **how: x.min(**how),
    "reduce_prod": lambda x, **how: x.prod(**how),
    "reduce_sum": lambda x, **how: x.sum(**how),
    "reduce_sum_square": lambda x, **how: (x * x).sum(**how),
}


@pytest.mark.parametrize("op", NUMPYS)
@pytest.mark.parametrize("axes", [None, [0], [-1], [1, 2], [-1, 0], [2, 0, 1], []])
@pytest.mark.parametrize("keep", [False, True])
def test_reductions_are_numpys(op, axes, keep):
    x = RANDOM.uniform(-2, 2, (2, 3, 4)) if op != "reduce_log_sum" else RANDOM.uniform(0.5, 2, (2, 3, 4))
    how = {"axis": None if axes is None else tuple(axes), "keepdims": keep}
    expected = np.asarray(NUMPYS[op](x, **how))
    operands = {} if axes is None else {"axes": torch.tensor(axes, dtype=torch.int32)}
    got = run(op, x=torch.from_numpy(x), keep_dims=keep, **operands)
    np.testing.assert_allclose(got.numpy(), expected, rtol=1e-12, atol=1e-12, strict=True)


@pytest.mark.parametrize(
    "op, expected",
    [
        ("reduce_sum", [-3, 7]), ("reduce_mean", [-1, 2]), ("reduce_prod", [4, 10]), ("reduce_l1_norm", [7, 7]),
        ("reduce_l2_norm", [4, 5]), ("reduce_sum_square", [21, 29]), ("reduce_max", [2, 5]), ("reduce_min", [-4, 2]),
    ],
)  # fmt: skip
def test_integer_results_are_cut_towards_zero(op, expected):
    x = torch.tensor([[-1, 2, -4], [5, 2, 0]] if op != "reduce_prod" else [[-1, 2, -2], [5, 2, 1]], dtype=torch.int32)
    if op == "reduce_mean":
        x = torch.tensor([[-1, 0, -4], [5, 2, 1]], dtype=torch.int32)  # -5 / 3 and 8 / 3
    if op == "reduce_min":
        x = torch.tensor([[-1, 2, -4], [5, 2, 3]], dtype=torch.int32)
    assert run(op, x=x, axes=[1]).tolist() == expected


def test_large_integers_are_summed_exactly():
    x = torch.tensor([2**24 + 1, 2**24, 3], dtype=torch.int32)
    assert run("reduce_sum", x=x).item() == 2**25 + 4
    assert run("reduce_max", x=x).item() == 2**24 + 1


def test_log_sum_exp_does_not_overflow():
    got = run("reduce_log_sum_exp", x=[[1000.0, 1000.0], [-1000.0, -1000.0]], axes=[1])
    torch.testing.assert_close(got, torch.tensor([1000.0, -1000.0]) + np.log(2).astype(np.float32).item())


def test_zero_dimensions():
    assert run("reduce_sum", x=torch.tensor(3.0)).item() == 3 and run("reduce_max", x=torch.tensor(3.0)).shape == ()


@pytest.mark.parametrize("op, function", [("reduce_argmax", np.argmax), ("reduce_argmin", np.argmin)])
@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("keep", [False, True])
def test_positions_are_those_of_the_first_and_of_nan(op, function, axis, keep):
    x = RANDOM.integers(-3, 4, (4, 5, 3)).astype(np.float32)  # many ties
    x[1, 2, 0] = np.nan
    got = run(op, x=torch.from_numpy(x), axis=axis, keep_dims=keep)
    assert got.tolist() == function(x, axis=axis, keepdims=keep).tolist()
    whole = torch.from_numpy(np.nan_to_num(x).astype(np.int32))
    assert run(op, x=whole, output_dtype="uint16").tolist() == function(whole.numpy(), axis=-1).tolist()
