"""Diffusion policy: a one-dimensional U-Net over actions, conditioned through FiLM (Chi et al., 2023).

Frames come as (batch, step, camera, H, W, C), which is rank 6: above what Core ML holds.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from .parts import ACTION, HEIGHT, STATE, WIDTH, ConvTrunk, Pixels, SpatialSoftmax, TimeEmbedding, frames

STEPS, CAMERAS, HORIZON = 2, 2, 8


class FilmBlock(nn.Module):
    """Two convolutions over time with a shortcut; the condition scales and shifts the channels between them."""

    def __init__(self, channels_in: int, channels_out: int, condition: int) -> None:
        super().__init__()
        self.first = nn.Sequential(
            nn.Conv1d(channels_in, channels_out, 3, padding=1), nn.GroupNorm(4, channels_out), nn.Mish()
        )
        self.second = nn.Sequential(
            nn.Conv1d(channels_out, channels_out, 3, padding=1), nn.GroupNorm(4, channels_out), nn.Mish()
        )
        self.film = nn.Sequential(nn.Mish(), nn.Linear(condition, 2 * channels_out))
        self.shortcut = nn.Conv1d(channels_in, channels_out, 1)

    def forward(self, x: Tensor, condition: Tensor) -> Tensor:
        scale, shift = self.film(condition)[..., None].chunk(2, dim=1)
        return self.second(self.first(x) * (1 + scale) + shift) + self.shortcut(x)


class UNet(nn.Module):
    """Noisy actions (B, HORIZON, ACTION), times (B,), condition (B, width) -> predicted noise, as the actions."""

    def __init__(self, condition: int, low: int = 16, high: int = 24, embed: int = 16) -> None:
        super().__init__()
        self.time = TimeEmbedding(embed)
        width = condition + embed
        self.down1, self.down2 = FilmBlock(ACTION, low, width), FilmBlock(low, high, width)
        self.shrink, self.grow = nn.Conv1d(low, low, 3, 2, 1), nn.ConvTranspose1d(low, low, 4, 2, 1)
        self.middle, self.up = FilmBlock(high, high, width), FilmBlock(2 * high, low, width)
        self.last = nn.Sequential(
            nn.Conv1d(2 * low, low, 3, padding=1), nn.GroupNorm(4, low), nn.Mish(), nn.Conv1d(low, ACTION, 1)
        )

    def forward(self, actions: Tensor, time: Tensor, condition: Tensor) -> Tensor:
        condition = torch.cat([self.time(time), condition], dim=-1)
        first = self.down1(actions.transpose(1, 2), condition)
        second = self.down2(self.shrink(first), condition)
        x = self.middle(second, condition)
        x = self.grow(self.up(torch.cat([x, second], dim=1), condition))
        return self.last(torch.cat([x, first], dim=1)).transpose(1, 2)


class DiffusionPolicy(nn.Module):
    """Frames uint8 (1, STEPS, CAMERAS, H, W, 3), states (1, STEPS, STATE), noise (1, HORIZON, ACTION) -> actions.

    `times` are DDIM's steps of a 100-step cosine schedule, unrolled.
    """

    def __init__(self, points: int = 6, times: tuple[int, ...] = (80, 30)) -> None:
        super().__init__()
        self.pixels, self.trunk = Pixels(), ConvTrunk(16, group_norm=True)
        self.keypoints = SpatialSoftmax(16, HEIGHT // 8, WIDTH // 8, points)
        self.unet = UNet(STEPS * (CAMERAS * 2 * points + STATE))
        steps = torch.arange(101) / 100
        self.alphas = (torch.cos((steps + 0.008) / 1.008 * torch.pi / 2) ** 2).tolist()
        self.times = times

    def condition(self, images: Tensor, states: Tensor) -> Tensor:
        batch, steps, cameras = images.shape[:3]
        seen = self.keypoints(self.trunk(self.pixels(images).flatten(0, 2)))
        seen = seen.view(batch, steps, cameras, -1).flatten(2)
        return torch.cat([states, seen], dim=-1).flatten(1)

    def forward(self, images: Tensor, states: Tensor, noise: Tensor) -> Tensor:
        condition = self.condition(images, states)
        actions = noise
        for now, after in zip(self.times, (*self.times[1:], 0), strict=True):
            time = torch.full((noise.shape[0],), now, dtype=torch.long)
            predicted = self.unet(actions, time, condition)
            clean = (actions - (1 - self.alphas[now]) ** 0.5 * predicted) / self.alphas[now] ** 0.5
            clean = clean.clamp(-1, 1)
            actions = self.alphas[after] ** 0.5 * clean + (1 - self.alphas[after]) ** 0.5 * predicted
        return actions[:, 1:5]


def diffusion() -> tuple[nn.Module, tuple, None]:
    """Two observation steps of two cameras, two denoising steps."""
    torch.manual_seed(0)
    inputs = (frames(1, STEPS, CAMERAS), torch.randn(1, STEPS, STATE), torch.randn(1, HORIZON, ACTION))
    return DiffusionPolicy().eval(), inputs, None
