"""SmolVLM's vision embeddings: patches of an image that fills only part of its canvas.

Each patch takes the position embedding of the place in the image, as a
fraction, that it covers; a bool mask says which patches the image fills.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from .parts import Pixels

SIDE, PATCH = 48, 8


class VisionEmbeddings(nn.Module):
    """Frames uint8 (N, SIDE, SIDE, 3), patches filled bool (N, SIDE / PATCH, SIDE / PATCH) -> (N, patches, width)."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.per_side = SIDE // PATCH
        self.pixels, self.patches = Pixels(), nn.Conv2d(3, width, PATCH, PATCH)
        self.positions = nn.Embedding(self.per_side**2, width)

    def bucket(self, count: Tensor) -> Tensor:
        """Patches filled along one axis, int64 (N,) -> where each patch of that axis lies, int64 (N, per_side)."""
        fraction = torch.arange(self.per_side, dtype=torch.float32) * (1.0 / count)[:, None]
        boundaries = torch.arange(1, self.per_side) / self.per_side
        return torch.bucketize(fraction.clamp(max=1 - 1e-6), boundaries, right=True)

    def forward(self, images: Tensor, filled: Tensor) -> Tensor:
        batch = images.shape[0]
        embedded = self.patches(self.pixels(images)).flatten(2).transpose(1, 2)
        rows = self.bucket(filled[:, :, 0].sum(dim=1))
        columns = self.bucket(filled[:, 0, :].sum(dim=1))
        where = (rows[:, :, None] * self.per_side + columns[:, None, :]).reshape(batch, -1)
        positions = torch.full((batch, self.per_side**2), 0)
        inside = filled.view(batch, -1)
        positions[inside] = where[inside]
        return embedded + self.positions(positions)


def smolvlm_vision() -> tuple[nn.Module, tuple, None]:
    """Two images: one fills 4 by 6 patches, the other 6 by 3."""
    torch.manual_seed(0)
    filled = torch.zeros(2, SIDE // PATCH, SIDE // PATCH, dtype=torch.bool)
    filled[0, :4], filled[1, :, :3] = True, True
    images = torch.randint(0, 256, (2, SIDE, SIDE, 3), dtype=torch.uint8)
    return VisionEmbeddings().eval(), (images, filled), None
