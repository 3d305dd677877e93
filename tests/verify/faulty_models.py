"""Small models, each with many ops of a kind, whose converted programs faults are planted in."""

from __future__ import annotations

import torch
from lowered import Call
from torch import nn
from torch.nn import functional as F

_GENERATOR = torch.Generator().manual_seed(3)


def _randn(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=_GENERATOR)


SQUARE, OTHER = _randn(6, 6) * 2, _randn(6, 6) * 2
OTHER[0] = SQUARE[0]  # ties
IMAGE = _randn(1, 4, 9, 9)
INTEGERS = torch.tensor([[7, -7, 9, 2, -3, 5], [-8, 4, -5, 6, 1, -1]])
TOKENS = torch.tensor([[3, 1, 4], [1, 5, 2]])


def activations(m, x):
    return (
        F.gelu(x, approximate="tanh"),
        F.leaky_relu(x, 0.1),
        F.elu(x, 0.7),
        x.clamp(-1, 0.5),
        x.sigmoid(),
        F.softplus(x),
        F.silu(x),
        F.gelu(x * 3),
        (x / 7).tanh(),
    )


def arithmetic(m, x, y):
    return (
        x - y,
        x / y,
        x.abs() ** y,
        x > y,
        torch.maximum(x, y),
        torch.where(x > 0, x * 2, y),
        x * 0.3 + y,
        (x * 4).floor() * 0.5,
        x.exp(),
        y.sin(),
        x >= y,
    )


def integers(m, i):
    return (
        torch.div(i, 3, rounding_mode="trunc"),
        torch.div(i, 4, rounding_mode="floor"),
        i * 3 + 70001,
        i.remainder(5),
        i.clamp(-2, 5),
        i == 4,
        i.bool().int() + 1,
    )


def shapes(m, x, y):
    return (
        torch.cat([x, y], 1),
        (x * 1.5)[:, 1:4],
        x.t() + 1,
        F.pad(x, (1, 2)),
        F.pad(x.unsqueeze(0), (2, 2), mode="reflect"),
        x.flip(0),
        x.repeat(1, 2),
        x.reshape(3, 2, 6).permute(0, 2, 1).reshape(6, 6) * 2,
        torch.stack([y, x]),
        y.split(2, 1)[1] * 3,
        x.unsqueeze(0),
    )


def reductions(m, x):
    return (
        x.sum(1),
        x.mean(0),
        x.amax(1),
        x.argmax(1),
        x.cumsum(1),
        *x.topk(2, 1),
        x.softmax(1),
        x.logsumexp(1),
        x.sum(0, keepdim=True),
    )


class Norms(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.rms = nn.LayerNorm(6), nn.LayerNorm((6, 6), elementwise_affine=False)
        self.batch = nn.BatchNorm2d(4)
        self.instance = nn.InstanceNorm2d(4)
        for p in (self.layer.weight, self.layer.bias, self.batch.weight, self.batch.bias):
            nn.init.uniform_(p, 0.5, 1.5)
        self.batch.running_mean.uniform_(-1, 1)
        self.batch.running_var.uniform_(0.5, 2)

    def forward(self, x, image):
        return self.layer(x), self.rms(x), self.batch(image), F.normalize(x, dim=1)


class Vision(nn.Module):
    def __init__(self):
        super().__init__()
        self.plain = nn.Conv2d(4, 4, 3, padding=1)
        self.strided = nn.Conv2d(4, 6, 3, stride=2)
        self.dilated = nn.Conv2d(4, 4, 3, padding=2, dilation=2)
        self.grouped = nn.Conv2d(4, 4, 3, groups=2)
        self.up = nn.ConvTranspose2d(4, 4, 3, padding=1)

    def forward(self, x):
        return (
            self.plain(x),
            self.strided(x),
            self.dilated(x),
            self.grouped(x),
            self.up(x),
            F.max_pool2d(x, 3, 2),
            F.avg_pool2d(x, 3, 2, padding=1, count_include_pad=False),
            F.interpolate(x, scale_factor=2, mode="bilinear", align_corners=True),
            F.interpolate(x, scale_factor=2, mode="nearest"),
            F.max_pool2d(F.relu(x), 2, 2, ceil_mode=True),
            F.pixel_shuffle(x, 2),
        )


class Attention(nn.Module):
    """Two heads of three; the mask hides two positions."""

    def __init__(self):
        super().__init__()
        self.query, self.key, self.value = nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(6, 6)
        self.out = nn.Linear(6, 6)
        self.register_buffer("mask", torch.tensor([[True, True, True, True, False, True]] * 5 + [[True] * 6]))

    def forward(self, x):
        q, k, v = (f(x).reshape(1, 6, 2, 3).transpose(1, 2) for f in (self.query, self.key, self.value))
        mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=self.mask)
        return self.out(mixed.transpose(1, 2).reshape(1, 6, 6)) + x


class Products(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(6, 6), nn.Linear(6, 6)

    def forward(self, x, y):
        hidden = F.relu(self.up(x))
        return self.down(hidden) + x, x @ y, torch.einsum("ij,kj->ik", x * 2, y)


class Cache(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("seen", torch.zeros(6, 6))

    def forward(self, x):
        self.seen.mul_(0.5).add_(x)
        return self.seen.sum(1), x * 2


class Indexing(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(6, 6)

    def forward(self, x, tokens):
        index = tokens.clamp(0, 5)
        columns = torch.cat([index, index.flip(0)], 1)
        return (
            self.table(tokens),
            x.index_select(1, columns[0]),
            torch.zeros(6, 6).scatter_add(0, index, x[:2, :3]) * 2,
            x.gather(1, torch.cat([columns] * 3)),
            x.masked_fill(x > 0.5, 0.25),
        )


class Deep(nn.Module):
    """A fault in its middle shows in everything after it."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(6, 6) for _ in range(6))
        self.norm = nn.LayerNorm(6)

    def forward(self, x):
        for layer in self.layers:
            x = x + F.gelu(layer(self.norm(x)), approximate="tanh")
        return x.softmax(-1)


MODELS = {
    "activations": (lambda: Call(activations), (SQUARE,)),
    "arithmetic": (lambda: Call(arithmetic), (SQUARE, OTHER)),
    "integers": (lambda: Call(integers), (INTEGERS,)),
    "shapes": (lambda: Call(shapes), (SQUARE, OTHER)),
    "reductions": (lambda: Call(reductions), (SQUARE,)),
    "norms": (Norms, (SQUARE, IMAGE)),
    "vision": (Vision, (IMAGE,)),
    "attention": (Attention, (SQUARE.unsqueeze(0),)),
    "products": (Products, (SQUARE, OTHER)),
    "state": (Cache, (SQUARE,)),
    "indexing": (Indexing, (SQUARE, TOKENS)),
    "deep": (Deep, (SQUARE,)),
}
