"""Recurrent layers, against torch's own and against the formulas written out in numpy."""

import numpy as np
import pytest
import torch
from op_run import run

STEPS, BATCH, WIDTH, SIZE = 4, 2, 3, 5
ATOL = 1e-6  # values below 1, each a sum of some ten products: a few 2**-24


def sample(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


def gates(weight, order):
    """Rows of gates in another order."""
    parts = weight.detach().chunk(len(order))
    return torch.cat([parts[k] for k in order])


LSTM = (0, 1, 3, 2)  # torch has i, f, z, o
GRU = (0, 2, 1)  # torch has r, z, o


def close(got, expected):
    torch.testing.assert_close(got, expected.detach(), rtol=0, atol=ATOL)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


@pytest.mark.parametrize("output_sequence", [True, False])
@pytest.mark.parametrize("direction", ["forward", "reverse"])
@pytest.mark.parametrize("kind", ["tanh", "relu"])
def test_rnn(direction, output_sequence, kind):
    layer = torch.nn.RNN(WIDTH, SIZE, nonlinearity=kind)
    x, h = sample(STEPS, BATCH, WIDTH), sample(1, BATCH, SIZE)
    steps, last = layer(x if direction == "forward" else x.flip(0), h)  # a reversed layer's steps stay reversed
    got = run(
        "rnn", x=x, initial_h=h[0], weight_ih=layer.weight_ih_l0.detach(), weight_hh=layer.weight_hh_l0.detach(),
        bias=(layer.bias_ih_l0 + layer.bias_hh_l0).detach(), direction=direction, output_sequence=output_sequence,
        activation=kind,
    )  # fmt: skip
    close(got[0], steps if output_sequence else steps[-1:])
    close(got[1], last[0])


@pytest.mark.parametrize("output_sequence", [True, False])
@pytest.mark.parametrize("direction", ["forward", "reverse"])
def test_gru_resets_after_the_product_as_torch_does_where_asked(direction, output_sequence):
    layer = torch.nn.GRU(WIDTH, SIZE)
    x, h = sample(STEPS, BATCH, WIDTH), sample(1, BATCH, SIZE)
    steps, last = layer(x if direction == "forward" else x.flip(0), h)
    got = run(
        "gru", x=x, initial_h=h[0], weight_ih=gates(layer.weight_ih_l0, GRU), weight_hh=gates(layer.weight_hh_l0, GRU),
        bias=gates(layer.bias_hh_l0, GRU), input_bias=gates(layer.bias_ih_l0, GRU), reset_after=True,
        direction=direction, output_sequence=output_sequence,
    )  # fmt: skip
    close(got[0], steps if output_sequence else steps[-1:])
    close(got[1], last[0])


@pytest.mark.parametrize("opset", ["CoreML5", "CoreML8"])
def test_gru_resets_before_the_product_otherwise(opset):
    x, h = sample(STEPS, BATCH, WIDTH).numpy(), sample(BATCH, SIZE).numpy()
    w, r, b = sample(3 * SIZE, WIDTH).numpy(), sample(3 * SIZE, SIZE).numpy(), sample(3 * SIZE).numpy()
    (w_r, w_o, w_z), (r_r, r_o, r_z), (b_r, b_o, b_z) = (np.split(one, 3) for one in (w, r, b))
    state, found = h, []
    for step in x:
        reset = np.tanh(step @ w_r.T + state @ r_r.T + b_r)
        update = np.tanh(step @ w_z.T + state @ r_z.T + b_z)
        new = sigmoid(step @ w_o.T + (reset * state) @ r_o.T + b_o)
        state = (1 - update) * new + update * state
        found.append(state)
    got = run(
        "gru", opset, x=torch.from_numpy(x), initial_h=torch.from_numpy(h), weight_ih=torch.from_numpy(w),
        weight_hh=torch.from_numpy(r), bias=torch.from_numpy(b), output_sequence=True, recurrent_activation="tanh",
        activation="sigmoid",
    )  # fmt: skip
    torch.testing.assert_close(got[0], torch.from_numpy(np.stack(found)), rtol=0, atol=1e-5)


@pytest.mark.parametrize("output_sequence", [True, False])
@pytest.mark.parametrize("direction", ["forward", "reverse"])
def test_lstm_in_one_direction(direction, output_sequence):
    layer = torch.nn.LSTM(WIDTH, SIZE)
    x, h, c = sample(STEPS, BATCH, WIDTH), sample(1, BATCH, SIZE), sample(1, BATCH, SIZE) * 2
    steps, (last_h, last_c) = layer(x if direction == "forward" else x.flip(0), (h, c))
    got = run(
        "lstm", x=x, initial_h=h[0], initial_c=c[0], weight_ih=gates(layer.weight_ih_l0, LSTM),
        weight_hh=gates(layer.weight_hh_l0, LSTM), bias=gates(layer.bias_ih_l0 + layer.bias_hh_l0, LSTM),
        direction=direction, output_sequence=output_sequence,
    )  # fmt: skip
    for ours, theirs in zip(got, (steps if output_sequence else steps[-1:], last_h[0], last_c[0]), strict=True):
        close(ours, theirs)


@pytest.mark.parametrize("output_sequence", [True, False])
def test_lstm_in_both_directions_keeps_the_order_of_x(output_sequence):
    layer = torch.nn.LSTM(WIDTH, SIZE, bidirectional=True)
    x, h, c = sample(STEPS, BATCH, WIDTH), sample(2, BATCH, SIZE), sample(2, BATCH, SIZE) * 2
    steps, (last_h, last_c) = layer(x, (h, c))
    if not output_sequence:  # what each direction computed last
        steps = torch.cat([steps[-1:, :, :SIZE], steps[:1, :, SIZE:]], -1)
    weights = {}
    for ours, theirs in (("", ""), ("_back", "_reverse")):
        ih, hh = getattr(layer, f"weight_ih_l0{theirs}"), getattr(layer, f"weight_hh_l0{theirs}")
        bias = getattr(layer, f"bias_ih_l0{theirs}") + getattr(layer, f"bias_hh_l0{theirs}")
        weights |= {f"weight_ih{ours}": gates(ih, LSTM), f"weight_hh{ours}": gates(hh, LSTM)}
        weights[f"bias{ours}"] = gates(bias, LSTM)
    got = run(
        "lstm", x=x, initial_h=torch.cat([h[0], h[1]], -1), initial_c=torch.cat([c[0], c[1]], -1), **weights,
        direction="bidirectional", output_sequence=output_sequence,
    )  # fmt: skip
    close(got[0], steps)
    close(got[1], torch.cat([last_h[0], last_h[1]], -1))
    close(got[2], torch.cat([last_c[0], last_c[1]], -1))


@pytest.mark.parametrize("clip", [50.0, 0.2])
@pytest.mark.parametrize("outer, formula", [
    ("scaled_tanh", np.tanh), ("hard_sigmoid", lambda x: np.clip(0.2 * x + 0.5, 0, 1)),
    ("relu", lambda x: np.maximum(x, 0)), ("linear", lambda x: x),
])  # fmt: skip
def test_lstm_with_peepholes_and_a_bound_on_the_cell(clip, outer, formula):
    x, h, c = sample(STEPS, BATCH, WIDTH).numpy(), sample(BATCH, SIZE).numpy(), sample(BATCH, SIZE).numpy()
    w, r, p = sample(4 * SIZE, WIDTH).numpy(), sample(4 * SIZE, SIZE).numpy(), sample(3 * SIZE).numpy()
    (w_i, w_f, w_o, w_z), (r_i, r_f, r_o, r_z), (p_i, p_f, p_o) = np.split(w, 4), np.split(r, 4), np.split(p, 3)
    state, cell = h, c
    for step in x:
        i = sigmoid(step @ w_i.T + state @ r_i.T + cell * p_i)
        f = sigmoid(step @ w_f.T + state @ r_f.T + cell * p_f)
        cell = np.clip(f * cell + i * np.tanh(step @ w_z.T + state @ r_z.T), -clip, clip)
        state = sigmoid(step @ w_o.T + state @ r_o.T + cell * p_o) * formula(cell)
    got = run(
        "lstm", x=torch.from_numpy(x), initial_h=torch.from_numpy(h), initial_c=torch.from_numpy(c),
        weight_ih=torch.from_numpy(w), weight_hh=torch.from_numpy(r), peephole=torch.from_numpy(p), clip=clip,
        activation=outer,
    )  # fmt: skip
    torch.testing.assert_close(got[1], torch.from_numpy(state), rtol=0, atol=1e-5)
    torch.testing.assert_close(got[2], torch.from_numpy(cell), rtol=0, atol=1e-5)


def test_unknown_words_are_named():
    operands = {
        "x": sample(1, 1, WIDTH), "initial_h": sample(1, SIZE), "weight_ih": sample(SIZE, WIDTH),
        "weight_hh": sample(SIZE, SIZE),
    }  # fmt: skip
    with pytest.raises(ValueError, match="unknown direction 'backward'"):
        run("rnn", direction="backward", **operands)
    with pytest.raises(ValueError, match="unknown activation 'swish'"):
        run("rnn", activation="swish", **operands)
