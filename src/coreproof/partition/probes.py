"""Inputs chosen to tell a right conversion from a wrong one.

A probe gives every operand of a node a value. What the values are depends on
the dtype and on the kind of probe; integers may be indices, whose range only
torch knows, so that several ranges are tried and the widest that torch takes is
used. What torch raises on is no probe.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

# Zeros of both signs, ties of rounding, both sides of common thresholds, and sizes at which an epsilon shows.
_SPECIAL = (
    0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, 2.5, 2.0, -2.0, 3.0, -3.0, 6.0, -6.5,
    1e-3, -1e-3, 1e-6, 10.0, -10.0, 30.0, -30.0, 100.0, -100.0,
)  # fmt: skip
# 2**24 + 1 is no float32, 70000 no int16, 4099 no float16.
_WHOLE = (0, 1, -1, 2, -2, 3, 7, -7, 100, -100, 4099, -4099, 70000, -70000, 2**24 + 1, -(2**24) - 1)
_NON_FINITE = (float("nan"), float("inf"), float("-inf"))
_APART = 7  # one value in so many is not finite
_WEIGHT_STRIDES = (1, 7, 61, 509, 4093, 32749)  # primes: no large constant is symmetric in two of its axes
_NARROW = {torch.int64: torch.int32}  # Core ML's widest integer


@dataclass(frozen=True)
class Operand:
    """What a probe must fill: a tensor's dtype and shape (integers)."""

    name: str
    dtype: torch.dtype
    shape: tuple[int, ...]

    @property
    def count(self) -> int:
        """The number of elements."""
        total = 1
        for size in self.shape:
            total *= size
        return total


@dataclass(frozen=True)
class Probe:
    """One value for each operand.

    Attributes:
        kind: in words, what they are.
        distinct: whether floats differ from one another.
    """

    kind: str
    values: list[torch.Tensor]
    distinct: bool


Runs = Callable[[Sequence[torch.Tensor]], Any]


def probes(operands: Sequence[Operand], run: Runs, few: bool = False) -> Iterator[tuple[Probe, Any]]:
    """Each probe that torch takes, with what torch makes of it.

    Args:
        operands: what to fill.
        run: torch's own computation, which may raise.
        few: only the two kinds that show most, for operands so large that time matters.
    """
    generator = torch.Generator().manual_seed(0)
    ranges = _ranges(operands)
    for kind in _kinds(operands, few):
        for turn in range(_turns(kind, operands)):
            for domain in _domains(kind, ranges):
                values = [
                    _value(operand, position, kind, turn, domain, generator)
                    for position, operand in enumerate(operands)
                ]
                try:
                    result = run(values)
                except Exception:  # noqa: BLE001  torch raises every type outside an op's domain
                    continue
                if domain.size:
                    ranges = [domain.size]
                yield Probe(_describe(kind, operands), values, kind in _DISTINCT), result
                break


def _kinds(operands: Sequence[Operand], few: bool) -> tuple[str, ...]:
    if not operands:  # nothing to choose: the node is a constant
        return ("ordinary",)
    return _FEW if few else _KINDS


_KINDS = ("ordinary", "wide", "special", "ties", "tiny", "non-finite")
_DISTINCT = ("ordinary", "wide", "tiny")
_FEW = ("ordinary", "special")
_WORDS = {
    "ordinary": "ordinary values",
    "wide": "values of many sizes",
    "special": "special values (zeros, halves, large and tiny ones)",
    "ties": "few values that repeat",
    "tiny": "tiny values",
    "non-finite": "NaN and infinities among the values",
}


def _describe(kind: str, operands: Sequence[Operand]) -> str:
    if not operands:
        return "its constants"
    if all(not operand.dtype.is_floating_point for operand in operands):
        return {"special": "extreme integers", "wide": "integers of both signs"}.get(kind, "ordinary integers")
    return _WORDS[kind]


@dataclass(frozen=True)
class _Domain:
    """What operands may hold.

    Attributes:
        size: integers lie below it; 0 stands for extreme ones.
        negative: integers of both signs.
        zeros: whether an integer may be 0.
        positive: floats are positive, as probabilities are.
    """

    size: int
    negative: bool = False
    zeros: bool = True
    positive: bool = False


def _ranges(operands: Sequence[Operand]) -> list[int]:
    """The sizes that an index may have to stay below, the widest first."""
    if all(operand.dtype.is_floating_point or operand.dtype == torch.bool for operand in operands):
        return [8]
    return sorted({size for operand in operands for size in operand.shape if size} | {8, 2, 1}, reverse=True)


