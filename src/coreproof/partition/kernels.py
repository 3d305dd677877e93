"""Which ops ExecuTorch can run on the CPU: its own registry of kernels says so."""

from __future__ import annotations

from contextlib import suppress
from functools import lru_cache

import torch
from executorch.exir.operator.convert import to_out_variant
from executorch.exir.passes.executorch_prim_ops_registry import is_sym_op
from torch.fx import Node

from .nodes import aten_op, is_getitem, is_symbol


@lru_cache(maxsize=1)
def registered_kernels() -> frozenset[str]:
    """Names such as `aten::add.out`, from the runtime in the installed wheel."""
    from executorch.runtime import Runtime

    return frozenset(Runtime.get().operator_registry.operator_names)


@lru_cache(maxsize=4096)
def has_kernel(op: torch._ops.OpOverload, extra: frozenset[str] = frozenset()) -> bool:
    """Whether the finished program can call `op` on the CPU.

    Args:
        op: the functional ATen op (for an edge op, the op that it wraps).
        extra: names (`namespace::op` or `namespace::op.overload`) for which the user has kernels of their own.
    """
    names = {_qualified(op)}
    # ExecuTorch's answers for an op without an out variant, and for one whose schema it cannot read.
    with suppress(RuntimeError, AssertionError, AttributeError):
        names.add(_qualified(to_out_variant(op)[0]))
    base = op._schema.name
    return base in extra or bool(names & (registered_kernels() | extra))


# Namespaces whose kernels are ExecuTorch's own, or nobody's. An op in any other is the user's.
_PUBLIC = frozenset(("aten", "dim_order_ops", "prims", "quant", "quantized_decomposed", "torchao", "torchvision"))


def is_users_own(node: Node) -> bool:
    """Whether `node` is a custom op, whose kernel only the user's own build of ExecuTorch could have."""
    op = aten_op(node)
    return isinstance(op, torch._ops.OpOverload) and op.namespace not in _PUBLIC


def lacks_kernel(node: Node, extra: frozenset[str]) -> bool:
    """Whether `node`, left on the CPU, would keep the program from loading."""
    op = aten_op(node)
    if isinstance(op, torch._ops.OpOverload):
        return not has_kernel(op, extra)
    # Arithmetic on sizes is a Python function here, and one of the runtime's own ops in the finished program.
    return node.op == "call_function" and is_symbol(node) and not is_getitem(node) and not is_sym_op(op)


def _qualified(op: torch._ops.OpOverload) -> str:
    overload = op._schema.overload_name
    return f"{op._schema.name}.{overload}" if overload else op._schema.name
