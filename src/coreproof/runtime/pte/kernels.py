"""What a KernelCall does: torch's own operator for each `aten` kernel, and ExecuTorch's operators by hand.

A kernel of ExecuTorch writes into given tensors (`aten::add.out`). Here torch's functional operator with the same
operands (`aten::add.Tensor`) makes the values, which are then copied into the given tensor, in its dtype and at the
size that came out.
"""

from __future__ import annotations

import contextlib
import importlib
import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, Protocol

import torch

from ...errors import ModelError
from .tensors import TensorValue


class Machine(Protocol):
    """What a kernel needs of the running method."""

    def read(self, index: int) -> Any:
        """A value as torch takes it: a tensor, a number, a list of them, None."""

    def tensor(self, index: int) -> TensorValue:
        """A tensor value."""

    def tensors(self, index: int) -> list[TensorValue]:
        """The tensors of a list value, or of a tensor value the one."""

    def write(self, index: int, value: Any) -> None:
        """Set a number."""


Kernel = Callable[[Machine, Sequence[int]], None]

# The namespaces whose operators may be called, for a file from a stranger must not reach all that torch has; importing
# the modules named defines their operators.
_LIBRARIES: dict[str, tuple[str, ...]] = {
    "aten": (),
    "quantized_decomposed": (
        "torch.ao.quantization.fx._decomposed",
        "executorch.exir.passes._quant_patterns_and_replacements",
        "executorch.kernels.quantized",
    ),
    "torchao": ("torchao",),
    "llama": ("executorch.extension.llm.custom_ops.custom_ops",),
}
# The operators of ATen without out variant that ExecuTorch has kernels for, beside those by hand below.
_IN_PLACE = frozenset(("aten::copy_", "aten::index_put_"))
_FORBIDDEN = frozenset(("aten::from_file.out",))  # reads and makes files
# Operands that a functional operator has beside those of its out variant, which takes them from the tensor given.
_TENSOR_OPTIONS = frozenset(("dtype", "layout", "device", "pin_memory", "memory_format"))


def make_kernel(name: str) -> Kernel:
    """The kernel of an operator such as `aten::add.out`, for one KernelCall.

    Raises:
        ModelError: torch has no operator of this name.
    """
    if name in _OWN:
        return _OWN[name]
    call = _found(name)
    return _Checked(call).run if call.sized else call.run


@lru_cache(maxsize=4096)
def _found(name: str) -> _Call:
    qualified, _, overload = name.partition(".")
    namespace, _, op = qualified.partition("::")
    if namespace not in _LIBRARIES or name in _FORBIDDEN:
        raise ModelError(f"the reference runtime runs no such operator ({', '.join(_LIBRARIES)} are known)")
    packet = _packet(namespace, op)
    if packet is None:
        raise ModelError(f"torch has no operator {qualified!r}")
    wanted = overload or "default"
    if wanted in packet.overloads():
        own = getattr(packet, wanted)
        if namespace == "aten" and name not in _IN_PLACE and not any(a.is_out for a in own._schema.arguments):
            raise ModelError("expected an out variant, which is what ExecuTorch's kernels are")
        return _Call(name, own, _functional(packet, own._schema))
    if overload.endswith("out") and "default" in packet.overloads():
        # ExecuTorch defines out variants that torch has not; they take the functional operands, then the results.
        return _Call(name, None, getattr(packet, "default"))  # noqa: B009
    raise ModelError(f"torch's operator {qualified!r} has no overload {wanted!r}")


def _packet(namespace: str, op: str) -> Any:
    for library in ("", *_LIBRARIES[namespace]):
        if library:
            with contextlib.suppress(ImportError, OSError):
                importlib.import_module(library)
        try:
            return getattr(getattr(torch.ops, namespace), op)
        except (AttributeError, RuntimeError):
            continue
    return None


def _functional(packet: Any, schema: Any) -> Any:
    """The overload that makes what the out variant writes, or None."""
    wanted = {a.name: str(a.type) for a in schema.arguments if not a.is_out}
    if len(wanted) == len(schema.arguments):
        return None
    for overload in packet.overloads():
        found = getattr(packet, overload)._schema
        if any(a.is_out for a in found.arguments):
            continue
        have = {a.name: str(a.type) for a in found.arguments if a.name in wanted or a.name not in _TENSOR_OPTIONS}
        if have == wanted:
            return getattr(packet, overload)
    return None


