"""Multi-Task DiT: a diffusion transformer over actions, conditioned by adaptive layer norms (adaLN-zero).

The condition is made of image, text, state and time. Text is pooled at its end
token, the largest token id, as CLIP does.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from .parts import ACTION, HEIGHT, STATE, WIDTH, Block, Pixels, SelfAttention, TimeEmbedding, frames

VOCABULARY, PROMPT, HORIZON, PATCH = 40, 6, 8, 8


class TextTower(nn.Module):
    """Token ids int64 (B, PROMPT) -> (B, width): a causal transformer read at the end token."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(VOCABULARY, width), nn.Embedding(PROMPT, width)
        self.block, self.norm = Block(width, heads, causal=True), nn.LayerNorm(width)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.norm(self.block(self.tokens(ids) + self.positions.weight))
        return x[torch.arange(ids.shape[0]), ids.argmax(dim=-1)]


class ImageTower(nn.Module):
    """Frames uint8 (N, H, W, 3) -> (N, width): a vision transformer with a class token."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.pixels, self.patches = Pixels(), nn.Conv2d(3, width, PATCH, PATCH, bias=False)
        self.token = nn.Parameter(torch.randn(1, 1, width))
        self.positions = nn.Parameter(torch.randn(1, 1 + HEIGHT // PATCH * (WIDTH // PATCH), width))
        self.block, self.norm = Block(width, heads), nn.LayerNorm(width)

    def forward(self, images: Tensor) -> Tensor:
        x = self.patches(self.pixels(images)).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], dim=1) + self.positions
        return self.norm(self.block(x)[:, 0])


class AdaptiveBlock(nn.Module):
    """A transformer block whose norms and gates the condition (B, width) sets."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width, eps=1e-6, elementwise_affine=False)
        self.norm2 = nn.LayerNorm(width, eps=1e-6, elementwise_affine=False)
        self.attention = SelfAttention(width, heads)
        self.network = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(approximate="tanh"), nn.Linear(4 * width, width)
        )
        self.adapt = nn.Sequential(nn.SiLU(), nn.Linear(width, 6 * width))

    def forward(self, x: Tensor, condition: Tensor) -> Tensor:
        shift1, scale1, gate1, shift2, scale2, gate2 = self.adapt(condition)[:, None].chunk(6, dim=-1)
        x = x + gate1 * self.attention(self.norm1(x) * (1 + scale1) + shift1)
        return x + gate2 * self.network(self.norm2(x) * (1 + scale2) + shift2)


class MultiTaskDiT(nn.Module):
    """Frames uint8 (2, H, W, 3), states (1, 2, STATE), ids int64 (1, PROMPT), noise (1, HORIZON, ACTION) -> actions.

    Flow matching: `steps` Euler steps from the noise, unrolled.
    """

    def __init__(self, width: int = 32, heads: int = 4, steps: int = 2) -> None:
        super().__init__()
        self.steps = steps
        self.see, self.read = ImageTower(width, heads), TextTower(width, heads)
        self.observe = nn.Linear(2 * width + 2 * STATE + width, width)
        self.time = TimeEmbedding(width, scale=1000.0)
        self.inward, self.outward = nn.Linear(ACTION, width), nn.Linear(width, ACTION)
        self.positions = nn.Parameter(torch.randn(1, HORIZON, width))
        self.blocks = nn.ModuleList(AdaptiveBlock(width, heads) for _ in range(2))
        self.norm = nn.LayerNorm(width, eps=1e-6, elementwise_affine=False)
        self.adapt = nn.Sequential(nn.SiLU(), nn.Linear(width, 2 * width))

    def velocity(self, actions: Tensor, time: Tensor, observed: Tensor) -> Tensor:
        condition = observed + self.time(time)
        x = self.inward(actions) + self.positions
        for block in self.blocks:
            x = block(x, condition)
        shift, scale = self.adapt(condition)[:, None].chunk(2, dim=-1)
        return self.outward(self.norm(x) * (1 + scale) + shift)

    def forward(self, images: Tensor, states: Tensor, ids: Tensor, noise: Tensor) -> Tensor:
        seen = self.see(images).flatten()[None]
        observed = self.observe(torch.cat([seen, states.flatten(1), self.read(ids)], dim=-1))
        actions = noise
        for step in range(self.steps):
            time = torch.full((noise.shape[0],), step / self.steps)
            actions = actions + self.velocity(actions, time, observed) / self.steps
        return actions


def multitask_dit() -> tuple[nn.Module, tuple, None]:
    """Two frames, an instruction whose end token is not its last."""
    torch.manual_seed(0)
    ids = torch.randint(1, VOCABULARY - 1, (1, PROMPT))
    ids[0, -2:] = torch.tensor([VOCABULARY - 1, 0])
    inputs = (frames(2), torch.randn(1, 2, STATE), ids, torch.randn(1, HORIZON, ACTION))
    return MultiTaskDiT().eval(), inputs, None
