"""How far a result is from the expected one, and what follows from that.

Two comparisons decide, each with its own tolerance (docs/verdicts.md has the arithmetic):

- the program in *exact* mode (float32 throughout) against torch in float32 shows the conversion. Constants that the
  program stores in float16 are rounded there for good, so torch with its constants rounded alike is as good a witness.
  Constants that were computed from the model's before they were rounded (a folded batch norm, `1 / 255` for `/ 255`)
  leave a difference that is a rounding's in size: it is not settled until each op was looked at alone;
- the program in *declared* mode (results rounded to their declared types) shows what those types cost.

A difference is held against `rtol` times the greatest expected value of that output: a sum that cancels is small, its
round-off is that of its terms.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from ..errors import InputError
from .record import Metrics, Outcome, OutputCheck

# 64 float32 roundings (2**-24 each). 84 real models in exact mode are within 44 of eager torch; a tanh GELU run as an
# exact one is wrong by up to 4.7e-4, which is 1900 roundings of a value near 4.
EXACT = 2.0**-18
# 16 float16 roundings (2**-11 each).
DECLARED = 2.0**-7
# How much more than torch's own float32 error (against float64) the program's may be.
NOISE = 16
# How much more than the rounding of the model's constants that of constants computed from them may cost.
FOLDED = 4
# Beyond it a value is the mark of a mask (`torch.finfo(torch.float32).min`), and no measure of the others.
_MARK = 1e30
# One rounding to a half type, relative to the value; neighbours are at most twice as far apart.
ROUNDING = {torch.float16: 2.0**-11, torch.bfloat16: 2.0**-8}


@dataclass(frozen=True)
class Tolerance:
    """How far a float may be off: `atol`, plus `rtol` times the greatest expected value of its output.

    Attributes:
        exact: rtol of the program in exact mode.
        declared: rtol of the program in declared mode.
        atol: added to both.
    """

    exact: float = EXACT
    declared: float = DECLARED
    atol: float = 0.0


def tolerance(rtol: float | None = None, atol: float | None = None) -> Tolerance:
    """The default tolerance, or with what the user sets in place of it: `rtol` holds in both modes.

    Raises:
        InputError: a negative number, or NaN.
    """
    for name, given in (("rtol", rtol), ("atol", atol)):
        if given is not None and not given >= 0:
            raise InputError(f"{name} is {given}; expected a number from 0 on")
    if rtol is None:
        return Tolerance(atol=atol or 0.0)
    return Tolerance(rtol, rtol, atol or 0.0)


def widened(tolerance: Tolerance, rounding: float) -> Tolerance:
    """The tolerance for a program of which a part rounds this much by itself: 16 such roundings at least."""
    least = 16 * rounding
    return Tolerance(max(tolerance.exact, least), max(tolerance.declared, least), tolerance.atol)


def metrics(got: torch.Tensor, expected: torch.Tensor) -> Metrics:
    """The metrics of two tensors of one shape; any dtype (bools count as 0 and 1)."""
    e, g = expected.detach().double().flatten(), got.detach().double().flatten()
    error = _errors(g, e)
    size, finite = e.abs(), torch.isfinite(e) & torch.isfinite(g)
    relative = torch.where(error == 0, 0.0, error / size)
    power, noise = _sum_of_squares(e[finite]), float((error * error).sum()) if error.numel() else 0.0
    return Metrics(
        max_abs=_most(error),
        max_rel=_most(relative),
        mean_abs=float(error.mean()) if error.numel() else 0.0,
        snr_db=math.inf if noise == 0 else 10 * math.log10(power / noise) if power and noise < math.inf else -math.inf,
        cosine=_cosine(g[finite], e[finite]),
        nonfinite=(int((~torch.isfinite(e)).sum()), int((~torch.isfinite(g)).sum())),
    )


def is_within(got: torch.Tensor, expected: torch.Tensor, rtol: float, atol: float = 0.0) -> bool:
    """Whether every value is near enough; integers and bools must be equal, and so must NaN and infinities.

    Where the expected tensor is of a half type both are rounded to it, perhaps to neighbours: one more is allowed.
    """
    if not expected.is_floating_point():
        return torch.equal(got.to(torch.int64), expected.to(torch.int64))
    e, g = expected.detach().double(), got.detach().double()
    size = torch.where(torch.isfinite(e), e.abs(), 0.0)
    scale = _most(torch.where(size < _MARK, size, 0.0))
    allowed = atol + rtol * size.clamp(min=scale) + 2 * ROUNDING.get(expected.dtype, 0.0) * size
    return bool((_errors(g, e) <= allowed).all())


def greatest_difference(first: torch.Tensor, second: torch.Tensor) -> float:
    """The greatest absolute difference of two float tensors; infinite where one is finite and the other is not."""
    return _most(_errors(first.detach().double(), second.detach().double()))


class Witness(Protocol):
    """What else torch says about one output; asked for only where the plain tolerance is exceeded."""

    def stored(self) -> torch.Tensor | None:
        """The output with the constants rounded as the program stores them; None where nothing is rounded."""

    def noise(self) -> float:
        """Torch's own float32 error in the output: the greatest difference from float64."""


