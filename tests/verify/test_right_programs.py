"""A hundred programs that are right: none is called wrong, whatever the precision and the target."""

from __future__ import annotations

import pytest
import torch
from lowered import Call
from torch import nn
from torch.nn import functional as F

import coreproof

torch.manual_seed(0)
ROWS = torch.randn(4, 6)
IMAGE = torch.randn(1, 3, 8, 10)
PIXELS = torch.randint(0, 256, (1, 8, 10, 3), dtype=torch.uint8)
TOKENS = torch.tensor([[3, 1, 4, 1], [5, 9, 2, 6]])
MASK = torch.tensor([[True, True, False, True, False, True]] * 4)


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv, self.out = nn.Linear(12, 36), nn.Linear(12, 12)

    def forward(self, x):
        q, k, v = (part.unflatten(-1, (4, 3)).transpose(1, 2) for part in self.qkv(x).chunk(3, -1))
        mixed = F.scaled_dot_product_attention(q, k, v)  # a scale of 1 / sqrt(3), which float16 rounds
        return x + self.out(mixed.transpose(1, 2).flatten(2))


class Cache(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("seen", torch.zeros(4, 6))

    def forward(self, x):
        self.seen.mul_(0.5).add_(x)
        return self.seen.mean(1), x * 2


def residual():
    norm = nn.BatchNorm2d(3)
    norm.running_mean.uniform_(-1, 1)
    norm.running_var.uniform_(0.5, 2)
    return nn.Sequential(nn.Conv2d(3, 3, 3, padding=1), norm, nn.ReLU(), nn.Conv2d(3, 5, 3, stride=2), nn.Flatten())


# Each: a module, or a function of its inputs, and the inputs.
PROGRAMS = {
    "linear": (nn.Linear(6, 5), (ROWS,)),
    "mlp": (nn.Sequential(nn.Linear(6, 32), nn.GELU(), nn.Linear(32, 3)), (ROWS,)),
    "mlp tanh": (nn.Sequential(nn.Linear(6, 32), nn.GELU(approximate="tanh"), nn.Linear(32, 3)), (ROWS,)),
    "silu": (nn.Sequential(nn.Linear(6, 8), nn.SiLU(), nn.Softplus(), nn.ELU()), (ROWS,)),
    "layer norm": (nn.Sequential(nn.LayerNorm(6), nn.Linear(6, 6), nn.Tanh()), (ROWS,)),
    "rms norm": (nn.Sequential(nn.RMSNorm(6, eps=1e-5), nn.Linear(6, 2)), (ROWS,)),
    "group norm": (nn.Sequential(nn.Conv2d(3, 4, 3), nn.GroupNorm(2, 4)), (IMAGE,)),
    "folded batch norm": (residual(), (IMAGE,)),
    "pooling": (nn.Sequential(nn.MaxPool2d(2), nn.AvgPool2d(2), nn.Flatten()), (IMAGE,)),
    "transposed convolution": (nn.ConvTranspose2d(3, 4, 3, stride=2, padding=1), (IMAGE,)),
    "upsampling": (lambda m, x: F.interpolate(x, scale_factor=2, mode="bilinear"), (IMAGE,)),
    "pixels": (lambda m, x: x.permute(0, 3, 1, 2).float() / 255 - 0.5, (PIXELS,)),
    "attention": (Attention(), (torch.randn(2, 5, 12),)),
    "embedding": (nn.Sequential(nn.Embedding(10, 8), nn.Linear(8, 3)), (TOKENS,)),
    "softmax": (lambda m, x: (x * 5).softmax(-1), (ROWS,)),
    "masked softmax": (lambda m, x, k: x.masked_fill(~k, torch.finfo(x.dtype).min).softmax(-1), (ROWS, MASK)),
    "division": (lambda m, x: x / 7 + x / 255 - x / 3, (ROWS,)),
    "statistics": (lambda m, x: (x.mean(1), x.var(1), x.std(0), x.amax(1)), (ROWS,)),
    "trigonometry": (lambda m, x: x.sin() * x.cos() + torch.atan(x), (ROWS,)),
    "exponentials": (lambda m, x: x.exp() + x.abs().add(1).log() + x.abs().sqrt(), (ROWS,)),
    "integers": (lambda m, i: (i * 3 + 1, i // 2, i % 4, i.clamp(2, 5)), (TOKENS,)),
    "large integers": (lambda m, i: i * 70001 - 3, (TOKENS,)),
    "indices": (lambda m, x: (x.argmax(1), x.topk(2, 1)[1], x.sort(1)[0]), (ROWS,)),
    "comparisons": (lambda m, x: ((x > 0), (x > 0).float() * x, torch.where(x > 0, x, x * 0.1)), (ROWS,)),
    "gather": (lambda m, x, i: x.gather(1, i), (ROWS, TOKENS.reshape(4, 2).clamp(0, 5))),
    "views": (lambda m, x: x.reshape(2, 12).t().unsqueeze(0).flip(1)[:, 2:7], (ROWS,)),
    "pieces": (lambda m, x: torch.cat([p * 2 for p in x.split(2, 1)] + [x[:, -1:]], 1), (ROWS,)),
    "sums": (lambda m, x: (x.cumsum(1), x.sum(), x.prod(1)), (ROWS,)),
    "products": (lambda m, x: (x @ x.t(), torch.einsum("ij,kj->ik", x, x * 2)), (ROWS,)),
    "recurrent": (nn.LSTM(6, 4, batch_first=True), (torch.randn(1, 3, 6),)),
    "state": (Cache(), (ROWS,)),
    "padding": (lambda m, x: F.pad(x, (1, 2, 0, 1), value=0.3), (ROWS,)),
    "a constant and an input": (lambda m, x: x * torch.arange(6) + torch.full((6,), 0.1), (ROWS,)),
    "half the input": (lambda m, x: (x.half() * 1.3).float() + x, (ROWS,)),
}
SETTINGS = [
    ("float16", "iOS18"),
    pytest.param("float32", "iOS18", marks=pytest.mark.slow),
    pytest.param("float16", "iOS15", marks=pytest.mark.slow),
]


@pytest.mark.parametrize("precision, target", SETTINGS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_no_false_alarm(name, precision, target):
    made, inputs = PROGRAMS[name]
    module = (made if isinstance(made, nn.Module) else Call(made)).eval()
    lowered = coreproof.lower(
        module, inputs, compute_precision=precision, minimum_deployment_target=target, on_mismatch="keep"
    )
    found = lowered.verification
    assert found.outcome == "match", [(check.subject, check.outcome, check.what()) for check in found.checks]


def test_there_are_a_hundred():
    assert len(PROGRAMS) * len(SETTINGS) >= 100
