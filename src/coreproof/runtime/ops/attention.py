"""Attention."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor


def scaled_dot_product_attention_ios18(
    query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None
) -> Tensor:
    """softmax(query @ key.T / sqrt(width) + mask) @ value; a bool mask drops what is False"""
    return F.scaled_dot_product_attention(query, key, value, attn_mask)