class _Call:
    """An operator of torch that stands for a kernel.

    Args:
        name: of the kernel.
        own: the operator of this name; None where torch has only the functional one.
        functional: the one that makes the values; None: `own` has none, or writes into its operands.
    """

    def __init__(self, name: str, own: Any, functional: Any) -> None:
        self.name = name
        self.target = functional or own
        schema = (own or functional)._schema
        self._operands = [a for a in schema.arguments if not a.is_out]
        self._outs = [a for a in schema.arguments if a.is_out]
        self._mutated = [i for i, a in enumerate(self._operands) if a.alias_info is not None and a.alias_info.is_write]
        # What follows the operands: the tensors to write; without any, what a functional operator returns.
        self._results = len(self._outs) if self._outs or self._mutated else len(schema.returns)
        self._into_outs = own is not None and bool(self._outs) and functional is None
        names = {a.name for a in self._operands}
        self.takes_dtype = functional is not None and any(
            a.name == "dtype" and a.name not in names for a in functional._schema.arguments
        )
        self.returns_many = len(self.target._schema.returns) > 1
        # Whether numbers of the file decide the size of the result.
        kinds = [str(a.type) for a in self._operands]
        self.sized = any("int" in kind for kind in kinds) or not any("Tensor" in kind for kind in kinds)

    def operands(self, machine: Machine, args: Sequence[int]) -> tuple[list[Any], dict[str, Any]]:
        """What the operator is called with."""
        if len(args) < len(self._operands) + self._results:
            count = len(self._operands) + self._results
            raise ModelError(f"it has {len(args)} operands; expected at least {count}")
        positional: list[Any] = []
        keywords: dict[str, Any] = {}
        for argument, index in zip(self._operands, args, strict=False):
            if argument.kwarg_only:
                keywords[argument.name] = machine.read(index)
            else:
                positional.append(machine.read(index))
        for i in self._mutated:
            for one in machine.tensors(args[i]):
                one.require_writable()
        if self.takes_dtype:
            keywords["dtype"] = machine.tensors(args[len(self._operands)])[0].spec.dtype
        return positional, keywords

    def outs(self, machine: Machine, args: Sequence[int]) -> list[list[TensorValue]]:
        """The tensors that the kernel writes, for each result."""
        first = len(self._operands)
        return [machine.tensors(index) for index in args[first : first + self._results]]

    def evaluate(self, positional: list[Any], keywords: dict[str, Any], outs: list[list[TensorValue]]) -> list[Any]:
        """The results, each a tensor or a list of them."""
        if self._into_outs:
            fresh = {
                argument.name: _fresh(argument, tensors) for argument, tensors in zip(self._outs, outs, strict=True)
            }
            self.target(*positional, **keywords, **fresh)
            return list(fresh.values())
        result = self.target(*positional, **keywords)
        return list(result) if self.returns_many else [result]

    def run(self, machine: Machine, args: Sequence[int]) -> None:
        """Do one KernelCall."""
        positional, keywords = self.operands(machine, args)
        self.finish(machine, args, positional, keywords)

    def finish(self, machine: Machine, args: Sequence[int], positional: list[Any], keywords: dict[str, Any]) -> None:
        """Evaluate and write the results."""
        outs = self.outs(machine, args)
        results = self.evaluate(positional, keywords, outs)
        for result, tensors in zip(results, outs, strict=False):  # outs is empty where it writes into an operand
            _assign(tensors, result)


def _fresh(argument: Any, tensors: list[TensorValue]) -> Any:
    made = [torch.empty(0, dtype=one.spec.dtype) for one in tensors]
    return made if "List" in str(argument.type) else made[0]


def _assign(tensors: list[TensorValue], result: Any) -> None:
    values = result if isinstance(result, (list, tuple)) else [result]
    if len(values) != len(tensors):
        raise ModelError(f"it makes {len(values)} tensors; expected {len(tensors)}")
    for one, value in zip(tensors, values, strict=True):
        one.assign(value)


