"""What a finished `.pte` holds, read back from its bytes."""

from __future__ import annotations

import functools

from executorch.exir._serialize._program import deserialize_pte_binary
from executorch.exir.schema import DataLocation, Program


def operators(pte: bytes) -> set[str]:
    """The CPU operators that the program calls, over all methods, as ExecuTorch registers them: `aten::add.out`."""
    plans = _program(pte).execution_plan
    return {f"{op.name}.{op.overload}" if op.overload else op.name for plan in plans for op in plan.operators}


def delegates(pte: bytes) -> list[bytes]:
    """The bytes of each delegate, over all methods, in the order of the program."""
    program = _program(pte)
    found = []
    for plan in program.execution_plan:
        for delegate in plan.delegates:
            at = delegate.processed
            if at.location != DataLocation.INLINE:
                raise ValueError(f"delegate {delegate.id}: expected data restored inline, got {at.location}")
            found.append(bytes(program.backend_delegate_data[at.index].data))
    return found


def missing_kernels(pte: bytes) -> set[str]:
    """The CPU operators of the program that the portable ExecuTorch runtime of this machine has no kernel for."""
    return operators(pte) - registered_kernels()


@functools.cache
def registered_kernels() -> frozenset[str]:
    """The names of all kernels that the runtime of the installed ExecuTorch has."""
    from executorch.runtime import Runtime

    return frozenset(Runtime.get().operator_registry.operator_names)


def _program(pte: bytes) -> Program:
    return deserialize_pte_binary(pte).program
