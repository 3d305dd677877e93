"""Which values of a graph share memory, and which memory the graph writes to.

Training IR has views and in-place ops, which functionalisation later removes
together with every op that hands back its operand (`contiguous` of a contiguous
tensor, `dropout` in eval, `to` the same dtype). So two nodes can be one value
afterwards; what is said here is what may be, never less.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import torch
from torch.fx import Graph, Node
from torch.fx.experimental.symbolic_shapes import statically_known_true
from torch.utils._pytree import tree_leaves

aten = torch.ops.aten

CASTS = {aten.to, aten._to_copy, aten.type_as}


def is_tensor(node: Any) -> bool:
    """Whether `node` is a graph node whose value is one tensor."""
    return isinstance(node, Node) and isinstance(node.meta.get("val"), torch.Tensor)


def same_type(a: Node, b: Node) -> bool:
    """Whether two tensors have the same shape and dtype."""
    x, y = a.meta["val"], b.meta["val"]
    return x.dtype == y.dtype and same_sizes(x.shape, y.shape)


def same_sizes(a: Sequence, b: Sequence) -> bool:
    """Whether two shapes are known to be equal; adds no guard where they have symbolic sizes."""
    return len(a) == len(b) and all(statically_known_true(m == n) for m, n in zip(a, b, strict=True))


class Memory:
    """The memory of every node of a graph.

    Attributes:
        base: node to the node that made its memory (itself where the op makes new memory).
        whole: node to the node whose value it may be, unchanged and complete (itself where there is none).
        writes: (writing node, operand that it writes) in the order of the graph.
    """

    def __init__(self, graph: Graph) -> None:
        self.base: dict[Node, Node] = {}
        self.whole: dict[Node, Node] = {}
        self.writes: list[tuple[Node, Node]] = []
        for node in graph.nodes:
            operand = _shared_operand(node)
            self.base[node] = self.base[operand] if operand is not None else node
            whole = operand is not None and is_tensor(operand) and is_tensor(node) and same_type(node, operand)
            self.whole[node] = self.whole[operand] if whole and operand is not None else node
            self.writes += [(node, written) for written in _written_operands(node)]
        self.written: set[Node] = {self.base[operand] for _, operand in self.writes}


def _shared_operand(node: Node) -> Node | None:
    """The operand whose memory the result may share: of a view, an in-place op, or an op that may do nothing."""
    if node.op != "call_function" or not node.args or not isinstance(node.args[0], Node):
        return None
    first = node.args[0]
    if node.target is operator.getitem:
        return first
    if not isinstance(node.target, torch._ops.OpOverload):
        return None
    if node.target.overloadpacket in CASTS:
        same = first.meta["val"].dtype == node.meta["val"].dtype
        return first if same and node.target.overloadpacket is not aten._to_copy else None
    if any(result.alias_info is not None for result in node.target._schema.returns):
        return first
    # A composite op declares no alias and may still return its operand; one with several tensors computes something.
    composite = torch._C._dispatch_has_kernel_for_dispatch_key(node.target.name(), "CompositeImplicitAutograd")
    return first if composite and len(node.all_input_nodes) == 1 else None


def _written_operands(node: Node) -> list[Node]:
    # detach_ is in-place for autograd only: the values stay.
    if not isinstance(node.target, torch._ops.OpOverload) or node.target is aten.detach_.default:
        return []
    written: list[Node] = []
    for position, parameter in enumerate(node.target._schema.arguments):
        if parameter.alias_info is not None and parameter.alias_info.is_write:
            value = node.args[position] if position < len(node.args) else node.kwargs.get(parameter.name)
            written += [leaf for leaf in tree_leaves(value) if isinstance(leaf, Node)]
    return written
