"""The test evaluator against torch and against values worked out by hand."""

from __future__ import annotations

import coremltools as ct
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from coremltools.converters.mil.mil import Builder as mb
from coremltools.converters.mil.mil import Function, Program, types
from mil_eval import evaluate

X = np.array([[-2.5, -0.0, 0.5, 3.0], [1e-3, -1.0, 2.5, 7.0], [-7.0, 4.0, -3.5, 1.5]], np.float32)
Y = np.array([[2.0, -3.0, 0.25, 3.0], [-2.0, 1.5, 2.5, -4.0], [3.0, -4.0, 2.0, 1.5]], np.float32)
DATA = np.arange(12, dtype=np.float32).reshape(3, 4)


def run(build, *arrays: np.ndarray, opset=ct.target.iOS17, **options) -> list[np.ndarray]:
    """Build a program of the inputs x0, x1, ... with `build`, and evaluate it."""
    inputs = {
        f"x{i}": mb.placeholder(shape=a.shape, dtype=types.numpy_type_to_builtin_type(a.dtype))
        for i, a in enumerate(arrays)
    }
    with Function(inputs, opset_version=opset) as function:
        outputs = build(*function.inputs.values())
        function.set_outputs(list(outputs) if isinstance(outputs, tuple) else [outputs])
    program = Program()
    program.add_function("main", function)
    return evaluate(program, dict(zip(inputs, arrays, strict=True)), **options)


UNARY = {
    "abs": torch.abs, "ceil": torch.ceil, "cos": torch.cos, "erf": torch.erf, "exp": torch.exp, "floor": torch.floor,
    "identity": torch.clone, "relu": torch.relu, "relu6": F.relu6, "round": torch.round, "sigmoid": torch.sigmoid,
    "sign": torch.sign, "silu": F.silu, "sin": torch.sin, "softplus": F.softplus, "softsign": F.softsign,
    "square": torch.square, "tanh": torch.tanh,
}  # fmt: skip
BINARY = {
    "add": torch.add, "equal": torch.eq, "floor_div": torch.floor_divide, "greater": torch.gt,
    "greater_equal": torch.ge, "less": torch.lt, "less_equal": torch.le, "maximum": torch.maximum,
    "minimum": torch.minimum, "mod": torch.remainder, "mul": torch.mul, "not_equal": torch.ne, "pow": torch.pow,
    "real_div": torch.div, "sub": torch.sub,
}  # fmt: skip