class _Checked:
    """A kernel whose numbers decide the size of its result: evaluated without memory first, once for each signature.

    A broken file may ask for a tensor of any size; torch would try to make it.
    """

    def __init__(self, call: _Call) -> None:
        self._call = call
        self._seen: Any = None

    def run(self, machine: Machine, args: Sequence[int]) -> None:
        positional, keywords = self._call.operands(machine, args)
        signature = (_signature(positional), _signature(list(keywords.values())))
        if signature != self._seen:
            self._check(machine, args, positional, keywords)
            self._seen = signature
        self._call.finish(machine, args, positional, keywords)

    def _check(self, machine: Machine, args: Sequence[int], positional: list[Any], keywords: dict[str, Any]) -> None:
        outs = self._call.outs(machine, args)
        try:
            on_meta = {name: _meta(value) for name, value in keywords.items()}
            if self._call.takes_dtype:
                on_meta["device"] = "meta"
            results = self._call.target(*map(_meta, positional), **on_meta)
        except (RuntimeError, NotImplementedError, ValueError, TypeError, IndexError):
            return  # no meta kernel, or wrong operands: the call itself will tell
        for result, tensors in zip(results if self._call.returns_many else [results], outs, strict=False):
            values = result if isinstance(result, (list, tuple)) else [result]
            for one, value in zip(tensors, values, strict=False):
                if isinstance(value, torch.Tensor):
                    one.require_shape(value.shape)


def _signature(values: list[Any]) -> tuple:
    return tuple(
        (one.shape, one.dtype)
        if isinstance(one, torch.Tensor)
        else _signature(one)
        if isinstance(one, list)
        else repr(one)
        for one in values
    )


