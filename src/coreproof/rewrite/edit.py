"""A changeable copy of an exported program: the graph and the signature are copied, the tensors are shared."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterator
from typing import Any

import torch
from torch._guards import detect_fake_mode
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, InputSpec, TensorArgument
from torch.fx import Node
from torch.fx.node import map_arg

# What a new node takes over from the one it replaces, so that an error can still name the user's line and module.
_PROVENANCE = ("stack_trace", "nn_module_stack", "source_fn_stack", "torch_fn", "from_node", "custom")


def constants(program: ExportedProgram) -> dict[Node, InputSpec]:
    """The placeholders of parameters, buffers and lifted tensors (mutable buffers too), with their specs."""
    kinds = (InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR)
    placeholders = (node for node in program.graph.nodes if node.op == "placeholder")
    return {
        node: spec
        for node, spec in zip(placeholders, program.graph_signature.input_specs, strict=True)
        if spec.kind in kinds
    }


def unspent(program: ExportedProgram) -> ExportedProgram:
    """The same program as if it had never been lowered, with tables of tensors of its own.

    ExecuTorch 1.5.1 takes the constants of delegates out of the table that it is given, and its passes leave symbols
    for data-dependent sizes pending, which torch then misses in the next trace: a program could be lowered once only.
    """
    own = copy.copy(program)
    own._state_dict, own._constants = dict(program.state_dict), dict(program.constants)
    fake_mode = detect_fake_mode([node.meta.get("val") for node in program.graph.nodes])
    if fake_mode is not None and fake_mode.shape_env is not None:
        fake_mode.shape_env.pending_fresh_unbacked_symbols.clear()
    return own


class Edit:
    """The copy of one program while a rewrite changes it.

    `copy_of` maps a node of the program to its copy. New ops are made by `call`, at the place that `at` sets.
    """

    def __init__(self, program: ExportedProgram) -> None:
        self.program = program
        self.graph = copy.deepcopy(program.graph)
        self.copy_of: dict[Node, Node] = dict(zip(program.graph.nodes, self.graph.nodes, strict=True))
        self._signature = copy.deepcopy(program.graph_signature)
        self._state_dict = dict(program.state_dict)
        self._constants = dict(program.constants)
        self._fake_mode = detect_fake_mode([node.meta.get("val") for node in self.graph.nodes])
        self._source: Node | None = None

    @contextlib.contextmanager
    def at(self, node: Node, source: Node | None = None) -> Iterator[None]:
        """Insert new ops before `node`; they take their stack trace and module from `source` (default `node`)."""
        outer, self._source = self._source, source or node
        try:
            with self.graph.inserting_before(node):
                yield
        finally:
            self._source = outer

    def call(self, op: Any, *args: Any, **kwargs: Any) -> Node:
        """Insert one op, and infer the shape and dtype of its result."""
        node = self.graph.call_function(op, args, kwargs)
        with self._fake_mode or contextlib.nullcontext(), torch.no_grad():
            node.meta["val"] = op(*_example(args), **_example(kwargs))
        assert self._source is not None
        node.meta |= {key: self._source.meta[key] for key in _PROVENANCE if key in self._source.meta}
        return node

    def replace(self, old: Node, new: Node) -> None:
        """Let every reader of `old` read `new`, and erase `old`."""
        old.replace_all_uses_with(new)
        self.graph.erase_node(old)

    def tensor(self, spec: InputSpec) -> torch.Tensor:
        """The tensor of a parameter, buffer or lifted constant."""
        assert spec.target is not None
        held = self._state_dict if spec.target in self._state_dict else self._constants
        return held[spec.target].detach()

    def add_constant(self, name: str, tensor: torch.Tensor) -> Node:
        """Add a lifted tensor constant, ahead of the user's inputs."""
        placeholders = [node for node in self.graph.nodes if node.op == "placeholder"]
        specs = self._signature.input_specs
        index = next((i for i, spec in enumerate(specs) if spec.kind == InputKind.USER_INPUT), len(specs))
        before = placeholders[index] if index < len(specs) else placeholders[-1].next
        while name in self._constants or name in self._state_dict:
            name += "_"
        with self.graph.inserting_before(before):
            node = self.graph.placeholder(name)
        # The printed code of the module reads a placeholder by its target, so both must be the one unique name.
        node.target = node.name
        node.meta["val"] = self._fake_mode.from_tensor(tensor, static_shapes=True) if self._fake_mode else tensor
        specs.insert(index, InputSpec(InputKind.CONSTANT_TENSOR, TensorArgument(node.name), target=name))
        self._constants[name] = tensor
        return node

    def drop_constant(self, node: Node) -> None:
        """Erase the placeholder of a constant that no op reads any more, and its tensor with it."""
        specs = self._signature.input_specs
        spec = next(spec for spec in specs if spec.arg.name == node.name)
        specs.remove(spec)
        self.graph.erase_node(node)
        if spec.target is not None and all(spec.target != other.target for other in specs):
            self._state_dict.pop(spec.target, None)
            self._constants.pop(spec.target, None)

    def finish(self) -> ExportedProgram:
        """The changed program; the signature names the outputs as the graph now does."""
        for node, spec in zip(self.graph.output_node().args[0], self._signature.output_specs, strict=True):
            if isinstance(node, Node):
                spec.arg.name = node.name
        self.graph.lint()
        return ExportedProgram(
            root=self.program.graph_module,
            graph=self.graph,
            graph_signature=self._signature,
            state_dict=self._state_dict,
            range_constraints=copy.copy(self.program.range_constraints),
            module_call_graph=copy.deepcopy(self.program.module_call_graph),
            example_inputs=self.program.example_inputs,
            constants=self._constants,
            verifiers=self.program.verifiers,
        )


def argument(node: Node, name: str) -> Any:
    """The value that a node gives an argument of its op, by position or keyword, else the schema's default or None."""
    for position, parameter in enumerate(node.target._schema.arguments):
        if parameter.name == name:
            if position < len(node.args) and not parameter.kwarg_only:
                return node.args[position]
            if name in node.kwargs:
                return node.kwargs[name]
            return parameter.default_value if parameter.has_default_value() else None
    return None


def _example(args: Any) -> Any:
    return map_arg(args, lambda node: node.meta["val"])
