"""The reference: eager torch.

A half-type model's own rounding is none of the conversion's: bfloat16, float16 and float64 models are run as the
exported graph with every float carried in float32, which is what Core ML's program computes in exact mode; the outputs
are then cast to the dtypes that the model declares. A float32 model is run as it is. That Core ML carries int64 and
float64 in 32 bits is declared in the placement, so only what it does to the values counts.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import nn
from torch.export import ExportedProgram
from torch.fx import Node
from torch.utils import _pytree as pytree

from .compare import greatest_difference
from .inputs import Case, flat
from .lowered_graph import ProgramRun, is_widened, mutated_buffers


class Run(Protocol):
    """A graph ready to be called with flat inputs, several times in sequence."""

    def reset(self) -> None:
        """Go back to the initial state."""

    def run(self, inputs: list[Any]) -> list[Any]:
        """The flat outputs of one call."""


class Reference:
    """What a method gives in torch, case by case, each from the initial state.

    Args:
        program: the exported method; None where there is a float32 module alone.
        module: the model itself, which is run where it computes in float32; None runs the exported graph.

    Attributes:
        stored_by: makes the run whose constants are rounded as the finished program stores them, at the start that of
            the exported graph with all constants rounded to float16; None where nothing is rounded.
        zeros: whether mutable buffers start at zero, as in a program of ExecuTorch's, instead of at the model's values.
    """

    def __init__(self, program: ExportedProgram | None, module: nn.Module | None = None) -> None:
        self._program = program
        self.stored_by: Callable[[], Run] | None = None if program is None else self._with_half_constants
        self.zeros = False
        self._widened = program is not None and is_widened(program)
        self._module = None if self._widened else module
        self._wanted: dict[str, list[list[Any]]] = {}
        self._double: dict[str, list[list[Any]]] = {}
        self._stored: dict[str, list[list[Any]]] = {}
        self._storing: Run | None = None  # made once: rounding the weights takes longer than running the model

    def outputs(self, case: Case) -> list[list[Any]]:
        """The flat outputs of each call, floats of other types than float32 still unrounded.

        Raises:
            Exception: whatever the model raises on these inputs.
        """
        if case.name not in self._wanted:
            self._wanted[case.name] = self._run(case)
        return self._wanted[case.name]

    def declared(self, case: Case) -> list[list[Any]]:
        """As `outputs`, in the dtypes that the model declares."""
        return self._as_declared(self.outputs(case))

    def witness(self, case: Case, call: int, output: int, rounds: bool) -> ReferenceWitness:
        """What else torch says about one output; `rounds` is whether the program rounds its constants."""
        return ReferenceWitness(self, case, call, output, rounds)

    def double(self, case: Case) -> list[list[Any]]:
        """As `outputs`, all floats carried in float64; empty where an op has no float64 kernel."""
        if case.name not in self._double:
            self._double[case.name] = (
                []
                if self._program is None
                else _tried(lambda: _sequence(ProgramRun(self._program, floats=torch.float64, zeros=self.zeros), case))
            )
        return self._double[case.name]

    def stored(self, case: Case) -> list[list[Any]]:
        """As `declared`, with rounded constants; empty where nothing is rounded."""
        if case.name not in self._stored:
            if self._storing is None and self.stored_by is not None:
                self._storing = self.stored_by()
            run = self._storing
            self._stored[case.name] = [] if run is None else self._as_declared(_tried(lambda: _sequence(run, case)))
        return self._stored[case.name]

    @property
    def starts_elsewhere(self) -> list[str]:
        """The mutable buffers that do not start at zero."""
        if self._program is None:
            return []
        held = {**self._program.state_dict, **self._program.constants}
        return sorted(name for name in mutated_buffers(self._program) if bool(held[name].count_nonzero()))

    def start_from_zeros(self) -> None:
        """Let mutable buffers start at zero from now on."""
        self.zeros, self._storing = True, None
        for known in (self._wanted, self._double, self._stored):
            known.clear()

    def is_usable(self, case: Case, example: Case) -> bool:
        """Whether the model takes the case, and makes no NaN or infinity in outputs where the example made none."""
        try:
            varied = self.outputs(case)
        except Exception:  # the user's code raises every type
            return False
        return all(
            _is_finite(one) or not _is_finite(known)
            for made, expected in zip(varied, self.outputs(example), strict=True)
            for one, known in zip(made, expected, strict=True)
        )

    @property
    def has_state(self) -> bool:
        """Whether a call changes what the next one gives."""
        if self._program is not None:
            return bool(mutated_buffers(self._program))
        return self._module is not None and any(True for _ in self._module.buffers())

    def _run(self, case: Case) -> list[list[Any]]:
        if self._module is None:
            assert self._program is not None, "a reference has a program or a module"
            return _sequence(ProgramRun(self._program, floats=self.floats, zeros=self.zeros), case)
        module = copy.deepcopy(self._module, {id(p): p for p in self._module.parameters()})
        with torch.no_grad():
            for name in self.starts_elsewhere if self.zeros else ():
                module.get_buffer(name).zero_()
            # A copy of each result: a module may return the buffer that its next call writes to.
            return [
                pytree.tree_map(_apart, pytree.tree_leaves(module(*copied(args), **copied(kwargs))))
                for args, kwargs in case.calls
            ]

    @property
    def floats(self) -> torch.dtype | None:
        """The type that carries every float of the model's graphs on torch; None leaves each its own."""
        return torch.float32 if self._widened else None

    def _with_half_constants(self) -> Run:
        assert self._program is not None
        return ProgramRun(self._program, floats=self.floats, constants=torch.float16, zeros=self.zeros)

    def _as_declared(self, outputs: list[list[Any]]) -> list[list[Any]]:
        if not self._widened:
            return outputs
        dtypes = self._dtypes()
        return [[_cast(v, d) for v, d in zip(call, dtypes, strict=True)] for call in outputs]

    def _dtypes(self) -> list[torch.dtype | None]:
        assert self._program is not None
        nodes = {node.name: node.meta.get("val") for node in self._program.graph.nodes}
        values = [nodes.get(name) for name in self._program.graph_signature.user_outputs]
        return [value.dtype if isinstance(value, torch.Tensor) else None for value in values]