def check_output(
    name: str,
    case: str,
    step: int,
    expected: Any,
    exact: Any,
    declared: Any,
    tolerance: Tolerance,
    witness: Witness,
) -> OutputCheck:
    """One output of one call.

    Args:
        expected: of torch in float32, in the declared dtype.
        exact, declared: of the program; the two may be the same object where nothing is rounded.
    """
    problem = _problem(expected, exact) or _problem(expected, declared)
    if problem or not isinstance(expected, torch.Tensor):
        return OutputCheck(name, case, step, "mismatch" if problem else "match", problem=problem)
    of_exact = metrics(exact, expected)
    if declared is exact:
        of_declared, within = of_exact, True
    else:
        of_declared = metrics(declared, expected)
        within = is_within(declared, expected, tolerance.declared, tolerance.atol)
    outcome: Outcome = "match" if within else "precision"
    right = _is_right(exact, expected, tolerance, witness)
    settled = right or not _may_be_rounding(exact, expected, tolerance, witness)
    return OutputCheck(
        name, case, step, outcome if right or not settled else "mismatch", of_exact, of_declared, "", settled
    )


def _is_right(exact: torch.Tensor, expected: torch.Tensor, tolerance: Tolerance, witness: Witness) -> bool:
    """Whether nothing of the difference is the conversion's."""
    rtol, atol = tolerance.exact, tolerance.atol
    if is_within(exact, expected, rtol, atol):
        return True
    stored = witness.stored()
    near = expected if stored is None else stored
    if stored is not None and is_within(exact, stored, rtol, atol):
        return True
    if not expected.is_floating_point():
        return False
    own = NOISE * witness.noise()
    return 0 < own < math.inf and is_within(exact, near, rtol, atol + own)


def _may_be_rounding(exact: torch.Tensor, expected: torch.Tensor, tolerance: Tolerance, witness: Witness) -> bool:
    """Whether constants that were computed from the model's and then rounded could explain the difference."""
    stored = witness.stored()
    if stored is None or not expected.is_floating_point():
        return False
    rounding = FOLDED * greatest_difference(stored, expected)
    return rounding < math.inf and is_within(exact, expected, tolerance.declared, tolerance.atol + rounding)


def _problem(expected: Any, got: Any) -> str:
    """What is wrong beside the values, or ""."""
    if not isinstance(expected, torch.Tensor):
        if isinstance(got, torch.Tensor) and got.numel() == 1 and isinstance(expected, int | float | bool):
            got = got.item()
        return "" if got == expected else f"expected {expected!r}, got {got!r}"
    if not isinstance(got, torch.Tensor):
        return f"expected a tensor, got {got!r}"
    if got.dtype != expected.dtype:
        return f"expected {_name(expected.dtype)}, got {_name(got.dtype)}"
    if got.shape != expected.shape:
        return f"expected shape {list(expected.shape)}, got {list(got.shape)}"
    return ""


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _errors(got: torch.Tensor, expected: torch.Tensor) -> torch.Tensor:
    """Absolute differences; 0 for equal infinities and for two NaN, infinite where one of the two is not finite."""
    same = (got == expected) | (torch.isnan(got) & torch.isnan(expected))
    return torch.where(same, 0.0, (got - expected).abs()).nan_to_num(nan=math.inf, posinf=math.inf)


def _most(values: torch.Tensor) -> float:
    return float(values.max()) if values.numel() else 0.0


def _sum_of_squares(values: torch.Tensor) -> float:
    return float((values * values).sum())


def _cosine(first: torch.Tensor, second: torch.Tensor) -> float:
    lengths = math.sqrt(_sum_of_squares(first)) * math.sqrt(_sum_of_squares(second))
    if not lengths:
        return 1.0 if not first.any() and not second.any() else 0.0
    return max(-1.0, min(1.0, float(first @ second) / lengths))
