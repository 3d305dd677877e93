"""The sizes that the user declared for a dynamic dimension, kept through ExecuTorch's decompositions.

torch.export traces with sizes of at least 2 and remembers that 1 (or 0) was
declared; `run_decompositions` takes the ranges anew from the trace, so that a
dimension from 1 on becomes one from 2 on, and the delegate would refuse size 1.
"""

from __future__ import annotations

from typing import TypeAlias

import sympy
from torch.export import ExportedProgram
from torch.utils._sympy.value_ranges import ValueRanges

Ranges: TypeAlias = dict[sympy.Symbol, ValueRanges]


def declared_ranges(known: Ranges, program: ExportedProgram) -> Ranges:
    """The known ranges and the program's; of two for one symbol (several methods) what both allow."""
    found = dict(known)
    for symbol, declared in program.range_constraints.items():
        found[symbol] = found[symbol] & declared if symbol in found else declared
    return found


def restore_ranges(program: ExportedProgram, declared: Ranges) -> None:
    """Lower the bounds of the program's symbols to the declared ones, in place; to 1 at least, Core ML's least size."""
    for symbol, traced in program.range_constraints.items():
        lower = max(1, declared[symbol].lower) if symbol in declared else traced.lower
        if lower < traced.lower:
            program.range_constraints[symbol] = ValueRanges(lower, traced.upper)
