"""A small camera policy of the kind that drives a robot arm: frames and joint angles in, a chunk of actions out.

    coreproof lower examples/camera_policy.py:policy -o camera_policy.pte

It takes what a camera delivers, uint8 frames with the channels last, so the first ops of the model are the
conversion that a device would otherwise need code for.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

CAMERAS, HEIGHT, WIDTH = 2, 64, 96
STATE, ACTIONS, CHUNK = 7, 7, 16
DIM, HEADS, LAYERS = 64, 4, 2


class Trunk(nn.Module):
    """Frames (n, 3, h, w), float32 in 0 to 1, to features (n, DIM, h / 16, w / 16)."""

    def __init__(self) -> None:
        super().__init__()
        sizes = (3, 16, 32, 48, DIM)
        self.stages = nn.Sequential(
            *(
                nn.Sequential(nn.Conv2d(i, o, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(o), nn.ReLU())
                for i, o in zip(sizes[:-1], sizes[1:], strict=True)
            )
        )
        self.register_buffer("mean", torch.tensor([0.485, 0.456, 0.406]).view(3, 1, 1))
        self.register_buffer("std", torch.tensor([0.229, 0.224, 0.225]).view(3, 1, 1))

    def forward(self, frames: Tensor) -> Tensor:
        return self.stages((frames - self.mean) / self.std)


class Attention(nn.Module):
    """Attention of `queries` (b, q, DIM) over `memory` (b, m, DIM); `keep` (b, m) is bool, False for padding."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value, self.out = (nn.Linear(DIM, DIM) for _ in range(4))

    def forward(self, queries: Tensor, memory: Tensor, keep: Tensor) -> Tensor:
        q, k, v = (
            x.unflatten(-1, (HEADS, DIM // HEADS)).transpose(1, 2)
            for x in (self.query(queries), self.key(memory), self.value(memory))
        )
        mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=keep[:, None, None, :])
        return self.out(mixed.transpose(1, 2).flatten(2))


class Block(nn.Module):
    """Actions attend to the observation, then an MLP."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = Attention()
        self.mlp = nn.Sequential(nn.Linear(DIM, 4 * DIM), nn.GELU(), nn.Linear(4 * DIM, DIM))
        self.norm_queries, self.norm_mlp = nn.LayerNorm(DIM), nn.LayerNorm(DIM)

    def forward(self, actions: Tensor, memory: Tensor, keep: Tensor) -> Tensor:
        actions = actions + self.attention(self.norm_queries(actions), memory, keep)
        return actions + self.mlp(self.norm_mlp(actions))


class CameraPolicy(nn.Module):
    """Frames, joint state and the cameras' padding mask to a chunk of actions.

    forward(frames, state, camera_missing):
        frames: (b, CAMERAS, HEIGHT, WIDTH, 3) uint8.
        state: (b, STATE) float32.
        camera_missing: (b, CAMERAS) bool, True where a camera gave no frame.
    Returns (b, CHUNK, ACTIONS) float32 in -1 to 1.
    """

    def __init__(self) -> None:
        super().__init__()
        tokens = (HEIGHT // 16) * (WIDTH // 16)
        self.trunk = Trunk()
        self.position = nn.Parameter(0.02 * torch.randn(CAMERAS, tokens, DIM))
        self.state = nn.Linear(STATE, DIM)
        self.queries = nn.Parameter(0.02 * torch.randn(CHUNK, DIM))
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.head = nn.Sequential(nn.LayerNorm(DIM), nn.Linear(DIM, ACTIONS), nn.Tanh())

    def forward(self, frames: Tensor, state: Tensor, camera_missing: Tensor) -> Tensor:
        batch = frames.shape[0]
        pixels = frames.permute(0, 1, 4, 2, 3).flatten(0, 1).float() / 255
        features = self.trunk(pixels).flatten(2).transpose(1, 2).unflatten(0, (batch, CAMERAS))
        seen = (features + self.position).flatten(1, 2)
        memory = torch.cat([self.state(state)[:, None], seen], dim=1)

        tokens = self.position.shape[1]
        missing = camera_missing[:, :, None].expand(-1, -1, tokens).flatten(1)
        always = torch.zeros(batch, 1, dtype=torch.bool, device=missing.device)
        keep = ~torch.cat([always, missing], dim=1)

        actions = self.queries.expand(batch, -1, -1)
        for block in self.blocks:
            actions = block(actions, memory, keep)
        return self.head(actions)


def policy() -> tuple[nn.Module, tuple[Tensor, Tensor, Tensor]]:
    """The policy with seeded weights, in eval mode, and inputs of one time step in which the second camera is out."""
    torch.manual_seed(0)
    model = CameraPolicy().eval()
    frames = torch.randint(0, 256, (1, CAMERAS, HEIGHT, WIDTH, 3), dtype=torch.uint8)
    return model, (frames, torch.randn(1, STATE), torch.tensor([[False, True]]))
