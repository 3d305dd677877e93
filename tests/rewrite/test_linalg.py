"""Triangular solves and Cholesky factors, by the error bounds of the algorithms (Higham 2002, 8.5 and 10.3).

u = 2^-24 is float32's unit round-off, g(k) = ku/(1 - ku). The products in the bounds are computed in float64.
"""

from __future__ import annotations

import functools

import pytest
import torch
from rewrite.checks import Model, check, ops, untouched
from torch.export import Dim, export

from coreproof.rewrite import rewrite

nan, inf = float("nan"), float("inf")


def g(k: int) -> float:
    u = 2.0**-24
    return k * u / (1 - k * u)


def triangles(*shape: int) -> torch.Tensor:
    """Full matrices whose two triangles are each well conditioned and differ, with a diagonal that is not 1."""
    n = shape[-1]
    signs = torch.tensor([2.0, -3.0, 1.5])[torch.arange(n) % 3]
    return torch.randn(*shape) / n**0.5 + torch.diag_embed(signs.expand(shape[:-1]) * 2)


def close_solutions(read, actual, expected) -> None:
    """Both solve within the bound, so they differ by at most twice it; `read` gives T and x's side of each output."""
    for call_actual, call_expected, matrices in zip(actual, expected, read, strict=True):
        for x, y, (triangle, left) in zip(call_actual, call_expected, matrices, strict=True):
            assert x.shape == y.shape and x.dtype == y.dtype
            t, exact = triangle.double(), y.double()
            bound = t.inverse().abs() @ t.abs()
            n = t.shape[-1]
            bound = bound @ exact.abs() if left else exact.abs() @ (t.abs() @ t.inverse().abs())
            assert ((x.double() - exact).abs() <= 2.5 * g(n) * bound).all()


@pytest.mark.parametrize("n", [1, 2, 4])
def test_solves_of_every_kind(n):
    kinds = [(upper, left, unit) for upper in (False, True) for left in (False, True) for unit in (False, True)]

    def run(self, a, b, c):
        solve = torch.linalg.solve_triangular
        return tuple(
            solve(a, b if left else c, upper=upper, left=left, unitriangular=unit) for upper, left, unit in kinds
        ) + tuple(
            torch.triangular_solve(b, a, upper=upper, transpose=transpose, unitriangular=unit)[0]
            for upper, transpose, unit in kinds
        )

    def matrices(a):
        for upper, side, unit in kinds + kinds:
            t = a.triu() if upper else a.tril()
            yield t - torch.diag_embed(t.diagonal(dim1=-2, dim2=-1) - 1) if unit else t, side

    a, b, c = triangles(2, n, n), torch.randn(3, 1, n, 4), torch.randn(3, 2, 4, n)
    read = list(matrices(a))
    read = read[:8] + [(t.transpose(-2, -1) if transpose else t, True) for t, transpose in read[8:]]
    new, *_ = check(Model(run), (a, b, c), compare=functools.partial(close_solutions, [read]), lower=n == 2)
    assert not [op for op in ops(new) if "solve" in op]


def test_the_copied_coefficient_of_triangular_solve():
    run = Model(lambda self, a, b: torch.triangular_solve(b, a, upper=False)[1] + 1)
    check(run, (torch.eye(2) * 4, torch.randn(3, 2, 1)), functional=True, lower=False)


def test_dynamic_batch():
    def run(self, a, b):
        return (torch.linalg.solve_triangular(a, b, upper=False),)

    shapes = {"inputs": ({0: Dim("batch", min=2)}, {0: Dim("batch", min=2), 2: Dim("k", min=2)})}
    calls = [(triangles(m, 3, 3), torch.randn(m, 3, k)) for m, k in ((2, 3), (5, 4))]
    read = [[(a.tril(), True)] for a, _ in calls]
    check(Model(run), *calls, dynamic_shapes=shapes, compare=functools.partial(close_solutions, read), lower=False)


def test_the_largest_size_and_its_number_of_ops():
    a, b = triangles(32, 32), torch.randn(32, 2)
    program = export(Model(lambda self, a, b: torch.linalg.solve_triangular(a, b, upper=True)), (a, b))
    new = rewrite(program)
    assert len(ops(new)) <= 8 * 32
    close_solutions([[(a.triu(), True)]], [[new.module()(a, b)]], [[torch.linalg.solve_triangular(a, b, upper=True)]])


def positive(*shape: int) -> torch.Tensor:
    root = torch.randn(*shape)
    return root @ root.mT + torch.eye(shape[-1])


