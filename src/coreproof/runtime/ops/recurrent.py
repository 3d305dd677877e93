"""Recurrent layers over [sequence, batch, features]; weights are rows of gates."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

_ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": torch.relu,
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "hard_sigmoid": lambda x: (0.2 * x + 0.5).clamp(0, 1),
    "sigmoid_hard": lambda x: (0.2 * x + 0.5).clamp(0, 1),
    "scaled_tanh": torch.tanh,  # its scales have no operand here, and default to 1
    "linear": lambda x: x,
}


def _activation(name: str) -> Callable[[Tensor], Tensor]:
    if name.lower() not in _ACTIVATIONS:
        raise ValueError(f"unknown activation {name!r}; expected {', '.join(_ACTIVATIONS)}")
    return _ACTIVATIONS[name.lower()]


def _steps(x: Tensor, direction: str) -> list[Tensor]:
    if direction not in ("forward", "reverse"):
        raise ValueError(f"unknown direction {direction!r}")
    return list(x if direction == "forward" else x.flip(0))


def _hidden(steps: list[Tensor], output_sequence: bool) -> Tensor:
    """Every step in the order of computation (a reversed layer's first is x's last), or the one computed last."""
    return torch.stack(steps) if output_sequence else steps[-1][None]


def rnn(
    x: Tensor,
    initial_h: Tensor,
    weight_ih: Tensor,
    weight_hh: Tensor,
    bias: Tensor | None = None,
    direction: str = "forward",
    output_sequence: bool = False,
    activation: str = "tanh",
) -> list[Tensor]:
    """h = activation(W x + R h + b); returns the steps and the last h"""
    act, h, found = _activation(activation), initial_h, []
    for step in _steps(x, direction):
        h = act(F.linear(step, weight_ih, bias) + F.linear(h, weight_hh))
        found.append(h)
    return [_hidden(found, output_sequence), h]


def gru(
    x: Tensor,
    initial_h: Tensor,
    weight_ih: Tensor,
    weight_hh: Tensor,
    bias: Tensor | None = None,
    direction: str = "forward",
    output_sequence: bool = False,
    recurrent_activation: str = "sigmoid",
    activation: str = "tanh",
) -> list[Tensor]:
    """Gates r, o, z: h = (1 - z) * o + z * h, o = activation(W_o x + R_o (r * h) + b_o)"""
    return gru_ios18(
        x, initial_h, weight_ih, weight_hh, bias, direction, output_sequence, recurrent_activation, activation
    )


def gru_ios18(
    x: Tensor,
    initial_h: Tensor,
    weight_ih: Tensor,
    weight_hh: Tensor,
    bias: Tensor | None = None,
    direction: str = "forward",
    output_sequence: bool = False,
    recurrent_activation: str = "sigmoid",
    activation: str = "tanh",
    reset_after: bool = False,
    input_bias: Tensor | None = None,
) -> list[Tensor]:
    """As before; reset_after: o = activation(W_o x + c_o + r * (R_o h + b_o)), c the input bias"""
    inner, act = _activation(recurrent_activation), _activation(activation)
    size = weight_hh.shape[1]
    hidden_bias = weight_hh.new_zeros(3 * size) if bias is None else bias
    reset_row, output_row, update_row = weight_hh.split(size)
    reset_bias, output_bias, update_bias = hidden_bias.split(size)
    h, found = initial_h, []
    for step in _steps(x, direction):
        from_reset, from_output, from_update = F.linear(step, weight_ih, input_bias).split(size, -1)
        r = inner(from_reset + F.linear(h, reset_row, reset_bias))
        z = inner(from_update + F.linear(h, update_row, update_bias))
        if reset_after:
            o = act(from_output + r * F.linear(h, output_row, output_bias))
        else:
            o = act(from_output + F.linear(r * h, output_row, output_bias))
        h = (1 - z) * o + z * h
        found.append(h)
    return [_hidden(found, output_sequence), h]


def lstm(
    x: Tensor,
    initial_h: Tensor,
    initial_c: Tensor,
    weight_ih: Tensor,
    weight_hh: Tensor,
    bias: Tensor | None = None,
    peephole: Tensor | None = None,
    weight_ih_back: Tensor | None = None,
    weight_hh_back: Tensor | None = None,
    bias_back: Tensor | None = None,
    peephole_back: Tensor | None = None,
    direction: str = "forward",
    output_sequence: bool = False,
    recurrent_activation: str = "sigmoid",
    cell_activation: str = "tanh",
    activation: str = "tanh",
    clip: float | None = None,
) -> list[Tensor]:
    """Gates i, f, o, z: c = f * c + i * z, h = o * activation(c); returns the steps, the last h and the last c"""
    acts = [_activation(name) for name in (recurrent_activation, cell_activation, activation)]
    if direction != "bidirectional":
        return _lstm_one_way(
            x, initial_h, initial_c, weight_ih, weight_hh, bias, peephole, direction, output_sequence, acts, clip
        )
    if weight_ih_back is None or weight_hh_back is None:
        raise ValueError("a bidirectional lstm needs weight_ih_back and weight_hh_back")
    size = weight_hh.shape[1]
    forth = _lstm_one_way(
        x, initial_h[:, :size], initial_c[:, :size], weight_ih, weight_hh, bias, peephole,
        "forward", output_sequence, acts, clip,
    )  # fmt: skip
    back = _lstm_one_way(
        x, initial_h[:, size:], initial_c[:, size:], weight_ih_back, weight_hh_back, bias_back, peephole_back,
        "reverse", output_sequence, acts, clip,
    )  # fmt: skip
    back[0] = back[0].flip(0)  # only here do both directions follow the order of x
    return [torch.cat(pair, -1) for pair in zip(forth, back, strict=True)]


def _lstm_one_way(
    x: Tensor,
    h: Tensor,
    c: Tensor,
    weight_ih: Tensor,
    weight_hh: Tensor,
    bias: Tensor | None,
    peephole: Tensor | None,
    direction: str,
    output_sequence: bool,
    acts: list[Callable[[Tensor], Tensor]],
    clip: float | None,
) -> list[Tensor]:
    size = weight_hh.shape[1]
    inner, cell, outer = acts
    zeros = weight_hh.new_zeros(size)
    peep_i, peep_f, peep_o = (zeros, zeros, zeros) if peephole is None else peephole.split(size)
    found = []
    for step in _steps(x, direction):
        gates = F.linear(step, weight_ih, bias) + F.linear(h, weight_hh)
        from_i, from_f, from_o, from_z = gates.split(size, -1)
        i, f, z = inner(from_i + c * peep_i), inner(from_f + c * peep_f), cell(from_z)
        c = f * c + i * z
        if clip is not None:
            c = c.clamp(-clip, clip)
        h = inner(from_o + c * peep_o) * outer(c)
        found.append(h)
    return [_hidden(found, output_sequence), h, c]
