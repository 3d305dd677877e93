"""A small numpy evaluator of straight-line MIL programs, for tests.

One function per op, named as MIL names it, with MIL's operand names and
defaults; `evaluate` is an environment and one loop. Floats are computed in
float32 and each result is rounded once to its declared dtype.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from coremltools.converters.mil.mil import Operation, Program, Var, types
from coremltools.converters.mil.mil.types.symbolic import is_symbolic

OPS: dict[str, Callable[..., Any]] = {}


def evaluate(program: Program, inputs: dict[str, np.ndarray], *, strict: bool = False) -> list[np.ndarray]:
    """Run a MIL program of one function, before or after its passes.

    Args:
        program: a program without control flow.
        inputs: an array for each input and each state, by name; an array of a state is updated in place.
        strict: refuse negative indices of gather and gather_nd at iOS 17 and later. They are in order before the
            passes, of which `guard_negative_gather_indices` removes them; scatters have no such pass.

    Returns:
        The outputs in order, in their declared dtypes.

    Raises:
        NotImplementedError: an op that has no function here.
        ValueError: an operand for which Core ML leaves the result undefined, such as a negative index from iOS 17 on.
        AssertionError: a value whose shape is not the declared one.
    """
    (function,) = program.functions.values()
    values: dict[Var, Any] = {}
    for name, var in function.inputs.items():
        values[var] = inputs[name] if types.is_state(var.sym_type) else _declared(inputs[name], var)
    for op in function.operations:
        if strict and op.op_type in ("gather", "gather_nd") and "validate_indices" in op.inputs:
            _require_no_negative(values[op.indices])
        results = _run(op, values)
        for var, result in zip(op.outputs, results if isinstance(results, tuple) else (results,), strict=True):
            values[var] = result if op.op_type == "const" else _declared(result, var)
    return [values[var] for var in function.outputs]


def _run(op: Operation, values: dict[Var, Any]) -> Any:
    if op.op_type == "const":
        return op.outputs[0].val
    if op.op_type.startswith("constexpr_"):
        return op.materialized_val_inference()
    if op.op_type not in OPS:
        raise NotImplementedError(f"mil_eval has no function for the MIL op {op.op_type} ({op.name})")
    operands = {name: _operand(var, values) for name, var in op.inputs.items() if var is not None}
    with np.errstate(all="ignore"):
        return OPS[op.op_type](**operands)


def _operand(var: Any, values: dict[Var, Any]) -> Any:
    if isinstance(var, (list, tuple)):
        return [_operand(one, values) for one in var]
    value = values[var]
    half = not types.is_state(var.sym_type) and getattr(value, "dtype", None) == np.float16
    return value.astype(np.float32) if half else value


def _declared(value: Any, var: Var) -> np.ndarray:
    with np.errstate(all="ignore"):
        array = np.asarray(value).astype(types.nptype_from_builtin(var.dtype))
    fits = array.ndim == var.rank and all(is_symbolic(d) or d == n for d, n in zip(var.shape, array.shape, strict=True))
    assert fits, f"{var.name} ({var.op.op_type if var.op else 'input'}) has shape {array.shape}, declared {var.shape}"
    return array


def op(function: Callable[..., Any]) -> Callable[..., Any]:
    """Register a function under its own name."""
    OPS[function.__name__] = function
    return function


def _erf(x: np.ndarray) -> np.ndarray:
    return torch.erf(torch.tensor(x)).numpy()


def _sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


# Elementwise.

for _name in ("abs", "ceil", "cos", "cosh", "exp", "exp2", "floor", "sign", "sin", "sinh", "sqrt", "square", "tan"):
    OPS[_name] = partial(lambda function, x: function(x), getattr(np, _name))
for _name in ("equal", "greater", "greater_equal", "less", "less_equal", "not_equal", "maximum", "minimum"):
    OPS[_name] = partial(lambda function, x, y: function(x, y), getattr(np, _name))
OPS |= {
    "acos": lambda x: np.arccos(x),
    "add": lambda x, y: x + y,
    "asin": lambda x: np.arcsin(x),
    "atan": lambda x: np.arctan(x),
    "atanh": lambda x: np.arctanh(x),
    "cast": lambda x, dtype: np.asarray(x).astype(types.nptype_from_builtin(types.string_to_builtin(dtype))),
    "clip": lambda x, alpha, beta: np.minimum(np.maximum(x, alpha), beta),
    "elu": lambda x, alpha: np.where(x > 0, x, alpha * np.expm1(x)),
    "erf": lambda x: _erf(x),
    "floor_div": lambda x, y: np.floor_divide(x, y),
    "identity": lambda x: np.copy(x),
    "inverse": lambda x, epsilon=1e-4: 1 / (x + np.float32(epsilon)),
    "leaky_relu": lambda x, alpha: np.where(x >= 0, x, alpha * x),
    "log": lambda x, epsilon=1e-45: np.log(x + np.float32(epsilon)),
    "logical_and": lambda x, y: np.logical_and(x, y),
    "logical_not": lambda x: np.logical_not(x),
    "logical_or": lambda x, y: np.logical_or(x, y),
    "logical_xor": lambda x, y: np.logical_xor(x, y),
    "mod": lambda x, y: np.mod(x, y),
    "mul": lambda x, y: x * y,
    "pow": lambda x, y: np.power(x, y),
    "prelu": lambda x, alpha: np.where(x > 0, x, _channels(alpha, x) * x),
    "real_div": lambda x, y: np.true_divide(x, y),
    "relu": lambda x: np.maximum(x, 0),
    "relu6": lambda x: np.clip(x, 0, 6),
    "round": lambda x: np.rint(x),
    "rsqrt": lambda x, epsilon=1e-12: 1 / np.sqrt(x + np.float32(epsilon)),
    "select": lambda cond, a, b: np.where(cond, a, b),
    "sigmoid": lambda x: _sigmoid(x),
    "silu": lambda x: x * _sigmoid(x),
    "softplus": lambda x: np.logaddexp(x, 0),
    "softsign": lambda x: x / (1 + np.abs(x)),
    "sub": lambda x, y: x - y,
    "tanh": lambda x: np.tanh(x),
    "threshold": lambda x, alpha: np.maximum(x, alpha),
}


def _channels(parameter: np.ndarray, x: np.ndarray) -> np.ndarray:
    return parameter.reshape(-1, *[1] * (x.ndim - 2))


@op
def gelu(x, mode="EXACT"):
    if mode == "TANH_APPROXIMATION":
        return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
    if mode == "SIGMOID_APPROXIMATION":
        return x * _sigmoid(1.702 * x)
    return 0.5 * x * (1 + _erf(x / math.sqrt(2)))


@op
def softmax(x, axis=-1):
    e = np.exp(x - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


# Linear algebra, convolution, normalization.

OPS |= {
    "linear": lambda x, weight, bias=0: x @ weight.T + bias,
    "einsum": lambda values, equation: np.einsum(equation, *values),
}


@op
def matmul(x, y, transpose_x=False, transpose_y=False):
    return np.matmul(x.swapaxes(-1, -2) if transpose_x else x, y.swapaxes(-1, -2) if transpose_y else y)


@op
def scaled_dot_product_attention(query, key, value, attn_mask=None):
    if attn_mask is not None and attn_mask.dtype == bool:
        attn_mask = np.where(attn_mask, 0, -np.inf)
    scores = query @ key.swapaxes(-1, -2) / np.sqrt(np.float32(query.shape[-1]))
    return softmax(scores if attn_mask is None else scores + attn_mask) @ value


@op
def conv(x, weight, bias=None, strides=None, pad_type="valid", pad=None, dilations=None, groups=1):
    spatial = x.ndim - 2
    strides = [1] * spatial if strides is None else strides.tolist()
    dilations = [1] * spatial if dilations is None else dilations.tolist()
    if pad_type == "custom":
        before_after = pad.reshape(spatial, 2).tolist()
    elif pad_type == "valid":
        before_after = [[0, 0]] * spatial
    else:
        before_after = []
        for size, kernel, stride, dilation in zip(x.shape[2:], weight.shape[2:], strides, dilations, strict=True):
            total = max((-(-size // stride) - 1) * stride + (kernel - 1) * dilation + 1 - size, 0)
            small, large = total // 2, total - total // 2
            before_after.append([large, small] if pad_type == "same_lower" else [small, large])
    x = np.pad(x, [(0, 0), (0, 0), *map(tuple, before_after)])
    function = (torch.conv1d, torch.conv2d, torch.conv3d)[spatial - 1]
    tensors = [None if t is None else torch.tensor(t) for t in (x, weight, bias)]
    return function(*tensors, stride=strides, dilation=dilations, groups=int(groups)).numpy()


@op
def layer_norm(x, axes=None, gamma=1, beta=0, epsilon=1e-5):
    axes = tuple(range(x.ndim)) if axes is None else tuple(axes)
    centred = x - x.mean(axes, keepdims=True)
    return centred / np.sqrt((centred**2).mean(axes, keepdims=True) + epsilon) * gamma + beta


@op
def batch_norm(x, mean, variance, gamma=None, beta=None, epsilon=1e-5):
    y = (x - _channels(mean, x)) / np.sqrt(_channels(variance, x) + epsilon)
    return y * (1 if gamma is None else _channels(gamma, x)) + (0 if beta is None else _channels(beta, x))


@op
def instance_norm(x, gamma=None, beta=None, epsilon=1e-5):
    y = layer_norm(x, range(2, x.ndim), epsilon=epsilon)
    return y * (1 if gamma is None else _channels(gamma, x)) + (0 if beta is None else _channels(beta, x))


# Reductions.


def _reduction(name: str, function: Callable[..., Any]) -> None:
    def reduce(x, axes=None, keep_dims=False):
        return function(x, axis=None if axes is None else tuple(axes), keepdims=bool(keep_dims))

    OPS[name] = reduce


def _log_sum_exp(x: np.ndarray, axis: Any, keepdims: bool) -> np.ndarray:
    return torch.logsumexp(torch.tensor(x), axis or tuple(range(x.ndim)), keepdims).numpy()


for _name, _function in {
    "reduce_max": np.max, "reduce_min": np.min, "reduce_mean": np.mean, "reduce_sum": np.sum, "reduce_prod": np.prod,
    "reduce_log_sum_exp": _log_sum_exp,
    "reduce_log_sum": lambda x, **where: np.log(np.sum(x, **where)),
    "reduce_sum_square": lambda x, **where: np.sum(x * x, **where),
    "reduce_l1_norm": lambda x, **where: np.sum(np.abs(x), **where),
    "reduce_l2_norm": lambda x, **where: np.sqrt(np.sum(x * x, **where)),
}.items():  # fmt: skip
    _reduction(_name, _function)


@op
def reduce_argmax(x, axis=-1, keep_dims=False, output_dtype="int32"):
    return np.argmax(x, axis, keepdims=bool(keep_dims))


@op
def reduce_argmin(x, axis=-1, keep_dims=False, output_dtype="int32"):
    return np.argmin(x, axis, keepdims=bool(keep_dims))


@op
def cumsum(x, axis=0, exclusive=False, reverse=False):
    y = np.flip(x, axis) if reverse else x
    y = np.cumsum(y, axis) - (y if exclusive else 0)
    return np.flip(y, axis) if reverse else y


@op
def argsort(x, axis=-1, ascending=False):
    if ascending:
        return np.argsort(x, axis, kind="stable")
    # Flipping before and after keeps equal elements in order, without negating (an int has no -min).
    return x.shape[axis] - 1 - np.flip(np.argsort(np.flip(x, axis), axis, kind="stable"), axis)


@op
def topk(x, k=1, axis=-1, ascending=False, sort=True, return_indices=True, output_indices_dtype="int32"):
    order = argsort(x, axis, ascending).take(range(x.shape[axis] if k == -1 else int(k)), axis)
    found = np.take_along_axis(x, order, axis)
    return (found, order) if return_indices else found


# Shapes.

OPS |= {
    "transpose": lambda x, perm: np.transpose(x, perm),
    "expand_dims": lambda x, axes: np.expand_dims(x, tuple(axes)),
    "squeeze": lambda x, axes=None: np.squeeze(x, None if axes is None else tuple(axes)),
    "stack": lambda values, axis: np.stack(values, int(axis)),
    "tile": lambda x, reps: np.tile(x, reps),
    "reverse": lambda x, axes=None: np.flip(x, None if axes is None else tuple(axes)),
}


@op
def shape(x):
    return np.array(np.shape(x), np.int32)


@op
def reshape(x, shape):
    # A 0 copies the dimension of the same place.
    return np.reshape(x, [np.shape(x)[i] if n == 0 and np.size(x) else n for i, n in enumerate(shape)])


@op
def concat(values, axis, interleave=False):
    assert not interleave, "mil_eval does not interleave"
    return np.concatenate([np.atleast_1d(v) for v in values], int(axis))


@op
def split(x, axis, num_splits=None, split_sizes=None):
    return tuple(np.split(x, int(num_splits) if split_sizes is None else np.cumsum(split_sizes)[:-1], int(axis)))


@op
def pad(x, pad, mode="constant", constant_val=0.0):
    widths = [(0, 0)] * (x.ndim - len(pad) // 2) + [tuple(p) for p in np.reshape(pad, (-1, 2))]
    if mode == "constant":
        return np.pad(x, widths, constant_values=constant_val)
    return np.pad(x, widths, mode={"reflect": "reflect", "replicate": "edge"}[mode])


def _slices(begin, end, stride, begin_mask, end_mask, squeeze_mask) -> tuple[Any, ...]:
    columns = (stride, begin_mask, end_mask, squeeze_mask)
    stride, begin_mask, end_mask, squeeze_mask = ([None] * len(begin) if c is None else c for c in columns)
    return tuple(
        int(begin[i])
        if squeeze_mask[i]
        else slice(
            None if begin_mask[i] else int(begin[i]),
            None if end_mask[i] else int(end[i]),
            None if stride[i] is None else int(stride[i]),
        )
        for i in range(len(begin))
    )


@op
def slice_by_index(x, begin, end, stride=None, begin_mask=None, end_mask=None, squeeze_mask=None):
    return x[_slices(begin, end, stride, begin_mask, end_mask, squeeze_mask)]


@op
def slice_update(x, update, begin, end, stride=None, begin_mask=None, end_mask=None, squeeze_mask=None):
    where = _slices(begin, end, stride, begin_mask, end_mask, squeeze_mask)
    assert np.shape(x[where]) == np.shape(update), f"slice_update of {np.shape(x[where])} with {np.shape(update)}"
    result = np.copy(x)
    result[where] = update
    return result


@op
def torch_tensor_assign(x, updates, **where):
    return slice_update(x, updates, **where)


@op
def slice_by_size(x, begin, size):
    ends = [n if s == -1 else b + s for b, s, n in zip(begin, size, x.shape, strict=True)]
    return x[tuple(slice(int(b), int(e)) for b, e in zip(begin, ends, strict=True))]


# Making values.

OPS |= {
    "fill": lambda shape, value=0.0: np.full(shape, value),
    "fill_like": lambda ref_tensor, value=0.0: np.full(ref_tensor.shape, value),
    "range_1d": lambda end, start, step: np.arange(start, end, step),
    "non_zero": lambda x: np.argwhere(x),
}


@op
def band_part(x, lower=-1, upper=-1):
    rows, columns = np.ogrid[: x.shape[-2], : x.shape[-1]]
    keep = ((lower < 0) | (rows - columns <= lower)) & ((upper < 0) | (columns - rows <= upper))
    return np.where(keep, x, 0)


@op
def one_hot(indices, one_hot_vector_size, axis=-1, on_value=1, off_value=0):
    hot = np.expand_dims(indices, -1) == np.arange(one_hot_vector_size)
    return np.moveaxis(np.where(hot, on_value, off_value), -1, axis)


# Gather and scatter. Only ops from iOS 17 on have `validate_indices`, and to those a negative index is out of bounds.


def _require_no_negative(indices: np.ndarray) -> None:
    if np.any(indices < 0):
        raise ValueError(f"negative index {indices.min()}: undefined from iOS 17 on")


def _require_defined(indices: np.ndarray, validate_indices: Any) -> None:
    if validate_indices is not None:
        _require_no_negative(indices)


@op
def gather(x, indices, axis=0, batch_dims=0, validate_indices=None):
    if batch_dims:
        axis = axis + x.ndim if axis < 0 else axis
        return np.stack([gather(a, i, axis - 1, batch_dims - 1) for a, i in zip(x, indices, strict=True)])
    return np.take(x, indices, axis)


@op
def gather_nd(x, indices, batch_dims=0, validate_indices=None):
    if batch_dims:
        return np.stack([gather_nd(a, i, batch_dims - 1) for a, i in zip(x, indices, strict=True)])
    return x[tuple(np.moveaxis(indices, -1, 0))]


@op
def gather_along_axis(x, indices, axis=0, validate_indices=None):
    _require_defined(indices, validate_indices)
    return np.take_along_axis(x, indices, axis)


_MODES = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide, "max": np.maximum, "min": np.minimum,
}  # fmt: skip


def _scattered(data, where, updates, mode) -> np.ndarray:
    result = np.copy(data)
    assert result[where].shape == updates.shape, f"scatter of {updates.shape} to places of {result[where].shape}"
    if mode == "update":
        result[where] = updates
    else:
        _MODES[mode].at(result, where, updates)
    return result


@op
def scatter(data, indices, updates, axis=0, mode="add", validate_indices=None):
    _require_defined(indices, validate_indices)
    return _scattered(data, (slice(None),) * int(axis % data.ndim) + (indices,), updates, mode)


@op
def scatter_nd(data, indices, updates, mode="add", validate_indices=None):
    _require_defined(indices, validate_indices)
    return _scattered(data, tuple(np.moveaxis(indices, -1, 0)), updates, mode)


@op
def scatter_along_axis(data, indices, updates, axis=0, mode="add", validate_indices=None):
    _require_defined(indices, validate_indices)
    where = list(np.ogrid[tuple(slice(n) for n in indices.shape)])
    where[int(axis)] = indices
    return _scattered(data, tuple(where), updates, mode)


# States: a state's value is the array given for it.


@op
def read_state(input):
    return np.copy(input)


@op
def coreml_update_state(state, value):
    state[...] = value
    return np.copy(state)
