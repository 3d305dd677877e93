"""Attention, against its formula in float64."""

import numpy as np
import pytest
import torch
from op_run import run

from coreproof.errors import ModelError


def formula(q, k, v, mask=None):
    scores = q @ np.swapaxes(k, -1, -2) / np.sqrt(q.shape[-1])
    if mask is not None:
        scores = np.where(mask, scores, -np.inf) if mask.dtype == bool else scores + mask
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True) @ v


@pytest.mark.parametrize("batch", [(2,), (2, 3), (2, 1, 3)])
@pytest.mark.parametrize("mask_shape", [None, (5,), (4, 5), (1, 5), (4, 1)])
@pytest.mark.parametrize("kind", [bool, np.float64])
def test_masks_of_every_rank(batch, mask_shape, kind):
    generator = np.random.default_rng(0)
    q, k, v = (generator.standard_normal((*batch, *last)) for last in ((4, 6), (5, 6), (5, 3)))
    mask = None
    if mask_shape is not None:
        mask = generator.standard_normal(mask_shape)
        mask = mask if kind is not bool else mask > -0.5
        if kind is bool:
            mask[..., 0] = True  # no row without any place to look at
    given = {} if mask is None else {"attn_mask": torch.as_tensor(mask if kind is bool else mask.astype(np.float32))}
    operands = {name: torch.tensor(x, dtype=torch.float32) for name, x in (("query", q), ("key", k), ("value", v))}
    got = run("scaled_dot_product_attention", **operands, **given)
    # Averages of values below 4, weights summing to 1: some ten roundings of 2**-24.
    torch.testing.assert_close(got.double(), torch.from_numpy(formula(q, k, v, mask)), rtol=0, atol=5e-6)


def test_a_score_matrix_beyond_memory_is_refused():
    long = torch.zeros(1).expand(1, 2**22, 1)
    with pytest.raises(ModelError, match="GiB"):
        run("scaled_dot_product_attention", query=long, key=long, value=long)
