"""The last MIL pass: every output of a function comes from an op of its own.

Core ML returns zeros, or the bytes of another output, for an output that is
also an input or that repeats an earlier output (pytorch/executorch#24317;
apple/coremltools#1887 for the repeated name). An `identity` gives such an
output its own value and its own name.
"""

from __future__ import annotations

from contextlib import AbstractContextManager

from coremltools.converters.mil.mil import Builder as mb
from coremltools.converters.mil.mil import Function, Program, Var
from coremltools.converters.mil.mil.scope import ScopeInfo, ScopeSource


def give_outputs_their_own_ops(mil: Program) -> None:
    """Put an `identity` behind each output that is an input, a constant or an earlier output (in place)."""
    for function in mil.functions.values():
        _separate_outputs(function)


def _separate_outputs(function: Function) -> None:
    taken = {*function.inputs}  # names
    outputs: list[Var] = []
    for var in function.outputs:
        outputs.append(_own_value(function, var, taken))
        taken.add(outputs[-1].name)
    if outputs != list(function.outputs):
        function.set_outputs(outputs)


def _own_value(function: Function, var: Var, taken: set[str]) -> Var:
    if var.op is not None and var.op.op_type != "const" and var.name not in taken:
        return var
    names = {name.name for op in function.operations for name in op.outputs} | taken
    count = 1
    while f"{var.name}_output_{count}" in names:
        count += 1
    with function, unscoped():
        return mb.identity(x=var, name=f"{var.name}_output_{count}")


def unscoped() -> AbstractContextManager:
    """The scope of an op that stems from no torch node: coremltools wants one that says so."""
    return mb.scope(
        ScopeInfo(source=ScopeSource.EXIR_STACK_TRACE, data=[None]),
        ScopeInfo(source=ScopeSource.EXIR_DEBUG_HANDLE, data=[None]),
    )