@pytest.mark.parametrize("name", UNARY)
def test_unary(name):
    (got,) = run(lambda x: getattr(mb, name)(x=x), X)
    np.testing.assert_allclose(got, UNARY[name](torch.tensor(X)).numpy(), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", BINARY)
def test_binary(name):
    (got,) = run(lambda x, y: getattr(mb, name)(x=x, y=y), X, Y)
    np.testing.assert_allclose(got, BINARY[name](torch.tensor(X), torch.tensor(Y)).numpy(), rtol=1e-6)


@pytest.mark.parametrize(
    ("build", "expected"),
    [
        (lambda x: mb.rsqrt(x=x, epsilon=0.5), lambda x: 1 / (x + 0.5).sqrt()),
        (lambda x: mb.inverse(x=x, epsilon=0.25), lambda x: 1 / (x + 0.25)),
        (lambda x: mb.log(x=x, epsilon=0.5), lambda x: (x + 0.5).log()),
        (lambda x: mb.gelu(x=x, mode="EXACT"), F.gelu),
        (lambda x: mb.gelu(x=x, mode="TANH_APPROXIMATION"), lambda x: F.gelu(x, approximate="tanh")),
        (lambda x: mb.clip(x=x, alpha=-1.0, beta=2.0), lambda x: x.clamp(-1, 2)),
        (lambda x: mb.softmax(x=x, axis=0), lambda x: x.softmax(0)),
        (lambda x: mb.layer_norm(x=x, axes=[1], epsilon=0.1), lambda x: F.layer_norm(x, [4], eps=0.1)),
        (lambda x: mb.matmul(x=x, y=Y, transpose_y=True), lambda x: x @ torch.tensor(Y).T),
        (
            lambda x: mb.linear(x=x, weight=Y, bias=Y[:, 0]),
            lambda x: F.linear(x, torch.tensor(Y), torch.tensor(Y[:, 0])),
        ),
        (lambda x: mb.reduce_mean(x=x, axes=[0], keep_dims=True), lambda x: x.mean(0, keepdim=True)),
        (lambda x: mb.reduce_log_sum_exp(x=x, axes=[1]), lambda x: x.logsumexp(1)),
        (lambda x: mb.reduce_argmin(x=x, axis=0), lambda x: x.argmin(0)),
        (lambda x: mb.cumsum(x=x, axis=1), lambda x: x.cumsum(1)),
        (lambda x: mb.argsort(x=x, axis=0, ascending=True), lambda x: torch.argsort(x, dim=0, stable=True)),
        (lambda x: mb.argsort(x=x, axis=1), lambda x: torch.argsort(x, dim=1, descending=True, stable=True)),
        (lambda x: mb.topk(x=x, k=2, axis=1)[1], lambda x: x.topk(2, 1).indices),
        (lambda x: mb.reshape(x=x, shape=[2, -1]), lambda x: x.reshape(2, 6)),
        (lambda x: mb.transpose(x=x, perm=[1, 0]), lambda x: x.T),
        (lambda x: mb.expand_dims(x=x, axes=[0, -1]), lambda x: x[None, ..., None]),
        (lambda x: mb.split(x=x, split_sizes=[1, 3], axis=1)[1], lambda x: x[:, 1:]),
        (lambda x: mb.pad(x=x, pad=[1, 2], mode="constant", constant_val=-1.0), lambda x: F.pad(x, (1, 2), value=-1.0)),
        (lambda x: mb.slice_by_size(x=x, begin=[1, 0], size=[-1, 2]), lambda x: x[1:, :2]),
        (lambda x: mb.band_part(x=x, lower=-1, upper=0), torch.tril),
        (lambda x: mb.band_part(x=x, lower=1, upper=-1), lambda x: x.triu(-1)),
        (lambda x: mb.non_zero(x=x), lambda x: x.nonzero()),
        (lambda x: mb.cast(x=x, dtype="int32"), lambda x: x.int()),
        (lambda x: mb.cast(x=x, dtype="bool"), lambda x: x.bool()),
        (lambda x: mb.select(cond=mb.greater(x=x, y=0.0), a=x, b=-1.0), lambda x: torch.where(x > 0, x, -1.0)),
    ],
)
def test_against_torch(build, expected):
    (got,) = run(build, X)
    want = expected(torch.tensor(X)).numpy()
    assert got.shape == want.shape
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("stride", [1, 2])
def test_conv(stride):
    x = np.random.default_rng(0).standard_normal((2, 4, 7, 5)).astype(np.float32)
    weight = np.random.default_rng(1).standard_normal((6, 2, 3, 2)).astype(np.float32)
    (got,) = run(
        lambda x: mb.conv(x=x, weight=weight, strides=[stride, 1], pad_type="custom", pad=[1, 0, 2, 1], groups=2), x
    )
    want = F.conv2d(F.pad(torch.tensor(x), (2, 1, 1, 0)), torch.tensor(weight), stride=(stride, 1), groups=2)
    np.testing.assert_allclose(got, want.numpy(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"begin": [0, 3], "end": [0, 0], "stride": [2, -2], "begin_mask": [True, False], "end_mask": [True, True]},
         DATA[::2, 3::-2]),
        ({"begin": [-1, 1], "end": [0, -1], "squeeze_mask": [True, False]}, DATA[-1, 1:-1]),
    ],
)  # fmt: skip
def test_slice_by_index(arguments, expected):
    np.testing.assert_array_equal(run(lambda x: mb.slice_by_index(x=x, **arguments), DATA)[0], expected)


@pytest.mark.parametrize("mode", ["update", "add", "sub", "mul", "div", "max", "min"])
def test_scatters(mode):
    reduce = {
        "update": lambda old, new: new, "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide,
        "max": np.maximum, "min": np.minimum,
    }[mode]  # fmt: skip
    updates = np.array([[-8.0, 2.0, 4.0, 0.5], [16.0, 3.0, -1.0, 5.0]], np.float32)
    want = DATA.copy()
    for row, update in zip((2, 0) if mode == "update" else (2, 2), updates, strict=True):
        want[row] = reduce(want[row], update)
    rows = [2, 0] if mode == "update" else [2, 2]
    places = np.array([[r] for r in rows], np.int32)
    along = np.repeat(places, 4, 1)
    (got,) = run(lambda x: mb.scatter(data=x, indices=rows, updates=updates, axis=0, mode=mode), DATA)
    np.testing.assert_array_equal(got, want)
    (got,) = run(lambda x: mb.scatter_nd(data=x, indices=places, updates=updates, mode=mode), DATA)
    np.testing.assert_array_equal(got, want)
    (got,) = run(lambda x: mb.scatter_along_axis(data=x, indices=along, updates=updates, axis=0, mode=mode), DATA)
    np.testing.assert_array_equal(got, want)


