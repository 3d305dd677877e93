"""VQ-BeT: a GPT that picks codes of a residual vector quantiser, and an offset (Lee et al., 2024)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from .parts import ACTION, HEIGHT, STATE, WIDTH, Block, ConvTrunk, Pixels, SpatialSoftmax, frames

STEPS, CHUNK, LAYERS, CODES = 3, 3, 2, 8


class ResidualCodebooks(nn.Module):
    """Codes int64 (N, LAYERS) -> the sum of the layers' vectors, decoded to (N, CHUNK * ACTION)."""

    def __init__(self, width: int = 12) -> None:
        super().__init__()
        self.register_buffer("codebooks", torch.randn(LAYERS, CODES, width))
        self.decoder = nn.Sequential(nn.Linear(width, 32), nn.ReLU(), nn.Linear(32, CHUNK * ACTION))

    def forward(self, codes: Tensor) -> Tensor:
        layers = torch.arange(LAYERS)
        return self.decoder(self.codebooks[layers, codes].sum(dim=1))


class VQBeT(nn.Module):
    """Frames uint8 (STEPS, H, W, 3), states (1, STEPS, STATE) -> actions (1, CHUNK, ACTION).

    With a third input, `draw` of uniform numbers (1, STEPS, LAYERS, 1), codes are
    sampled by inverting the cumulative probabilities; without, the likeliest wins.
    """

    def __init__(self, width: int = 32, heads: int = 4, points: int = 6) -> None:
        super().__init__()
        self.pixels, self.trunk = Pixels(), ConvTrunk(16, group_norm=True)
        self.keypoints = SpatialSoftmax(16, HEIGHT // 8, WIDTH // 8, points)
        self.from_image, self.from_state = nn.Linear(2 * points, width), nn.Linear(STATE, width)
        self.asked = nn.Parameter(torch.randn(1, 1, width))
        self.positions = nn.Embedding(3 * STEPS, width)
        self.blocks = nn.Sequential(*[Block(width, heads, causal=True) for _ in range(2)])
        self.norm = nn.LayerNorm(width)
        self.to_codes = nn.Linear(width, LAYERS * CODES)
        self.to_offsets = nn.Linear(width, LAYERS * CODES * CHUNK * ACTION)
        self.codebooks = ResidualCodebooks()

    def forward(self, images: Tensor, states: Tensor, draw: Tensor | None = None) -> Tensor:
        seen = self.from_image(self.keypoints(self.trunk(self.pixels(images))))[None]
        asked = self.asked.expand(1, STEPS, -1)
        tokens = torch.stack([seen, self.from_state(states), asked], dim=2).flatten(1, 2)
        x = tokens + self.positions(torch.arange(tokens.shape[1]))
        x = self.norm(self.blocks(x))[:, 2::3]

        probabilities = self.to_codes(x).view(1, STEPS, LAYERS, CODES).softmax(dim=-1)
        codes = probabilities.argmax(dim=-1) if draw is None else self.sample(probabilities, draw)
        offsets = self.to_offsets(x).view(STEPS, LAYERS, CODES, CHUNK * ACTION)
        chosen = codes.view(STEPS, LAYERS, 1, 1).expand(-1, -1, 1, CHUNK * ACTION)
        offset = offsets.gather(2, chosen).squeeze(2).sum(dim=1)
        actions = self.codebooks(codes.view(STEPS, LAYERS)) + offset
        return actions.view(1, STEPS, CHUNK, ACTION)[:, -1]

    @staticmethod
    def sample(probabilities: Tensor, draw: Tensor) -> Tensor:
        """The first code whose cumulative probability exceeds the number drawn, int64 (1, STEPS, LAYERS)."""
        code = torch.searchsorted(probabilities.cumsum(dim=-1), draw, right=True).squeeze(-1)
        return code.clamp(max=CODES - 1)


def vqbet() -> tuple[nn.Module, tuple, None]:
    """Greedy codes."""
    torch.manual_seed(0)
    return VQBeT().eval(), (frames(STEPS), torch.randn(1, STEPS, STATE)), None


def vqbet_sampled() -> tuple[nn.Module, tuple, None]:
    """Codes sampled from numbers that are an input."""
    module, inputs, _ = vqbet()
    return module, (*inputs, torch.rand(1, STEPS, LAYERS, 1)), None