def _meta(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.to("meta")
    return [_meta(one) for one in value] if isinstance(value, list) else value


# -- ExecuTorch's own operators ----------------------------------------------------------------------------------------


def _number(function: Callable[..., Any], operands: int) -> Kernel:
    """A kernel on numbers: its operands, then the value that it sets."""

    def run(machine: Machine, args: Sequence[int]) -> None:
        if len(args) < operands + 1:
            raise ModelError(f"it has {len(args)} operands; expected {operands + 1}")
        given = [machine.read(index) for index in args[:operands]]
        if any(not isinstance(one, (bool, int, float)) for one in given):
            raise ModelError(f"expected numbers, got {', '.join(type(one).__name__ for one in given)}")
        machine.write(args[operands], _wrapped(function(*given)))

    return run


def _wrapped(value: Any) -> Any:
    """An integer as 64 bits hold it."""
    if isinstance(value, int) and not isinstance(value, bool):
        return (value + 2**63) % 2**64 - 2**63
    return value


def _of_tensor(function: Callable[..., Any], operands: int) -> Kernel:
    """A kernel that sets a number from a tensor and further numbers."""

    def run(machine: Machine, args: Sequence[int]) -> None:
        if len(args) < operands + 1:
            raise ModelError(f"it has {len(args)} operands; expected {operands + 1}")
        tensor = machine.tensor(args[0]).tensor
        machine.write(args[operands], function(tensor, *(machine.read(index) for index in args[1:operands])))

    return run


def _item(tensor: torch.Tensor) -> Any:
    if tensor.numel() != 1:
        raise ModelError(f"expected one value, got shape {list(tensor.shape)}")
    return tensor.item()


def _copy_index(machine: Machine, args: Sequence[int]) -> None:
    """executorch_prim::et_copy_index.tensor(Tensor(a!) copy_to, Tensor copy_from, int index)

    copy_to[index] = copy_from; copy_to, if its size can change, then ends after that row.
    """
    if len(args) < 3:
        raise ModelError(f"it has {len(args)} operands; expected 3")
    target, row, index = machine.tensor(args[0]), machine.tensor(args[1]).tensor, machine.read(args[2])
    if not isinstance(index, int) or index < 0:
        raise ModelError(f"expected an index of 0 or more, got {index!r}")
    shape = (index + 1, *row.shape)
    if target.spec.dynamism != "static":
        before = target.tensor[:index].clone() if index else None
        whole = target.resize(shape)
        if before is not None:
            whole[:index].copy_(before)
    else:
        target.require_writable()
        whole = target.resize(target.spec.sizes)
    whole[index].copy_(row)


def _view(machine: Machine, args: Sequence[int]) -> None:
    """executorch_prim::et_view.default(Tensor self, int[] size, Tensor(a!) out): out shares self's memory"""
    if len(args) < 3:
        raise ModelError(f"it has {len(args)} operands; expected 3")
    machine.tensor(args[2]).alias(machine.tensor(args[0]).tensor.view(machine.read(args[1])))


def _copy_self(machine: Machine, args: Sequence[int]) -> None:
    """dim_order_ops::_to_dim_order_copy.out, _clone_dim_order.out; et_copy copies: the last operand is the result"""
    if len(args) < 2:
        raise ModelError(f"it has {len(args)} operands; expected at least 2")
    machine.tensor(args[-1]).assign(machine.tensor(args[0]).tensor)


def _empty(machine: Machine, args: Sequence[int]) -> None:
    """dim_order_ops::_empty_dim_order.out(int[] size, *, int[]? dim_order, Tensor(a!) out)"""
    if len(args) < 3:
        raise ModelError(f"it has {len(args)} operands; expected at least 3")
    machine.tensor(args[-1]).resize(machine.read(args[0]))


def _nothing(machine: Machine, args: Sequence[int]) -> None:
    """Bounds that only the compiler uses."""


_PRIM: dict[str, tuple[Callable[..., Any], int]] = {
    "add.Scalar": (lambda a, b: a + b, 2),
    "sub.Scalar": (lambda a, b: a - b, 2),
    "mul.Scalar": (lambda a, b: a * b, 2),
    "floordiv.Scalar": (lambda a, b: a // b, 2),
    "floordiv.int": (lambda a, b: a // b, 2),
    "truediv.Scalar": (lambda a, b: a / b, 2),
    "mod.Scalar": (lambda a, b: a % b, 2),
    "mod.int": (lambda a, b: a % b, 2),
    "eq.Scalar": (lambda a, b: a == b, 2),
    "gt.Scalar": (lambda a, b: a > b, 2),
    "lt.Scalar": (lambda a, b: a < b, 2),
    "ge.Scalar": (lambda a, b: a >= b, 2),
    "le.Scalar": (lambda a, b: a <= b, 2),
    "sym_max.Scalar": (max, 2),
    "sym_min.Scalar": (min, 2),
    "neg.Scalar": (lambda a: -a, 1),
    "ceil.Scalar": (math.ceil, 1),
    "round.Scalar": (round, 1),
    "trunc.Scalar": (math.trunc, 1),
    "sym_float.Scalar": (float, 1),
    "sym_int.Scalar": (int, 1),
    "sym_not.Scalar": (lambda a: not a, 1),
    "sym_ite.Scalar": (lambda b, t, f: t if b else f, 3),
}

_OWN: dict[str, Kernel] = {
    **{f"executorch_prim::{name}": _number(function, count) for name, (function, count) in _PRIM.items()},
    "executorch_prim::et_copy_index.tensor": _copy_index,
    "executorch_prim::et_view.default": _view,
    "dim_order_ops::_to_dim_order_copy.out": _copy_self,
    "dim_order_ops::_clone_dim_order.out": _copy_self,
    "dim_order_ops::_empty_dim_order.out": _empty,
    "et_copy::_h2d_copy.out": _copy_self,
    "et_copy::_d2h_copy.out": _copy_self,
    "aten::sym_size.int": _of_tensor(lambda tensor, dim: tensor.shape[dim], 2),
    "aten::sym_stride.int": _of_tensor(lambda tensor, dim: tensor.stride(dim), 2),
    "aten::sym_numel": _of_tensor(torch.Tensor.numel, 1),
    "aten::_local_scalar_dense": _of_tensor(_item, 1),
    "aten::sym_constrain_range": _nothing,
    "aten::sym_constrain_range_for_size": _nothing,
}
