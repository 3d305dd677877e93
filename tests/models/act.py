"""ACT, the action-chunking transformer: camera frames and a state to a chunk of actions (Zhao et al., 2023).

At inference the variational latent is zero. Encoder and decoder are DETR's:
post-norm layers, positions added to queries and keys only.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from .parts import ACTION, HEIGHT, STATE, WIDTH, ConvTrunk, Pixels, frames


def sine_positions(height: int, width: int, channels: int) -> Tensor:
    """Two-dimensional sine embedding, (1, height * width, channels): half for the row, half for the column."""
    quarter = channels // 4
    frequency = 1e4 ** (-torch.arange(quarter) / quarter)
    y = torch.arange(1, height + 1)[:, None] / height * 2 * torch.pi * frequency
    x = torch.arange(1, width + 1)[:, None] / width * 2 * torch.pi * frequency
    rows = torch.cat([y.sin(), y.cos()], dim=-1)[:, None].expand(height, width, -1)
    columns = torch.cat([x.sin(), x.cos()], dim=-1)[None].expand(height, width, -1)
    return torch.cat([rows, columns], dim=-1).reshape(1, height * width, channels)


class Layer(nn.Module):
    """A DETR layer; with `cross`, a decoder layer that also attends to the memory."""

    def __init__(self, width: int, heads: int, cross: bool = False) -> None:
        super().__init__()
        self.attend = nn.MultiheadAttention(width, heads, batch_first=True)
        self.cross = nn.MultiheadAttention(width, heads, batch_first=True) if cross else None
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(3 if cross else 2))
        self.network = nn.Sequential(nn.Linear(width, 2 * width), nn.ReLU(), nn.Linear(2 * width, width))

    def forward(self, x: Tensor, position: Tensor, memory: Tensor | None = None, where: Tensor | None = None) -> Tensor:
        q = x + position
        x = self.norms[0](x + self.attend(q, q, x, need_weights=False)[0])
        if self.cross is not None:
            x = self.norms[1](x + self.cross(x + position, memory + where, memory, need_weights=False)[0])
        return self.norms[-1](x + self.network(x))


class ACT(nn.Module):
    """frames uint8 (cameras, H, W, 3), state float32 (1, STATE) -> actions float32 (1, chunk, ACTION)."""

    def __init__(self, width: int = 32, heads: int = 4, chunk: int = 6, latent: int = 8) -> None:
        super().__init__()
        self.latent = latent
        self.pixels, self.trunk = Pixels(), ConvTrunk(24)
        self.from_trunk = nn.Conv2d(24, width, 1)
        self.from_latent, self.from_state = nn.Linear(latent, width), nn.Linear(STATE, width)
        self.extra = nn.Parameter(torch.randn(1, 2, width))
        self.register_buffer("positions", sine_positions(HEIGHT // 8, WIDTH // 8, width))
        self.queries = nn.Parameter(torch.randn(1, chunk, width))
        self.encoder = nn.ModuleList(Layer(width, heads) for _ in range(2))
        self.decoder = nn.ModuleList(Layer(width, heads, cross=True) for _ in range(2))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, ACTION)

    def forward(self, images: Tensor, state: Tensor) -> Tensor:
        maps = self.from_trunk(self.trunk(self.pixels(images))).flatten(2).transpose(1, 2)
        cameras = [maps[i : i + 1] for i in range(images.shape[0])]
        latent = self.from_latent(torch.zeros(1, self.latent, dtype=state.dtype))
        x = torch.cat([latent[:, None], self.from_state(state)[:, None], *cameras], dim=1)
        where = torch.cat([self.extra, *[self.positions] * len(cameras)], dim=1)
        for layer in self.encoder:
            x = layer(x, where)
        y = torch.zeros_like(self.queries)
        for layer in self.decoder:
            y = layer(y, self.queries, x, where)
        return self.head(self.norm(y))


def act() -> tuple[nn.Module, tuple, None]:
    """Two cameras, one state vector."""
    torch.manual_seed(0)
    return ACT().eval(), (frames(2), torch.randn(1, STATE)), None