def test_gathers():
    columns = np.array([[3, 0], [1, 1], [2, 3]], np.int32)
    (got,) = run(lambda x, i: mb.gather(x=x, indices=i, axis=1), DATA, columns)
    np.testing.assert_array_equal(got, DATA[:, columns])
    (got,) = run(lambda x, i: mb.gather(x=x, indices=i, axis=-1, batch_dims=1), DATA, columns)
    np.testing.assert_array_equal(got, torch.gather(torch.tensor(DATA), 1, torch.tensor(columns).long()).numpy())
    (got,) = run(lambda x, i: mb.gather_along_axis(x=x, indices=i, axis=1), DATA, columns)
    np.testing.assert_array_equal(got, torch.gather(torch.tensor(DATA), 1, torch.tensor(columns).long()).numpy())
    (got,) = run(lambda x, i: mb.gather_nd(x=x, indices=i), DATA, np.array([[2, 3], [0, 1]], np.int32))
    np.testing.assert_array_equal(got, [11.0, 1.0])


@pytest.mark.parametrize("op", ["gather", "gather_nd", "scatter"])
def test_negative_index_is_undefined_from_ios17_on(op):
    def build(x, i):
        if op == "gather":
            return mb.gather(x=x, indices=i, axis=0)
        if op == "gather_nd":
            return mb.gather_nd(x=x, indices=mb.expand_dims(x=i, axes=[-1]))
        return mb.scatter(data=x, indices=i, updates=-DATA[:1], axis=0, mode="update")

    index = np.array([-1], np.int32)
    with pytest.raises(ValueError, match="negative index -1"):
        run(build, DATA, index, strict=True)
    (got,) = run(build, DATA, index, opset=ct.target.iOS15, strict=True)
    np.testing.assert_array_equal(got, np.concatenate([DATA[:2], -DATA[:1]]) if op == "scatter" else DATA[-1:])


def test_making_values():
    def build(x):
        return (
            mb.fill(shape=mb.shape(x=x), value=7),
            mb.range_1d(start=mb.reduce_sum(x=mb.cast(x=x, dtype="int32"), axes=[0, 1]), end=0, step=-20),
            mb.one_hot(indices=[2, 0], one_hot_vector_size=3, axis=0, on_value=5, off_value=-1),
            mb.tile(x=x, reps=[1, 2]),
            mb.concat(values=[x, x], axis=0),
            mb.stack(values=[x, x], axis=1),
        )

    got = run(build, DATA)
    np.testing.assert_array_equal(got[0], np.full((3, 4), 7))
    np.testing.assert_array_equal(got[1], [66, 46, 26, 6])
    np.testing.assert_array_equal(got[2], [[-1, 5], [-1, -1], [5, -1]])
    np.testing.assert_array_equal(got[3], np.concatenate([DATA, DATA], 1))
    np.testing.assert_array_equal(got[4], np.concatenate([DATA, DATA], 0))
    np.testing.assert_array_equal(got[5], np.stack([DATA, DATA], 1))


def test_float16_is_rounded_once():
    x = np.array([2048.0, 65504.0, 1.0], np.float16)
    got, same = run(lambda x: (mb.add(x=x, y=np.float16(1)), mb.mul(x=x, y=np.float16(2))), x)
    assert got.dtype == same.dtype == np.float16
    np.testing.assert_array_equal(got, np.array([2048, 65504, 2], np.float16))  # 2049 ties to the even 2048
    np.testing.assert_array_equal(same, np.array([4096, np.inf, 2], np.float16))


def test_state_is_updated_in_place():
    @mb.program(
        input_specs=[mb.TensorSpec((2,), types.fp16), mb.StateTensorSpec((2,), types.fp16)],
        opset_version=ct.target.iOS18,
    )
    def program(x, state):
        old = mb.read_state(input=state)
        return mb.mul(x=mb.coreml_update_state(state=state, value=mb.add(x=old, y=x)), y=np.float16(2))

    state = np.array([1, 2], np.float16)
    (got,) = evaluate(program, {"x": np.array([10, -20], np.float16), "state": state})
    np.testing.assert_array_equal(got, [22, -36])
    np.testing.assert_array_equal(state, [11, -18])


def test_an_unknown_op_is_named():
    with pytest.raises(NotImplementedError, match="local_response_norm"):
        run(lambda x: mb.local_response_norm(x=x, size=3), np.ones((1, 2, 3), np.float32))
