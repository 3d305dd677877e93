"""Converters of the random family. Core ML draws its own samples, of torch's distribution."""

from __future__ import annotations

from typing import Any

from coremltools.converters.mil.mil import Builder as mb

from .arguments import as_dtype, literal, mil_dtype, operand
from .registry import converter


@converter("multinomial")
def multinomial(context: Any, node: Any) -> None:
    """aten::multinomial(Tensor self, SymInt num_samples, bool replacement=False, *, Generator? generator=None)

    torch takes weights of any sum, `random_categorical` takes probabilities, so they are divided by their sum.
    Drawing one sample is the same with and without replacement.
    """
    weights = as_dtype(operand(context, node, "self", 0), "fp32")
    samples = literal(node, "num_samples", 1)
    if not isinstance(samples, int):
        raise NotImplementedError("multinomial draws a number of samples that is known only at run time")
    if samples > 1 and not literal(node, "replacement", 2, False):
        raise NotImplementedError(f"multinomial draws {samples} samples without replacement, and Core ML draws with it")
    total = mb.reduce_sum(x=weights, axes=[-1], keep_dims=True)
    probabilities = mb.real_div(x=weights, y=total)
    drawn = mb.random_categorical(x=probabilities, mode="probs", size=samples)
    context.add(mb.cast(x=drawn, dtype=mil_dtype(node), name=node.name))
