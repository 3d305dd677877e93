"""Runs an exported program, or a lowered graph with each delegate replaced by its edge program, on torch.

It shows what partitioning did to the model's values, apart from what Core ML does to them: nothing, and that holds for
buffers over several calls too. What each delegate is given can be recorded, and all float arithmetic can be carried in
another type than the program's own: float32 shows what a half-type model computes without its own rounding, float64
how much float32 rounds. The constants of delegates can be rounded as Core ML stores them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias

import torch
from executorch.exir import EdgeProgramManager
from executorch.exir.delegate import executorch_call_delegate
from executorch.exir.dialects._ops import ops
from executorch.exir.lowered_backend_module import LoweredBackendModule
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, OutputKind
from torch.fx import GraphModule, Node
from torch.fx.node import map_aggregate
from torch.utils import _pytree as pytree

from ..rewrite.memory import Memory

_MOD = ops.backend.executorch_prim.mod.Scalar
# Called with a delegate, its operands and its results, each time that one runs.
Observer: TypeAlias = Callable[[LoweredBackendModule, list[Any], list[Any]], None]


def run_lowered(edge_program_manager: EdgeProgramManager, inputs: Sequence[Any], method: str = "forward") -> list:
    """The user outputs, flat, of one call from the program's initial state."""
    return LoweredRun(edge_program_manager, method)(*inputs)


class LoweredRun:
    """A lowered method, ready to be called several times; its buffers keep their values between calls.

    Args:
        edge_program_manager: of the lowered programs, before or after `to_executorch`.
        method: name of the method.
        floats: the type that carries every float; None leaves each its own.
        constants: the type to which the constants of delegates are rounded; None leaves them as they are.
        zeros: whether mutable buffers start at zero, as the program that ExecuTorch writes has them.
        observer: told of each call of a delegate.
    """

    def __init__(
        self,
        edge_program_manager: EdgeProgramManager,
        method: str = "forward",
        *,
        floats: torch.dtype | None = None,
        constants: torch.dtype | None = None,
        zeros: bool = False,
        observer: Observer | None = None,
    ) -> None:
        program = edge_program_manager.exported_program(method)
        self._main = ProgramRun(program, floats=floats, delegate_constants=constants, zeros=zeros, observer=observer)

    def __call__(self, *inputs: Any) -> list:
        """The user outputs, flat; `inputs` as the model takes them, of the shapes that it was lowered for."""
        return self.run(pytree.tree_leaves(inputs))

    def run(self, inputs: Sequence[Any]) -> list:
        """The user outputs, flat, of flat inputs."""
        return self._main.run(inputs)

    def reset(self) -> None:
        """Go back to the initial state."""
        self._main.reset()


class ProgramRun:
    """One exported program with its own copy of every buffer that it changes.

    Args:
        constants: the type to which its own constants, and the numbers in its graph, are rounded.
        floats, delegate_constants, zeros, observer: as for `LoweredRun`.
    """

    def __init__(
        self,
        program: ExportedProgram,
        *,
        floats: torch.dtype | None = None,
        constants: torch.dtype | None = None,
        delegate_constants: torch.dtype | None = None,
        zeros: bool = False,
        observer: Observer | None = None,
    ) -> None:
        self._signature = program.graph_signature
        self._module = program.graph_module
        self._held = {**program.state_dict, **program.constants}
        self._mutated = mutated_buffers(program)
        self._initial = {name: self._held[name] for name in self._mutated}
        self._zeros = zeros
        if constants is not None:
            fixed = {name: value for name, value in self._held.items() if name not in self._mutated}
            self._held.update({name: _rounded(value, constants) for name, value in fixed.items()})
        self._floats, self._constants = floats, constants
        self._inner = partial(ProgramRun, floats=floats, constants=delegate_constants, zeros=zeros)
        self._observer = observer
        self._delegates: dict[int, ProgramRun] = {}
        self.reset()

    def reset(self) -> None:
        """Go back to the initial state, in the delegates too."""
        start = torch.zeros_like if self._zeros else torch.clone
        for name, initial in self._initial.items():
            value = start(initial)
            wide = self._floats is not None and value.is_floating_point()
            self._held[name] = value.to(self._floats) if wide else value
        for inner in self._delegates.values():
            inner.reset()

    def run(self, inputs: Sequence[Any]) -> list:
        """The user outputs, flat.

        Raises:
            NotImplementedError: an output of another kind than user outputs and new values of buffers.
            Exception: whatever an op raises on these inputs.
        """
        with torch.no_grad():
            return self._run(inputs)

    def _run(self, inputs: Sequence[Any]) -> list:
        feed = iter(inputs)
        arguments = [
            next(feed) if spec.kind == InputKind.USER_INPUT else self._held[spec.target]
            for spec in self._signature.input_specs
        ]
        interpreter = _Interpreter(self._module, self._floats, self._constants, self._delegate, self.replaced)
        results = interpreter.run(*arguments)
        specs = self._signature.output_specs
        if len(results) < len(specs):
            # `to_executorch` has put a `copy_` into each buffer in the graph, and dropped the new values as outputs.
            specs = [spec for spec in specs if spec.kind != OutputKind.BUFFER_MUTATION]
        outputs = []
        for spec, value in zip(specs, results, strict=True):
            if spec.kind == OutputKind.BUFFER_MUTATION:
                # The old value may be an output or an operand of a view, so it is replaced, never written to.
                self._held[spec.target] = value.clone()
            elif spec.kind == OutputKind.USER_OUTPUT:
                outputs.append(value)
            else:
                raise NotImplementedError(f"an output of kind {spec.kind}")
        return outputs

    def replaced(self, node: Node, made: Any) -> Any:
        """What the nodes after `node` are given in the place of its result; here the result itself."""
        return made

    def _delegate(self, lowered: LoweredBackendModule, inputs: list[Any]) -> tuple:
        if id(lowered) not in self._delegates:
            self._delegates[id(lowered)] = self._inner(lowered.original_module)
        outputs = self._delegates[id(lowered)].run(inputs)
        if self._observer is not None:
            self._observer(lowered, inputs, outputs)
        return tuple(outputs)