@dataclass(frozen=True)
class ReferenceWitness:
    """A `Witness` about one output of one call of a case."""

    reference: Reference
    case: Case
    call: int
    output: int
    rounds: bool

    def stored(self) -> torch.Tensor | None:
        outputs = self.reference.stored(self.case) if self.rounds else []
        return outputs[self.call][self.output] if outputs else None

    def noise(self) -> float:
        double = self.reference.double(self.case)
        if not double:
            return 0.0
        single = self.reference.outputs(self.case)
        return greatest_difference(single[self.call][self.output], double[self.call][self.output])


def random_ops(program: ExportedProgram) -> list[str]:
    """The ops that draw numbers, sorted: no two runs of such a program agree."""
    return sorted({str(node.target) for node in program.graph.nodes if _is_random(node)})


def _is_random(node: Node) -> bool:
    """Attention and dropout have torch's tag for it even where they drop nothing."""
    if torch.Tag.nondeterministic_seeded not in getattr(node.target, "tags", ()):
        return False
    schema = node.target._schema
    given = dict(zip((a.name for a in schema.arguments), node.args, strict=False)) | node.kwargs
    if "scaled_dot_product" in schema.name:
        return bool(given.get("dropout_p", 0))
    return bool(given.get("train", True))


def _cast(value: Any, dtype: torch.dtype | None) -> Any:
    return value if dtype is None or not isinstance(value, torch.Tensor) else value.to(dtype)


def _apart(value: Any) -> Any:
    return value.clone() if isinstance(value, torch.Tensor) else value


def copied(values: Any) -> Any:
    """Inputs of its own for each run: a model may write to them."""
    return pytree.tree_map(_apart, values)


def _sequence(run: Run, case: Case) -> list[list[Any]]:
    # A copy of each result: it may be the memory of a buffer that the next call writes to.
    run.reset()
    return [copied(run.run(copied(flat(call)))) for call in case.calls]


def _tried(make: Callable[[], list[list[Any]]]) -> list[list[Any]]:
    """The outputs; none where an op has no kernel for the type that they are to be carried in."""
    try:
        return make()
    except (RuntimeError, NotImplementedError):
        return []


def _is_finite(value: Any) -> bool:
    if not isinstance(value, torch.Tensor) or not value.is_floating_point():
        return True
    return bool(torch.isfinite(value).all())
