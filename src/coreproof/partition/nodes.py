"""What a torch.fx node says about itself: its op's name, its tensors, the user's source line."""

from __future__ import annotations

import operator
import os
import re
from collections.abc import Iterator
from typing import Any

import torch
from executorch.exir.dialects.edge._ops import EdgeOpOverload
from torch.fx import Node

_FRAME = re.compile(r'File "([^"]+)", line (\d+)')
_TORCH_FOLDER = os.path.dirname(torch.__file__)
_UNDEFINED = re.compile(r"aten\.(new_)?empty(_like|_strided|_permuted)?\.|dim_order_ops\._empty_dim_order\.")
_SYMBOLS = (torch.SymInt, torch.SymBool, torch.SymFloat)

# Ops that ExecuTorch removes before a program runs (exir/passes/remove_graph_asserts_pass.py): they run nowhere.
_REMOVED = frozenset(
    (
        "_assert_async.msg",
        "_assert_scalar.default",
        "_assert_tensor_metadata.default",
        "sym_constrain_range.default",
        "sym_constrain_range_for_size.default",
    )
)


def op_name(node: Node) -> str:
    """The op as ExecuTorch names it: `aten.mm.default` in the ATen and in the edge dialect alike."""
    target = node.target
    if isinstance(target, torch._ops.OpOverload):
        return str(target)
    name = getattr(target, "__name__", str(target))
    if getattr(target, "__module__", "") in ("_operator", "math"):
        return f"{'operator' if target.__module__ == '_operator' else 'math'}.{name}"
    return name


def is_removed(node: Node) -> bool:
    """Whether the op is an assertion, which leaves no trace in the finished program."""
    return op_name(node).removeprefix("aten.") in _REMOVED


def has_undefined_values(node: Node) -> bool:
    """Whether torch says only the shape of what the op makes."""
    return _UNDEFINED.match(op_name(node)) is not None


def is_getitem(node: Node) -> bool:
    """Whether the node takes one value out of another node's tuple."""
    return node.target is operator.getitem and isinstance(node.args[0], Node) and not is_symbol(node.args[0])


def maker(node: Node) -> Node:
    """The node itself, or the one whose tuple it takes a value out of."""
    return node.args[0] if is_getitem(node) and isinstance(node.args[0], Node) else node


def is_symbol(node: Node) -> bool:
    """Whether the node is a size (or another run-time scalar) and not a tensor."""
    return isinstance(node.meta.get("val"), (*_SYMBOLS, int, float, bool))


def tensors(node: Node) -> list[torch.Tensor]:
    """The (fake) tensors that the node makes: one, several for a tuple, none for a scalar."""
    value = node.meta.get("val")
    values = value if isinstance(value, (tuple, list)) else (value,)
    return [v for v in values if isinstance(v, torch.Tensor)]


def aten_op(node: Node) -> Any:
    """What the node calls: of an edge op, the op that it wraps."""
    return node.target._op if isinstance(node.target, EdgeOpOverload) else node.target


def is_view(node: Node) -> bool:
    """Whether the op returns a view of its first operand."""
    schema = getattr(node.target, "_schema", None)
    first = schema.arguments[0].alias_info if schema is not None and schema.arguments else None
    return first is not None and not first.is_write


def used_items(node: Node) -> list[int]:
    """For a node that makes a tuple, the indices that somebody takes (the first where nobody does)."""
    return sorted({int(user.args[1]) for user in node.users if user.target is operator.getitem}) or [0]


def used_tensors(node: Node) -> list[torch.Tensor]:
    """The tensors that the node makes and somebody uses (batch norm makes empty statistics that nobody reads)."""
    value = node.meta.get("val")
    if not isinstance(value, (tuple, list)):
        return tensors(node)
    return [value[index] for index in used_items(node) if isinstance(value[index], torch.Tensor)]


def compute_nodes(graph: torch.fx.Graph) -> Iterator[Node]:
    """The nodes of the graph that run somewhere, in order."""
    return (node for node in graph.nodes if node.op == "call_function" and not is_removed(node))


def branch_nodes(graph: torch.fx.Graph) -> list[Node]:
    """The ops of the subgraphs that the graph's control flow calls (`torch.cond`, `while_loop`), at any depth."""
    names = dict.fromkeys(str(node.target) for node in graph.find_nodes(op="get_attr"))
    called = [getattr(graph.owning_module, name, None) for name in names]
    inner = [module.graph for module in called if isinstance(module, torch.fx.GraphModule)]
    return [node for one in inner for node in (*compute_nodes(one), *branch_nodes(one))]


def is_in_order(value: torch.Tensor) -> bool:
    """Whether the dimensions lie in memory in their order, which is the only layout that Core ML has."""
    if value.layout != torch.strided or any(not isinstance(s, int) for s in (*value.shape, *value.stride())):
        return True
    return tuple(value.dim_order()) == tuple(range(value.dim()))


def asks_for_layout(node: Node) -> bool:
    """Whether the ATen op is told to lay its result out otherwise than in order (channels-last, say)."""
    in_order = (None, torch.contiguous_format, torch.preserve_format)
    return node.op == "call_function" and node.kwargs.get("memory_format") not in in_order


def dtype_name(dtype: torch.dtype) -> str:
    """`uint8` for `torch.uint8`."""
    return str(dtype).removeprefix("torch.")


def describe(node: Node) -> str:
    """`name: uint8[1, 64, 64, 3]`, or the name alone where the node makes no tensor or several."""
    values = tensors(node)
    if len(values) != 1:
        return node.name
    return f"{node.name}: {dtype_name(values[0].dtype)}[{', '.join(str(s) for s in values[0].shape)}]"


def source_line(node: Node) -> str:
    """`file.py:12`, the innermost line of the user's own code that made the node, or "" where none was kept."""
    frames = _FRAME.findall(node.meta.get("stack_trace") or "")
    own = [frame for frame in frames if not frame[0].startswith((_TORCH_FOLDER, "<"))] or frames
    if not own:
        return ""
    path, line = own[-1]
    return f"{_short(path)}:{line}"


def module_path(node: Node) -> str:
    """The path of the user's module that the node comes from, for instance `encoder.layers.0`, or ""."""
    stack = node.meta.get("nn_module_stack")
    if not stack:
        return ""
    path = list(stack.values())[-1][0]
    return path.removeprefix("L['self'].").removeprefix("L__self___")


def _short(path: str) -> str:
    relative = os.path.relpath(path)
    return path if relative.startswith("..") else relative
