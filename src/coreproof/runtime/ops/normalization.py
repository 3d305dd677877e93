"""Normalisations."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from .convert import Ints


def _by_channel(x: Tensor, parameter: Tensor) -> Tensor:
    return parameter.reshape(1, -1, *[1] * (x.dim() - 2))


def _scaled(x: Tensor, gamma: Tensor | None, beta: Tensor | None) -> Tensor:
    x = x if gamma is None else x * gamma
    return x if beta is None else x + beta


def batch_norm(
    x: Tensor,
    mean: Tensor,
    variance: Tensor,
    gamma: Tensor | None = None,
    beta: Tensor | None = None,
    epsilon: float = 1e-5,
) -> Tensor:
    """gamma_c * (x - mean_c) / sqrt(variance_c + epsilon) + beta_c, channels in dimension 1"""
    return F.batch_norm(x, mean, variance, gamma, beta, training=False, eps=epsilon)


def instance_norm(x: Tensor, gamma: Tensor | None = None, beta: Tensor | None = None, epsilon: float = 1e-5) -> Tensor:
    """As batch_norm, with mean and variance of each sample and channel"""
    if x.dim() < 3:
        raise ValueError(f"x has shape {list(x.shape)}; expected rank 3 or more")
    axes = list(range(2, x.dim()))
    centred = x - x.mean(axes, keepdim=True)
    normal = centred / torch.sqrt(centred.square().mean(axes, keepdim=True) + epsilon)
    return _scaled(
        normal, None if gamma is None else _by_channel(x, gamma), None if beta is None else _by_channel(x, beta)
    )


def l2_norm(x: Tensor, epsilon: float = 1e-6) -> Tensor:
    """x / sqrt(sum(x ** 2) + epsilon), over the last three dimensions"""
    axes = list(range(max(0, x.dim() - 3), x.dim()))
    return x / torch.sqrt(x.square().sum(axes, keepdim=True) + epsilon)


def layer_norm(
    x: Tensor,
    axes: Ints | None = None,
    gamma: Tensor | None = None,
    beta: Tensor | None = None,
    epsilon: float = 1e-5,
) -> Tensor:
    """gamma * (x - mean) / sqrt(variance + epsilon) + beta, over axes (none: all)"""
    chosen = sorted(axis % x.dim() for axis in (range(x.dim()) if axes is None else axes))
    if chosen == list(range(x.dim() - len(chosen), x.dim())):
        return F.layer_norm(x, [x.shape[axis] for axis in chosen], gamma, beta, epsilon)
    centred = x - x.mean(chosen, keepdim=True)
    normal = centred / torch.sqrt(centred.square().mean(chosen, keepdim=True) + epsilon)
    shape = [x.shape[axis] if axis in chosen else 1 for axis in range(x.dim())]
    return _scaled(
        normal, None if gamma is None else gamma.reshape(shape), None if beta is None else beta.reshape(shape)
    )


def local_response_norm(x: Tensor, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0) -> Tensor:
    """x / (k + alpha / size * sum of x ** 2 over `size` neighbouring channels) ** beta"""
    return F.local_response_norm(x, size, alpha, beta, k)