def run_nodes(program: ExportedProgram, nodes: Sequence[Node], known: Mapping[Node, Any]) -> Any:
    """What the last of these nodes makes, every float carried in float32.

    Args:
        nodes: of the program, in order.
        known: the values of all other nodes that they read.

    Raises:
        Exception: whatever an op raises on these values.
    """
    interpreter = _Interpreter(program.graph_module, torch.float32, None, _no_delegate)
    interpreter.env.update(known)
    with torch.no_grad():
        for node in nodes:
            interpreter.env[node] = interpreter.run_node(node)
    return interpreter.env[nodes[-1]]


def _no_delegate(lowered: LoweredBackendModule, inputs: list[Any]) -> tuple:
    raise NotImplementedError("a delegate in an edge program")


def mutated_buffers(program: ExportedProgram) -> set[str]:
    """The buffers that a call changes, by name: as outputs of a functional program, in place in training IR."""
    signature = program.graph_signature
    written = {node.name for node in Memory(program.graph).written}
    buffers = {spec.arg.name: spec.target for spec in signature.input_specs if spec.kind == InputKind.BUFFER}
    return {*signature.buffers_to_mutate.values(), *(buffers[name] for name in written & set(buffers))}


def is_widened(program: ExportedProgram) -> bool:
    """Whether the program computes in another float type than float32 anywhere (inside delegates too)."""
    return any(
        tensor.is_floating_point() and tensor.dtype != torch.float32
        for module in _graph_modules(program.graph_module)
        for node in module.graph.nodes
        for tensor in pytree.tree_leaves(node.meta.get("val"))
        if isinstance(tensor, torch.Tensor)
    )


def _graph_modules(module: torch.nn.Module) -> Iterator[GraphModule]:
    for one in module.modules():
        if isinstance(one, GraphModule):
            yield one
        elif isinstance(one, LoweredBackendModule):
            yield from _graph_modules(one.original_module.graph_module)


def _rounded(value: Any, dtype: torch.dtype) -> Any:
    """A float constant rounded to a half type; whole where that would overflow or leave the type's normal range."""
    if isinstance(value, float):
        info = torch.finfo(dtype)
        return float(torch.tensor(value).to(dtype)) if info.smallest_normal <= abs(value) <= info.max else value
    if not isinstance(value, torch.Tensor) or not value.is_floating_point():
        return value
    rounded = value.to(dtype).to(value.dtype)
    return rounded if torch.equal(torch.isfinite(rounded), torch.isfinite(value)) else value


class _Interpreter(torch.fx.Interpreter):
    """Runs a graph; with `floats`, every float tensor and every float dtype argument becomes that type.

    With `constants`, numbers in the graph are rounded to that type.
    """

    def __init__(
        self,
        module: GraphModule,
        floats: torch.dtype | None,
        constants: torch.dtype | None,
        delegate: Callable[[LoweredBackendModule, list[Any]], tuple],
        replaced: Callable[[Node, Any], Any] | None = None,
    ) -> None:
        super().__init__(module)
        self._floats, self._constants = floats, constants
        self._delegate = delegate
        self._replaced = replaced

    def run_node(self, n: Node) -> Any:
        made = super().run_node(n)
        return made if self._replaced is None else self._replaced(n, made)

    def placeholder(self, target: Any, args: tuple, kwargs: dict) -> Any:
        return self._carried(super().placeholder(target, args, kwargs))

    def get_attr(self, target: Any, args: tuple, kwargs: dict) -> Any:
        return self._carried(super().get_attr(target, args, kwargs))

    def call_function(self, target: Any, args: tuple, kwargs: dict) -> Any:
        if target is executorch_call_delegate:
            lowered, *inputs = args
            return self._delegate(lowered, inputs)
        if target is _MOD and all(type(one) is int for one in args):
            return args[0] % args[1]  # its Python form in executorch 1.5.1 makes a torch.SymInt of an int, and fails
        if self._constants is not None:
            args, kwargs = map_aggregate(args, self._stored), map_aggregate(kwargs, self._stored)
        if self._floats is None:
            return super().call_function(target, args, kwargs)
        args, kwargs = map_aggregate(args, self._carried), map_aggregate(kwargs, self._carried)
        return map_aggregate(super().call_function(target, args, kwargs), self._carried)

    def _stored(self, value: Any) -> Any:
        return _rounded(value, self._constants) if isinstance(value, float) and self._constants else value

    def _carried(self, value: Any) -> Any:
        if isinstance(value, GraphModule) and (self._floats or self._constants):  # a branch of control flow
            inner = _Interpreter(value, self._floats, self._constants, self._delegate)
            return lambda *inputs: inner.run(*inputs)
        if self._floats is None:
            return value
        if isinstance(value, torch.Tensor) and value.is_floating_point():
            return value.to(self._floats)
        if isinstance(value, torch.dtype) and value.is_floating_point:
            return self._floats
        return value
