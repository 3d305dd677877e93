"""Arguments of a node as torch gave them, and operands in the dtype that torch computes in.

coremltools looks every string argument up among the node names first, so that
`approximate="tanh"` means a node called `tanh` where there is one; `literal`
never does. Torch's fake tensor, `node.meta["val"]`, is what a node promises.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from coremltools.converters.mil.mil import Builder as mb
from coremltools.converters.mil.mil import Var, types

# int64 and float64 are the declared narrowings; the other types have no Core ML tensor at every target.
MIL_DTYPES: dict[torch.dtype, str] = {
    torch.bool: "bool",
    torch.int32: "int32",
    torch.int64: "int32",
    torch.float16: "fp16",
    torch.float32: "fp32",
    torch.float64: "fp32",
}
_SYMBOL_DTYPES = {torch.SymInt: "int32", torch.SymFloat: "fp32", torch.SymBool: "bool"}
_INT32 = np.iinfo(np.int32)


def literal(node: Any, keyword: str, position: int | None = None, default: Any = None) -> Any:
    """The argument as a Python value: number, string, tuple, or `default` where it is None or left out."""
    value = None
    if position is not None and position < len(node.inputs):
        value = node.inputs[position]
    elif node.kwinputs and node.kwinputs.get(keyword):
        (value,) = node.kwinputs[keyword]
    return default if value is None else value


def operand(context: Any, node: Any, keyword: str, position: int | None = None) -> Any:
    """The argument with each name in it replaced by its MIL value: `Var`, number, list of the two, or None."""

    def resolved(value: Any) -> Any:
        if isinstance(value, tuple):
            return [resolved(item) for item in value]
        return context[value] if isinstance(value, str) else value

    return resolved(literal(node, keyword, position))


def mil_dtype(node: Any, output: int | None = None) -> str:
    """The name of the MIL dtype that carries the node's result, or its result number `output`.

    Raises:
        NotImplementedError: Core ML has no tensor of that dtype at every target.
    """
    value = node.meta["val"] if output is None else node.meta["val"][output]
    if type(value) in _SYMBOL_DTYPES:
        return _SYMBOL_DTYPES[type(value)]
    if value.dtype not in MIL_DTYPES:
        raise NotImplementedError(
            f"{node.kind} makes a {value.dtype} tensor, and a Core ML program computes in "
            f"{', '.join(sorted(set(MIL_DTYPES.values())))}: compute in one of these or leave the op on the CPU"
        )
    return MIL_DTYPES[value.dtype]


def require_contiguous(node: Any) -> None:
    """Raise NotImplementedError where the node's `dim_order` is not that of a contiguous tensor."""
    order = literal(node, "dim_order")
    if order is not None and list(order) != sorted(order):
        raise NotImplementedError(
            f"{node.kind} makes a tensor of dim order {list(order)}, and Core ML has contiguous tensors "
            "only: use torch.contiguous_format or leave the op on the CPU"
        )


def constant(value: Any, dtype: str) -> np.ndarray | np.generic:
    """`value` (a number or an array) in the MIL dtype `dtype`, rounded as torch's conversion rounds.

    Raises:
        OverflowError: an integer does not fit in the 32 bits that Core ML has for it.
    """
    array = np.asarray(value)
    if dtype == "int32" and array.size and (array.max() > _INT32.max or array.min() < _INT32.min):
        raise OverflowError(
            f"an integer constant from {array.min()} to {array.max()} does not fit in int32, the widest integer of "
            "Core ML: use a smaller constant or leave the op on the CPU"
        )
    with np.errstate(over="ignore", invalid="ignore"):
        return array.astype(types.nptype_from_builtin(types.string_to_builtin(dtype)))[()]


def as_dtype(value: Any, dtype: str, **name: str) -> Var:
    """A number or a MIL value of any shape as a MIL value of dtype `dtype`; a known value becomes a constant.

    A keyword `name` names the op that this makes, if any.

    The constant is not only smaller: below iOS 17 the MIL `cast` takes no int8 and no uint8.

    Raises:
        OverflowError: see `constant`.
    """
    if not isinstance(value, Var):
        return mb.const(val=constant(value, dtype), **name)
    if types.builtin_to_string(value.dtype) == dtype:
        return value
    if value.can_be_folded_to_const():
        return mb.const(val=constant(value.val, dtype), **name)
    return mb.cast(x=value, dtype=dtype, **name)


def broadcast_to_shape(value: Var, shape: Any, **name: str) -> Var:
    """`value` broadcast against the shape `shape` (ints or a MIL vector); symbolic sizes keep their symbols.

    Adding -0.0 changes no number, not even the sign of a zero; `tile` would replace each symbol by a new one.
    """
    if types.is_bool(value.dtype):
        return mb.logical_or(x=mb.fill(shape=shape, value=np.bool_(False)), y=value, **name)
    neutral = constant(-0.0, types.builtin_to_string(value.dtype))
    return mb.add(x=mb.fill(shape=shape, value=neutral), y=value, **name)
