"""Attention."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from ..memory import require_elements


def scaled_dot_product_attention_ios18(
    query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None
) -> Tensor:
    """softmax(query @ key.T / sqrt(width) + mask) @ value; a bool mask drops what is False"""
    require_elements([*query.shape[:-1], key.shape[-2]], "scaled_dot_product_attention")
    if attn_mask is not None and attn_mask.dim() == 1:  # torch wants two dimensions
        attn_mask = attn_mask[None]
    return F.scaled_dot_product_attention(query, key, value, attn_mask)