def close_factors(matrices, actual, expected) -> None:
    for call_actual, call_expected, (a, b) in zip(actual, expected, matrices, strict=True):
        for factor, torchs, of, upper in zip(call_actual, call_expected, (a, a, b, a, b), (0, 1, 0, 0, 1), strict=True):
            assert factor.shape == torchs.shape and factor.dtype == torchs.dtype
            assert torch.equal(factor, factor.triu() if upper else factor.tril())
            assert (factor.diagonal(dim1=-2, dim2=-1) > 0).all()
            symmetric = torch.triu(of) + torch.triu(of, 1).mT if upper else torch.tril(of) + torch.tril(of, -1).mT
            lower = (factor.mT if upper else factor).double()
            bound = g(of.shape[-1] + 1) * (lower.abs() @ lower.abs().mT)
            assert ((lower @ lower.mT - symmetric.double()).abs() <= bound).all()


@pytest.mark.parametrize("functional", [False, True])
def test_cholesky_factors(functional):
    def run(self, a, b):
        return (
            torch.linalg.cholesky(a),
            torch.linalg.cholesky(a, upper=True),
            torch.linalg.cholesky(b),
            torch.linalg.cholesky_ex(a).L,
            torch.cholesky(b, upper=True),
        )

    # `a` differs above and below the diagonal: each factor comes from its own triangle.
    a = positive(2, 5, 5)
    a = a.tril() + 0.5 * a.triu(1)
    b = positive(1, 1)
    new, *_ = check(
        Model(run), (a, b), compare=functools.partial(close_factors, [(a, b)]), functional=functional, lower=functional
    )
    assert not [op for op in ops(new) if "cholesky" in op or "check_errors" in op]


def test_info_of_matrices_that_are_not_positive_definite():
    matrices = [
        [[4.0, 2.0, 0.0], [2.0, 5.0, 1.0], [0.0, 1.0, 3.0]],
        [[-1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]],
        [[4.0, 2.0, 0.0], [2.0, 1.0, 0.0], [0.0, 0.0, 1.0]],
        [[1.0, 0.0, 0.0], [0.0, 1.0, 2.0], [0.0, 2.0, 3.0]],
        [[nan, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]],
        [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, nan, 1.0]],
        [[0.0, 0.0, 0.0], [0.0, 0.0, 0.0], [0.0, 0.0, 0.0]],
    ]
    run = Model(lambda self, a: torch.linalg.cholesky_ex(a).info)
    batch = torch.tensor(matrices)
    assert torch.linalg.cholesky_ex(batch).info.tolist() == [0, 1, 2, 3, 1, 3, 1]
    check(run, (batch,))


def test_a_matrix_that_torch_raises_for_gives_nan():
    program = rewrite(export(Model(lambda self, a: torch.linalg.cholesky(a)), (torch.eye(3),)))
    singular = torch.tensor([[4.0, 0.0, 0.0], [0.0, 0.0, 0.0], [0.0, 0.0, 1.0]])
    factor = program.module()(singular)
    assert torch.equal(factor[:, 0], torch.tensor([2.0, 0.0, 0.0]))
    assert factor[1, 1].isnan() and factor[2, 1:].isnan().all()


def test_multivariate_normal_head():
    def run(self, mean, raw, action):
        spread = raw @ raw.transpose(1, 2) + 0.1 * torch.eye(3)
        policy = torch.distributions.MultivariateNormal(mean, spread, validate_args=False)
        return policy.log_prob(action), policy.entropy()

    # Well conditioned, so a part in 10^5 is some hundred round-offs.
    compare = functools.partial(torch.testing.assert_close, rtol=1e-5, atol=1e-5)
    raw = torch.eye(3) + 0.2 * torch.randn(2, 3, 3)
    check(Model(run), (torch.randn(2, 3), raw, torch.randn(2, 3)), compare=compare)


def test_left_alone():
    run = Model(lambda self, a, b: torch.linalg.solve_triangular(a, b, upper=True))
    assert untouched(run, (torch.eye(33), torch.ones(33, 1)))
    assert untouched(run, (torch.eye(3, dtype=torch.complex64), torch.ones(3, 1, dtype=torch.complex64)))
    assert untouched(Model(lambda self, a: torch.linalg.cholesky_ex(a)), (torch.eye(33),))
    size = {"inputs": ({0: Dim("n", min=2), 1: Dim("n", min=2)}, {0: Dim("n", min=2)})}
    assert untouched(run, (torch.eye(4), torch.ones(4, 1)), dynamic_shapes=size)
    program = export(run, (torch.eye(3), torch.ones(3, 1)))
    assert rewrite(program, keep=frozenset({torch.ops.aten.linalg_solve_triangular.default})) is program
