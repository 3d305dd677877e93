"""A Llama-style decoder that keeps its cache, and how far it is filled, in buffers."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from .parts import rotate

VOCABULARY, LENGTH, HEADS, GROUPS, SIZE = 40, 12, 4, 2, 8


class Attention(nn.Module):
    """Grouped-query attention over a cache (1, GROUPS, LENGTH, SIZE) that it writes to at `position`."""

    def __init__(self, width: int, update: str) -> None:
        super().__init__()
        self.update = update
        self.query = nn.Linear(width, HEADS * SIZE, bias=False)
        self.key = nn.Linear(width, GROUPS * SIZE, bias=False)
        self.value = nn.Linear(width, GROUPS * SIZE, bias=False)
        self.out = nn.Linear(HEADS * SIZE, width, bias=False)
        self.register_buffer("keys", torch.zeros(1, GROUPS, LENGTH, SIZE))
        self.register_buffer("values", torch.zeros(1, GROUPS, LENGTH, SIZE))

    def write(self, cache: Tensor, new: Tensor, position: Tensor) -> Tensor:
        if self.update == "index_put":
            cache[:, :, position] = new
        else:
            cache.index_copy_(2, position, new)
        return cache.repeat_interleave(HEADS // GROUPS, dim=1)

    def forward(self, x: Tensor, position: Tensor, rotation: tuple[Tensor, Tensor], mask: Tensor) -> Tensor:
        batch, length, _ = x.shape
        q = rotate(self.query(x).view(batch, length, HEADS, SIZE).transpose(1, 2), *rotation)
        k = rotate(self.key(x).view(batch, length, GROUPS, SIZE).transpose(1, 2), *rotation)
        v = self.value(x).view(batch, length, GROUPS, SIZE).transpose(1, 2)
        keys, values = self.write(self.keys, k, position), self.write(self.values, v, position)
        y = nn.functional.scaled_dot_product_attention(q, keys, values, attn_mask=mask)
        return self.out(y.transpose(1, 2).reshape(batch, length, HEADS * SIZE))


class Layer(nn.Module):
    """RMS norms with eps=None: torch takes the machine epsilon."""

    def __init__(self, width: int, update: str) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.RMSNorm(width), nn.RMSNorm(width)
        self.attention = Attention(width, update)
        self.gate, self.up = nn.Linear(width, 2 * width, bias=False), nn.Linear(width, 2 * width, bias=False)
        self.down = nn.Linear(2 * width, width, bias=False)

    def forward(self, x: Tensor, position: Tensor, rotation: tuple[Tensor, Tensor], mask: Tensor) -> Tensor:
        x = x + self.attention(self.norm1(x), position, rotation, mask)
        y = self.norm2(x)
        return x + self.down(nn.functional.silu(self.gate(y)) * self.up(y))


class Decoder(nn.Module):
    """Token ids int64 (1, T) -> logits (1, T, VOCABULARY); each call continues where the last one ended."""

    def __init__(self, update: str, width: int = 32, layers: int = 2) -> None:
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, width)
        self.layers = nn.ModuleList(Layer(width, update) for _ in range(layers))
        self.norm = nn.RMSNorm(width)
        self.register_buffer("frequency", 1e4 ** (-torch.arange(SIZE // 2) / (SIZE // 2)))
        self.register_buffer("slots", torch.arange(LENGTH))
        self.register_buffer("filled", torch.zeros(1, dtype=torch.long))

    def forward(self, ids: Tensor) -> Tensor:
        position = self.filled + torch.arange(ids.shape[1])
        angle = position.to(torch.float32)[:, None] * self.frequency
        rotation, mask = (angle.cos(), angle.sin()), self.slots <= position[:, None]
        x = self.tokens(ids)
        for layer in self.layers:
            x = layer(x, position, rotation, mask)
        self.filled.add_(ids.shape[1])
        return self.norm(x) @ self.tokens.weight.T


def decoder_decode() -> tuple[nn.Module, tuple, None]:
    """One token a call, written by index_put."""
    return _decoder("index_put", 1)


def decoder_decode_copy() -> tuple[nn.Module, tuple, None]:
    """One token a call, written by index_copy."""
    return _decoder("index_copy", 1)


def decoder_prefill() -> tuple[nn.Module, tuple, None]:
    """Four tokens a call, written by index_put through a whole slice."""
    return _decoder("index_put", 4)


def decoder_prefill_copy() -> tuple[nn.Module, tuple, None]:
    """Four tokens a call, written by index_copy."""
    return _decoder("index_copy", 4)


def _decoder(update: str, tokens: int) -> tuple[nn.Module, tuple, None]:
    torch.manual_seed(0)
    return Decoder(update).eval(), (torch.randint(0, VOCABULARY, (1, tokens)),), None
