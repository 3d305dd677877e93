"""Activations. All are element by element except softmax."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def clamped_relu(x: Tensor, alpha: float, beta: float) -> Tensor:
    """min(beta, x) for x >= 0, min(beta, alpha * x) below"""
    return torch.where(x >= 0, x, alpha * x).clamp(max=beta)


def elu(x: Tensor, alpha: float) -> Tensor:
    """x for x > 0, alpha * (exp(x) - 1) otherwise"""
    return torch.where(x > 0, x, alpha * torch.expm1(x))


def gelu(x: Tensor, mode: str = "EXACT") -> Tensor:
    """EXACT: with erf; TANH_APPROXIMATION; SIGMOID_APPROXIMATION: x * sigmoid(1.702 * x)"""
    if mode == "SIGMOID_APPROXIMATION":
        return x * torch.sigmoid(1.702 * x)
    return F.gelu(x, approximate={"EXACT": "none", "TANH_APPROXIMATION": "tanh"}[_known(mode)])


def _known(mode: str) -> str:
    if mode not in ("EXACT", "TANH_APPROXIMATION"):
        raise ValueError(f"unknown mode {mode!r}")
    return mode


def leaky_relu(x: Tensor, alpha: float) -> Tensor:
    """x for x >= 0, alpha * x below"""
    return torch.where(x >= 0, x, alpha * x)


def linear_activation(x: Tensor, alpha: float, beta: float) -> Tensor:
    """alpha * x + beta"""
    return alpha * x + beta


def _by_channel(x: Tensor, parameter: Tensor) -> Tensor:
    """A parameter of one value for each channel (dimension 1), or one for all."""
    return parameter.reshape(-1, *[1] * (x.dim() - 2)) if parameter.dim() else parameter


def prelu(x: Tensor, alpha: Tensor) -> Tensor:
    """x for x > 0, alpha_c * x otherwise"""
    return torch.where(x > 0, x, _by_channel(x, alpha) * x)


def relu(x: Tensor) -> Tensor:
    """max(0, x)"""
    return torch.relu(x)


def relu6(x: Tensor) -> Tensor:
    """min(max(0, x), 6)"""
    return F.relu6(x)


def scaled_tanh(x: Tensor, alpha: float, beta: float) -> Tensor:
    """alpha * tanh(beta * x)"""
    return alpha * torch.tanh(beta * x)


def sigmoid(x: Tensor) -> Tensor:
    """1 / (1 + exp(-x))"""
    return torch.sigmoid(x)


def sigmoid_hard(x: Tensor, alpha: float, beta: float) -> Tensor:
    """min(max(alpha * x + beta, 0), 1)"""
    return (alpha * x + beta).clamp(0, 1)


def silu(x: Tensor) -> Tensor:
    """x * sigmoid(x)"""
    return F.silu(x)


def softplus(x: Tensor) -> Tensor:
    """log(1 + exp(x))"""
    return torch.logaddexp(x, torch.zeros((), dtype=x.dtype))


def softplus_parametric(x: Tensor, alpha: Tensor, beta: Tensor) -> Tensor:
    """alpha_c * log(1 + exp(beta_c * x))"""
    return _by_channel(x, alpha) * softplus(_by_channel(x, beta) * x)


def softmax(x: Tensor, axis: int = -1) -> Tensor:
    """exp(x) / sum(exp(x)) along an axis"""
    return torch.softmax(x, axis)


def softsign(x: Tensor) -> Tensor:
    """x / (1 + |x|)"""
    return F.softsign(x)


def thresholded_relu(x: Tensor, alpha: float) -> Tensor:
    """x for x >= alpha, 0 below"""
    return torch.where(x >= alpha, x, torch.zeros((), dtype=x.dtype))
