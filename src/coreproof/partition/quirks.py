"""Facts that no conversion off the device can show: what Apple's runtime refuses or computes differently.

Each rule states the fact and its source (GitHub repository and issue: `ct` is
apple/coremltools, `et` pytorch/executorch, `ort` microsoft/onnxruntime). This is
the only place where the partitioner knows ops by name.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch.fx import Node
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

from .nodes import op_name, tensors, used_tensors

MAX_RANK = 5


@dataclass(frozen=True)
class Quirk:
    """One fact: `applies(node)` says whether the node meets it."""

    rule: str
    reason: str
    source: str
    applies: Callable[[Node], bool]


def quirk_of(node: Node) -> Quirk | None:
    """The first quirk that keeps `node` off Core ML, or None."""
    return next((quirk for quirk in QUIRKS if quirk.applies(node)), None)


def _own_and_operand_tensors(node: Node) -> list[torch.Tensor]:
    return [*(t for n in node.all_input_nodes for t in tensors(n)), *used_tensors(node)]


def _name(node: Node) -> str:
    return op_name(node).removeprefix("aten.")


def _argument(node: Node, position: int, name: str, default: object = None) -> object:
    return node.args[position] if len(node.args) > position else node.kwargs.get(name, default)


def _rank_above_five(node: Node) -> bool:
    return any(t.dim() > MAX_RANK for t in _own_and_operand_tensors(node))


def _has_zero_size(node: Node) -> bool:
    return any(isinstance(s, int) and s == 0 for t in _own_and_operand_tensors(node) for s in t.shape)


def _has_data_dependent_size(node: Node) -> bool:
    return any(free_unbacked_symbols(t.shape) for t in _own_and_operand_tensors(node))


def _drops_at_random(node: Node) -> bool:
    return _name(node) in ("native_dropout.default", "dropout.default") and _argument(node, 2, "train") is not False


def _pads_more_than_two(node: Node) -> bool:
    name = _name(node)
    if name.startswith(("reflection_pad3d", "replication_pad3d")):
        return True
    mode = _argument(node, 2, "mode", "constant")
    amounts = _argument(node, 1, "pad")
    return name == "pad.default" and mode != "constant" and isinstance(amounts, (list, tuple)) and len(amounts) > 4


# Ops whose index among equal values torch leaves open (its documentation of sort, topk, kthvalue and median).
ANY_OF_EQUALS = frozenset(("topk.default", "sort.default", "kthvalue.default", "median.dim", "mode.default"))


def takes_any_of_equals(node: Node) -> bool:
    """Whether the node may return the index of any of several equal values."""
    return _name(node) in ANY_OF_EQUALS


QUIRKS: tuple[Quirk, ...] = (
    Quirk(
        "rank",
        f"Core ML takes tensors of at most {MAX_RANK} dimensions",
        "ct#1723, ct#2291, et#11694",
        _rank_above_five,
    ),
    Quirk("zero-size", "Core ML refuses dimensions of size zero", "ort#23262, ct#1635", _has_zero_size),
    Quirk(
        "data-dependent-size",
        "its size depends on values, which crashes in the Core ML delegate",
        "et#17537",
        _has_data_dependent_size,
    ),
    Quirk(
        "dropout",
        "it drops values at random, as in training, and coremltools makes it keep all: call model.eval() first",
        "read in coremltools 9.0",
        _drops_at_random,
    ),
    Quirk(
        "pad-dimensions",
        "Core ML pads at most two dimensions in a mode other than constant",
        "ct#2576, ct#2571",
        _pads_more_than_two,
    ),
)
