"""Layers that several of the test models share."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

HEIGHT, WIDTH = 32, 48  # of a camera frame; not square, so that a swap of the two shows
STATE = 5
ACTION = 4


def frames(*leading: int) -> Tensor:
    """Random camera frames: uint8 (*leading, HEIGHT, WIDTH, 3)."""
    return torch.randint(0, 256, (*leading, HEIGHT, WIDTH, 3), dtype=torch.uint8)


class Pixels(nn.Module):
    """Camera frames, uint8 (..., H, W, 3), to normalised floats (..., 3, H, W)."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.tensor([0.485, 0.456, 0.406]).view(3, 1, 1))
        self.register_buffer("std", torch.tensor([0.229, 0.224, 0.225]).view(3, 1, 1))

    def forward(self, images: Tensor) -> Tensor:
        return (images.movedim(-1, -3).to(torch.float32) / 255.0 - self.mean) / self.std


class ResidualBlock(nn.Module):
    """Two convolutions beside a shortcut, the first with a stride of two."""

    def __init__(self, channels_in: int, channels_out: int, group_norm: bool) -> None:
        super().__init__()

        def norm() -> nn.Module:
            return nn.GroupNorm(4, channels_out) if group_norm else nn.BatchNorm2d(channels_out)

        self.body = nn.Sequential(
            nn.Conv2d(channels_in, channels_out, 3, 2, 1, bias=False),
            norm(),
            nn.ReLU(),
            nn.Conv2d(channels_out, channels_out, 3, 1, 1, bias=False),
            norm(),
        )
        self.shortcut = nn.Sequential(nn.Conv2d(channels_in, channels_out, 1, 2, bias=False), norm())

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.body(x) + self.shortcut(x))


class ConvTrunk(nn.Sequential):
    """A small ResNet: (N, 3, H, W) to (N, channels, H / 8, W / 8)."""

    def __init__(self, channels: int, group_norm: bool = False) -> None:
        super().__init__(
            nn.Conv2d(3, 8, 7, 2, 3, bias=False),
            nn.GroupNorm(4, 8) if group_norm else nn.BatchNorm2d(8),
            nn.ReLU(),
            nn.MaxPool2d(3, 2, 1),
            ResidualBlock(8, channels, group_norm),
        )
        for module in self.modules():
            if isinstance(module, nn.BatchNorm2d):  # as after training: not mean 0, variance 1
                module.running_mean.normal_(0, 0.2)
                module.running_var.uniform_(0.5, 1.5)


class SpatialSoftmax(nn.Module):
    """Feature maps (N, C, H, W) to the expected position of each keypoint, (N, 2 * points), within -1..1."""

    def __init__(self, channels: int, height: int, width: int, points: int) -> None:
        super().__init__()
        self.maps = nn.Conv2d(channels, points, 1)
        y, x = torch.meshgrid(torch.linspace(-1, 1, height), torch.linspace(-1, 1, width), indexing="ij")
        self.register_buffer("positions", torch.stack([x.flatten(), y.flatten()], dim=1))

    def forward(self, x: Tensor) -> Tensor:
        attention = self.maps(x).flatten(2).softmax(dim=-1)
        return (attention @ self.positions).flatten(1)


class TimeEmbedding(nn.Module):
    """Times (B,) to sines and cosines (B, width), through a small network."""

    def __init__(self, width: int, scale: float = 1.0) -> None:
        super().__init__()
        self.scale = scale
        self.register_buffer("frequency", torch.exp(-math.log(1e4) * torch.arange(width // 2) / (width // 2)))
        self.network = nn.Sequential(nn.Linear(width, 2 * width), nn.SiLU(), nn.Linear(2 * width, width))

    def forward(self, time: Tensor) -> Tensor:
        angle = self.scale * time.to(self.frequency.dtype)[:, None] * self.frequency
        return self.network(torch.cat([angle.sin(), angle.cos()], dim=-1))


class SelfAttention(nn.Module):
    """Fused-projection self-attention over (B, T, width), causal or not."""

    def __init__(self, width: int, heads: int, causal: bool = False) -> None:
        super().__init__()
        self.heads, self.causal = heads, causal
        self.project = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        parts = self.project(x).view(batch, length, 3, self.heads, width // self.heads)
        q, k, v = parts.permute(2, 0, 3, 1, 4).unbind(0)
        y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        return self.out(y.transpose(1, 2).reshape(batch, length, width))


class Block(nn.Module):
    """A pre-norm transformer block with a GELU network."""

    def __init__(self, width: int, heads: int, causal: bool = False) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = SelfAttention(width, heads, causal)
        self.network = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm1(x))
        return x + self.network(self.norm2(x))


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary embedding of (B, heads, T, size) by angles whose cosines and sines are (T, size / 2)."""
    low, high = x.chunk(2, dim=-1)
    return torch.cat([low * cos - high * sin, high * cos + low * sin], dim=-1)
