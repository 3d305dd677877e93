"""What a program is run on: the example inputs, and seeded random variations of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import torch
from torch.utils import _pytree as pytree

# Positional and keyword arguments of one call.
Call: TypeAlias = tuple[tuple[Any, ...], dict[str, Any]]


@dataclass(frozen=True)
class Case:
    """A sequence of calls from the program's initial state.

    Attributes:
        name: `example`, or `variation 1` and so on.
        calls: the arguments of each.
    """

    name: str
    calls: tuple[Call, ...] = field(repr=False)


def flat(call: Call) -> list[Any]:
    """The arguments as a lowered program takes them."""
    return pytree.tree_leaves(call)


def cases(example: Call, *, steps: int, variations: int, seed: int, usable: Callable[[Case], bool]) -> list[Case]:
    """The example `steps` times over, then each variation, with other values in each step.

    Args:
        usable: whether the model takes a case; what it does not take, or answers with NaN or infinity where the
            example gave none, is no variation. Where negative floats are the reason, magnitudes are tried.
    """
    found = [Case("example", (example,) * steps)]
    for number in range(1, variations + 1):
        for magnitudes in (False, True):
            generator = torch.Generator().manual_seed(seed * 1000 + number)
            calls = tuple(_varied(example, generator, magnitudes) for _ in range(steps))
            case = Case(f"variation {number}", calls)
            if usable(case):
                found.append(case)
                break
    return found


def _varied(call: Call, generator: torch.Generator, magnitudes: bool) -> Call:
    return pytree.tree_map(lambda leaf: _variation(leaf, generator, magnitudes), call)


def _variation(leaf: Any, generator: torch.Generator, magnitudes: bool) -> Any:
    """Same dtype and shape: floats of the same root mean square, integers between the example's, mixed bools."""
    if not isinstance(leaf, torch.Tensor) or leaf.is_complex() or not leaf.numel():
        return leaf
    if leaf.dtype == torch.bool:
        return torch.rand(leaf.shape, generator=generator) < 0.5
    if leaf.is_floating_point():
        wide = leaf.detach().double()
        size = float(wide[torch.isfinite(wide)].square().mean().sqrt().nan_to_num()) or 1.0
        values = torch.randn(leaf.shape, generator=generator, dtype=torch.float64) * size
        return (values.abs() if magnitudes else values).to(leaf.dtype)
    low, high = int(leaf.min()), int(leaf.max())
    return torch.randint(low, high + 1, leaf.shape, generator=generator).to(leaf.dtype)
