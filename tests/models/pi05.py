"""pi0.5 in bfloat16: a vision-language prefix, and an action expert that attends to it (Physical Intelligence, 2025).

Both are Gemma-like: RMS norms with weight 1 + w, rotary positions, grouped
queries with one key-value head, a gated tanh GELU. The expert's norms are
adapted by the flow-matching time.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from .parts import ACTION, Pixels, TimeEmbedding, frames, rotate

VOCABULARY, PROMPT, CHUNK, PATCH = 48, 5, 6, 16
HEADS, SIZE, LAYERS = 4, 8, 2


class Norm(nn.Module):
    """RMS norm computed in float32; with a condition (B, 1, width), its scale, shift and gate come from there."""

    def __init__(self, width: int, condition: int | None = None) -> None:
        super().__init__()
        self.weight = nn.Parameter(0.1 * torch.randn(width)) if condition is None else None
        self.adapt = nn.Linear(condition, 3 * width) if condition is not None else None

    def forward(self, x: Tensor, condition: Tensor | None = None) -> tuple[Tensor, Tensor | float]:
        wide = x.float()
        wide = wide * torch.rsqrt(wide.square().mean(dim=-1, keepdim=True) + 1e-6)
        if self.adapt is None:
            return (wide * (1.0 + self.weight.float())).to(x.dtype), 1.0
        scale, shift, gate = self.adapt(condition).chunk(3, dim=-1)
        return (wide * (1.0 + scale.float()) + shift.float()).to(x.dtype), gate


class Layer(nn.Module):
    """One layer of either transformer; keys and values of the prefix may stand before its own."""

    def __init__(self, width: int, condition: int | None = None) -> None:
        super().__init__()
        self.norm1, self.norm2 = Norm(width, condition), Norm(width, condition)
        self.query = nn.Linear(width, HEADS * SIZE, bias=False)
        self.key, self.value = nn.Linear(width, SIZE, bias=False), nn.Linear(width, SIZE, bias=False)
        self.out = nn.Linear(HEADS * SIZE, width, bias=False)
        self.gate, self.up = nn.Linear(width, 2 * width, bias=False), nn.Linear(width, 2 * width, bias=False)
        self.down = nn.Linear(2 * width, width, bias=False)

    def forward(
        self,
        x: Tensor,
        rotation: tuple[Tensor, Tensor],
        mask: Tensor,
        condition: Tensor | None = None,
        prefix: tuple[Tensor, Tensor] | None = None,
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        batch, length, _ = x.shape
        y, gate = self.norm1(x, condition)
        q = rotate(self.query(y).view(batch, length, HEADS, SIZE).transpose(1, 2), *rotation)
        k, v = rotate(self.key(y)[:, None], *rotation), self.value(y)[:, None]
        if prefix is not None:
            k, v = torch.cat([prefix[0], k], dim=2), torch.cat([prefix[1], v], dim=2)
        y = nn.functional.scaled_dot_product_attention(
            q, k.expand(-1, HEADS, -1, -1), v.expand(-1, HEADS, -1, -1), attn_mask=mask
        )
        x = x + self.out(y.transpose(1, 2).reshape(batch, length, HEADS * SIZE)) * gate
        y, gate = self.norm2(x, condition)
        y = self.down(nn.functional.gelu(self.gate(y), approximate="tanh") * self.up(y))
        return x + y * gate, (k, v)


class Pi05(nn.Module):
    """Frames uint8 (1, H, W, 3), ids int64 (1, PROMPT), their mask bool, noise float32 (1, CHUNK, ACTION) -> actions.

    The transformers are bfloat16; the state of the robot is part of the prompt.
    Times and actions are float32, stepped from time 1 to 0.
    """

    def __init__(self, width: int = 32, expert: int = 24, steps: int = 2) -> None:
        super().__init__()
        self.steps = steps
        self.patches = nn.Conv2d(3, width, PATCH, PATCH)
        self.tokens = nn.Embedding(VOCABULARY, width)
        self.prefix = nn.ModuleList(Layer(width) for _ in range(LAYERS))
        self.inward, self.outward = nn.Linear(ACTION, expert), nn.Linear(expert, ACTION)
        self.expert = nn.ModuleList(Layer(expert, condition=expert) for _ in range(LAYERS))
        self.norm = Norm(expert, condition=expert)
        self.to(torch.bfloat16)
        self.pixels, self.time = Pixels(), TimeEmbedding(expert, scale=100.0)
        self.register_buffer("frequency", 1e4 ** (-torch.arange(SIZE // 2) / (SIZE // 2)))

    def rotation(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        angle = positions.float()[:, None] * self.frequency
        return angle.cos().to(torch.bfloat16), angle.sin().to(torch.bfloat16)

    def forward(self, images: Tensor, ids: Tensor, mask: Tensor, noise: Tensor) -> Tensor:
        seen = self.patches(self.pixels(images).to(torch.bfloat16)).flatten(2).transpose(1, 2)
        x = torch.cat([seen, self.tokens(ids) * self.tokens.embedding_dim**0.5], dim=1)
        seen_mask = torch.ones(1, seen.shape[1], dtype=torch.bool)
        visible = torch.cat([seen_mask, mask], dim=1)
        positions = visible.long().cumsum(dim=1)[0] - 1
        rotation, around = self.rotation(positions), visible[:, None, None, :]
        caches = []
        for layer in self.prefix:
            x, cache = layer(x, rotation, around)
            caches.append(cache)

        rotation = self.rotation(positions[-1] + 1 + torch.arange(CHUNK))
        around = torch.cat([visible, torch.ones(1, CHUNK, dtype=torch.bool)], dim=1)[:, None, None, :]
        actions = noise
        for step in range(self.steps):
            time = torch.full((1,), 1 - step / self.steps)
            actions = actions - self.velocity(actions, time, rotation, around, caches) / self.steps
        return actions

    def velocity(self, actions: Tensor, time: Tensor, rotation: tuple, around: Tensor, caches: list) -> Tensor:
        condition = self.time(time)[:, None].to(torch.bfloat16)
        x = self.inward(actions.to(torch.bfloat16))
        for layer, cache in zip(self.expert, caches, strict=True):
            x, _ = layer(x, rotation, around, condition, cache)
        return self.outward(self.norm(x, condition)[0]).float()


def pi05() -> tuple[nn.Module, tuple, None]:
    """One camera, a prompt with two tokens of padding."""
    torch.manual_seed(0)
    ids = torch.randint(1, VOCABULARY, (1, PROMPT))
    mask = torch.arange(PROMPT)[None] < PROMPT - 2
    return Pi05().eval(), (frames(1), ids, mask, torch.randn(1, CHUNK, ACTION)), None
