"""Matrix products: ranks, integers beyond float32, broadcasting."""

import numpy as np
import pytest
import torch
from op_run import run

from coreproof.errors import ModelError

GENERATOR = np.random.default_rng(0)


@pytest.mark.parametrize("kind", [np.float64, np.int32])
@pytest.mark.parametrize(
    "x, y, tx, ty",
    [
        ((3, 4), (4, 2), False, False), ((4, 3), (4, 2), True, False), ((2, 3, 4), (5, 4), False, True),
        ((4,), (4, 2), False, False), ((3, 4), (4,), False, False), ((4,), (4,), True, True),
        ((4,), (2, 4), True, True), ((5, 1, 3, 4), (2, 4, 6), False, False), ((0, 4), (4, 2), False, False),
        ((3, 0), (0, 2), False, False),
    ],
)  # fmt: skip
def test_matmul_is_numpys(kind, x, y, tx, ty):
    x, y = (GENERATOR.integers(-9, 9, shape).astype(kind) for shape in (x, y))
    expected = np.matmul(x.swapaxes(-1, -2) if tx and x.ndim > 1 else x, y.swapaxes(-1, -2) if ty and y.ndim > 1 else y)
    got = run("matmul", x=torch.from_numpy(x), y=torch.from_numpy(y), transpose_x=tx, transpose_y=ty)
    assert got.tolist() == expected.tolist() and list(got.shape) == list(np.shape(expected))


def test_integer_products_are_exact():
    x = torch.tensor([[4097, 1]], dtype=torch.int32)
    assert run("matmul", x=x, y=x.T).tolist() == [[4097**2 + 1]]  # odd, above 2 ** 24
    assert run("linear", x=x, weight=x, bias=torch.tensor([1], dtype=torch.int32)).tolist() == [[4097**2 + 2]]


def test_linear_takes_its_weight_transposed():
    weight, bias = torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]), torch.tensor([0.5, 0.0, -0.5])
    assert run("linear", x=[[1.0, 10.0]], weight=weight, bias=bias).tolist() == [[21.5, 43, 64.5]]
    assert run("linear", x=[1.0, 10.0], weight=weight).tolist() == [21, 43, 65]


def test_a_float_operand_makes_a_mixed_product_a_float_one():
    got = run("matmul", x=[[0.5, 0.25]], y=torch.tensor([[2], [4]], dtype=torch.int32))
    assert got.tolist() == [[2.0]] and got.dtype == torch.float32


@pytest.mark.parametrize(
    "equation, x, y",
    [
        ("nchw,nwhu->nchu", (2, 3, 4, 5), (2, 5, 4, 6)),
        ("nchw,nwhu->nchu", (1, 3, 4, 5), (2, 5, 1, 6)),
        ("chw, whr -> chr", (3, 1, 5), (5, 4, 6)),
    ],
)
def test_einsum_broadcasts_its_batch(equation, x, y):
    x, y = (GENERATOR.integers(-9, 9, shape).astype(np.float32) for shape in (x, y))
    moved = [np.moveaxis(x, -2, -3), np.moveaxis(y, -2, -3)]  # [.., h, c, w] and [.., h, w, u]
    expected = np.moveaxis(np.matmul(*moved), -3, -2)
    got = run("einsum", values=[torch.from_numpy(x), torch.from_numpy(y)], equation=equation)
    assert got.tolist() == expected.tolist()


def test_equations_that_are_none_are_refused():
    for equation in ("ij,jk", "ij,jk->ik->", "ij,j1->i", "ijk,jk->i"):
        with pytest.raises(ValueError, match="equation"):
            run("einsum", values=[torch.ones(2, 2), torch.ones(2, 2)], equation=equation)


def test_products_beyond_memory_are_refused():
    tall = torch.zeros(1, 1).expand(2**25, 1)
    for op, operands in {
        "matmul": {"x": tall, "y": tall.T},
        "linear": {"x": tall, "weight": tall},
        "einsum": {"values": [tall, tall], "equation": "ij,kj->ik"},
    }.items():
        with pytest.raises(ModelError, match="GiB"):
            run(op, **operands)