def _domains(kind: str, ranges: list[int]) -> Iterator[_Domain]:
    """From the widest to the narrowest."""
    if kind == "special":
        yield _Domain(0)
        yield _Domain(0, zeros=False)
    if kind in ("wide", "tiny"):
        for size in ranges:
            yield _Domain(size, negative=True)
            yield _Domain(size, negative=True, zeros=False)
    for positive in (False, True):
        for size in ranges:
            yield _Domain(size, positive=positive)
            yield _Domain(size, zeros=False, positive=positive)


def _turns(kind: str, operands: Sequence[Operand]) -> int:
    """Small operands show one special value at a time."""
    most = max((operand.count for operand in operands), default=1)
    if kind == "special" and most < len(_SPECIAL):
        return 8
    return 3 if kind == "non-finite" and most < 3 * _APART else 1


def _value(
    operand: Operand, position: int, kind: str, turn: int, domain: _Domain, generator: torch.Generator
) -> torch.Tensor:
    if operand.dtype == torch.bool:
        return _bools(operand, kind, generator)
    if operand.dtype.is_floating_point:
        values = _floats(operand, position, kind, turn, generator)
        return values.abs() if domain.positive else values
    return _whole(operand, position, kind, turn, domain, generator)


def _bools(operand: Operand, kind: str, generator: torch.Generator) -> torch.Tensor:
    if kind in ("wide", "special"):
        return torch.full(operand.shape, kind == "wide")
    return torch.randint(0, 2, operand.shape, generator=generator).bool()


def _floats(operand: Operand, position: int, kind: str, turn: int, generator: torch.Generator) -> torch.Tensor:
    ordinary = torch.randn(operand.shape, generator=generator)
    if kind == "special":
        ordinary = _cycled(_SPECIAL, operand, position, turn, torch.float32)
    elif kind == "wide":
        ordinary = ordinary * 10.0 ** torch.randint(-4, 3, operand.shape, generator=generator)
    elif kind == "ties":
        ordinary = torch.randint(-1, 3, operand.shape, generator=generator).float()
    elif kind == "tiny":
        ordinary = ordinary * 1e-4
    elif kind == "non-finite":
        every = torch.arange(operand.count) + _APART - position
        chosen = torch.tensor(_NON_FINITE)[(every // _APART + turn) % len(_NON_FINITE)]
        ordinary = torch.where(every % _APART == 0, chosen, ordinary.reshape(-1)).reshape(operand.shape)
    return ordinary.to(operand.dtype)


def _whole(
    operand: Operand, position: int, kind: str, turn: int, domain: _Domain, generator: torch.Generator
) -> torch.Tensor:
    limits = torch.iinfo(_NARROW.get(operand.dtype, operand.dtype))
    if not domain.size:
        extremes = [v for v in (*_WHOLE, limits.max, limits.min, limits.max - 1) if limits.min <= v <= limits.max]
        values = _cycled(extremes, operand, position, turn, operand.dtype)
    else:
        size = min(domain.size, 2 if kind == "ties" else limits.max)
        low = -size if domain.negative and limits.min < 0 else 0
        values = torch.randint(low, size, operand.shape, generator=generator).to(operand.dtype)
    return values if domain.zeros else torch.where(values == 0, torch.ones_like(values), values)


def _cycled(
    values: Sequence[float] | Sequence[int], operand: Operand, position: int, turn: int, dtype: torch.dtype
) -> torch.Tensor:
    """The values in turn; each further operand goes round more slowly, so that every pair meets."""
    table = torch.tensor(values, dtype=dtype)
    slow = len(values) ** min(position, 3)
    places = torch.arange(operand.count) // slow + turn * (1 + 2 * position)
    return table[places % len(values)].reshape(operand.shape)


def large_constant(dtype: torch.dtype, shape: tuple[int, ...]) -> torch.Tensor:
    """A constant of this shape with random values that takes little memory: its elements overlap.

    It is symmetric in no two axes, so that a transposed weight shows. One dimension holds positive floats, because
    it may be a variance; integers are 0 or 1, because they may be indices.
    """
    strides = tuple(reversed(_WEIGHT_STRIDES[: len(shape)]))
    footprint = 1 + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True) if size)
    generator = torch.Generator().manual_seed(len(shape))
    if dtype.is_floating_point:
        base = torch.randn(footprint, generator=generator)
        base = (base.abs() + 0.25 if len(shape) == 1 else base).to(dtype)
    elif dtype in (torch.int8, torch.uint8):
        limits = torch.iinfo(dtype)
        base = torch.randint(limits.min, limits.max + 1, (footprint,), generator=generator).to(dtype)
    else:
        base = torch.randint(0, 2, (footprint,), generator=generator).to(dtype)
    return base.as_strided(shape, strides)
