"""A verdict on one node: convert it alone, hold shape and dtype against torch's, then its values (see proof.py).

The node is wrapped as a program of its own, with its real argument types.
Constants are presented as constants, because some operands must be known when
the model is compiled; a large one is a stand-in of one element stretched to the
shape, so that no weight is touched.
"""

from __future__ import annotations

import hashlib
import operator
import re
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import coremltools as ct
import torch
from coremltools.converters.mil.mil import Program, types
from coremltools.converters.mil.mil.types.symbolic import is_symbolic
from torch.export import ExportedProgram
from torch.export.graph_signature import (
    ExportGraphSignature,
    InputKind,
    InputSpec,
    OutputKind,
    OutputSpec,
    SymIntArgument,
    TensorArgument,
)
from torch.fx import Graph, GraphModule, Node

from ..convert.program import DEFAULT_TARGET, complete, to_mil
from ..convert.scope import converters
from ..runtime import ir
from ..runtime.check import check_ops
from ..runtime.from_mil import from_mil
from .nodes import (
    dtype_name,
    has_undefined_values,
    is_in_order,
    is_symbol,
    op_name,
    source_line,
    tensors,
    used_items,
    used_tensors,
)
from .probes import large_constant
from .program_view import SMALL, ProgramView, element_count
from .proof import RandomValues, Unproven, wrong_values
from .quirks import takes_any_of_equals
from .verdict_cache import keep, recall

# What Core ML carries a torch dtype as. int64 and float64 are the two declared narrowings.
MIL_DTYPES = {
    torch.bool: types.bool,
    torch.int8: types.int8,
    torch.uint8: types.uint8,
    torch.int16: types.int16,
    torch.int32: types.int32,
    torch.int64: types.int32,
    torch.float16: types.fp16,
    torch.float32: types.fp32,
    torch.float64: types.fp32,
}
# Multi-array dtypes that cannot cross the border of a Core ML program: the runtime cannot return int8 (et#24317)
# and takes no uint8 (ct#2495, ort#28595).
INSIDE_ONLY = frozenset((torch.int8, torch.uint8))
NARROWED = {torch.int64: torch.int32, torch.float64: torch.float32}

_PACKAGE = str(Path(__file__).parents[1])
_SYMBOL = re.compile(r"\b[a-z]+\d+\b")


@dataclass(frozen=True)
class Verdict:
    """Whether a node can run on Core ML.

    Attributes:
        rule: where it cannot, the rule's id.
        reason: where it cannot, why, in one sentence; where it can although nothing was shown, why that is so.
        tensor: the tensor that the reason speaks of, or "".
        evidence: the probe that told, with the expected value and the one got, or "".
    """

    ok: bool
    rule: str = ""
    reason: str = ""
    tensor: str = ""
    evidence: str = ""


PROVEN = Verdict(True)


class ConverterBug(RuntimeError):
    """A converter of coreproof's own failed in a way that is no refusal: a bug to report, not missing support."""


@dataclass
class _Slice:
    """A node with the small constants and sizes that it is computed from: `inner` is copied, `leaves` are inputs."""

    inner: list[Node]
    leaves: list[Node]


class Attempts:
    """Verdicts by signature for one deployment target, kept for the life of the process.

    Args:
        target: the deployment target; None is coremltools' own default.
        use_cache: whether verdicts are kept on disk too, and those of earlier processes used.
    """

    _verdicts: dict[str, Verdict] = {}

    def __init__(self, target: ct.target | None, use_cache: bool) -> None:
        self.target = target or DEFAULT_TARGET
        self._use_cache = use_cache
        self._converters = converters()

    def verdict(self, node: Node, view: ProgramView, on_coreml: set[Node], constant_nodes: set[Node]) -> Verdict:
        """The verdict on `node`, converted alone.

        Args:
            node: a `call_function` node that is no getitem.
            view: the program that it belongs to.
            on_coreml: nodes that run on Core ML.
            constant_nodes: those of them whose values are known when the model is compiled.

        Raises:
            ConverterBug: one of our own converters broke.
        """
        piece = _slice(node, on_coreml, constant_nodes)
        key = self._signature(node, piece, view, constant_nodes)
        if key not in self._verdicts:
            kept = recall(key, Verdict) if self._use_cache else None
            self._verdicts[key] = kept or _attempt(node, piece, view, constant_nodes, self.target)
            if self._use_cache and kept is None:
                keep(key, self._verdicts[key])
        return self._verdicts[key]

    def _signature(self, node: Node, piece: _Slice, view: ProgramView, constant_nodes: set[Node]) -> str:
        names: dict[str, str] = {}

        def rename(match: re.Match[str]) -> str:
            return names.setdefault(match.group(), f"d{len(names)}")

        def tensor(value: Any) -> str:
            if isinstance(value, torch.Tensor):
                shape = _SYMBOL.sub(rename, ",".join(str(size) for size in value.shape))
                return f"{value.dtype}[{shape}]"
            if isinstance(value, (tuple, list)):
                return f"({','.join(tensor(v) for v in value)})"
            return type(value).__name__

        index: dict[Node, str] = {}
        parts = [self._converters, self.target.name, view.program.dialect]
        for number, leaf in enumerate(piece.leaves):
            index[leaf] = f"%{number}"
            kind = "const" if view.is_owned(leaf) or leaf in constant_nodes else "input"
            parts.append(f"{kind}:{tensor(leaf.meta.get('val'))}{_content(view.constants.get(leaf))}")
        for number, inner in enumerate(piece.inner):
            arguments = torch.fx.map_arg((inner.args, inner.kwargs), lambda n: index[n])
            parts.append(f"{op_name(inner)}{arguments!r}->{tensor(inner.meta.get('val'))}")
            index[inner] = f"%%{number}"
        return "|".join(parts)


def _content(value: torch.Tensor | None) -> str:
    if value is None:
        return ""
    raw = value.detach().cpu().contiguous().reshape(-1).view(torch.uint8) if value.numel() else value.new_empty(0)
    return "#" + hashlib.sha1(raw.numpy().tobytes() if raw.numel() else b"", usedforsecurity=False).hexdigest()


def _slice(node: Node, on_coreml: set[Node], constant_nodes: set[Node]) -> _Slice:
    """The node with what must be seen beside it.

    Copied with it are the sizes that it reads, the small constants, and what makes an int8 or uint8 operand on
    Core ML: such a tensor exists inside a program only (a quantised activation, for instance).
    """
    inner: list[Node] = []
    leaves: list[Node] = []
    seen: set[Node] = set()

    def is_copied(operand: Node) -> bool:
        if operand.op != "call_function":
            return False
        if is_symbol(operand) or (operand in on_coreml and any(t.dtype in INSIDE_ONLY for t in tensors(operand))):
            return True
        count = element_count(operand)
        return operand in constant_nodes and count is not None and count <= SMALL

    def visit(current: Node) -> None:
        for operand in current.all_input_nodes:
            if operand in seen:
                continue
            seen.add(operand)
            if is_copied(operand):
                visit(operand)
            else:
                leaves.append(operand)
        inner.append(current)

    visit(node)
    return _Slice(inner, leaves)


def _attempt(node: Node, piece: _Slice, view: ProgramView, constant_nodes: set[Node], target: ct.target) -> Verdict:
    if not tensors(node) and not is_symbol(node):
        return Verdict(False, "attempt", "it makes no tensor that Core ML could return")
    outside = next((leaf for leaf in piece.leaves if _comes_from_outside(leaf, view, constant_nodes)), None)
    if outside is not None:
        reason = f"its size is that of a {dtype_name(tensors(outside)[0].dtype)} tensor, which stays outside Core ML"
        return Verdict(False, "size-input", reason)
    unknown = [dtype_name(t.dtype) for t in (*_tensors_in(piece), *used_tensors(node)) if t.dtype not in MIL_DTYPES]
    if unknown:
        return Verdict(False, "dtype", f"Core ML has no {unknown[0].removeprefix('torch.')} tensors")
    if any(_exceeds_int32(view.constants.get(leaf)) for leaf in piece.leaves):
        return Verdict(False, "int64-range", "it reads a constant that does not fit in int32, Core ML's widest integer")
    program = _one_node_program(node, piece, view, constant_nodes)
    try:
        mil = to_mil(program, target)
        complete(mil)
    except Exception as error:  # noqa: BLE001  coremltools raises every type; ours are told apart below
        if _is_our_bug(error):
            raise ConverterBug(
                f"coreproof's converter of {op_name(node)} failed on {node.name} "
                f"({source_line(node) or 'no source line'}): {type(error).__name__}: {error}"
            ) from error
        return Verdict(False, *_refusal(error))
    verdict = _contract(node, mil)
    if not verdict.ok or is_symbol(node):
        return verdict
    emitted = from_mil(mil)
    for finding in check_ops(emitted):
        return Verdict(
            False, finding.rule, f"Apple's runtime does not run it right: {finding.problem} ({finding.source})"
        )
    return _proof(node, program, emitted, view)


def _exceeds_int32(value: torch.Tensor | None) -> bool:
    if value is None or value.dtype != torch.int64 or not value.numel():
        return False
    limits = torch.iinfo(torch.int32)
    return bool(value.max() > limits.max or value.min() < limits.min)


def _comes_from_outside(leaf: Node, view: ProgramView, constant_nodes: set[Node]) -> bool:
    """Whether a leaf is of a dtype that no program takes: a node can still want its size."""
    known = view.is_owned(leaf) or leaf in constant_nodes
    return not known and any(t.dtype in INSIDE_ONLY for t in tensors(leaf))


def _tensors_in(piece: _Slice) -> list[torch.Tensor]:
    return [t for leaf in piece.leaves for t in tensors(leaf)]


def _refusal(error: Exception) -> tuple[str, str]:
    text = str(error).strip().splitlines()[0].strip() if str(error).strip() else type(error).__name__
    missing = ("Unsupported fx node", "convert function for op", "type object 'Builder' has no attribute")
    if _raised_by_us(error):
        return "converter", _shorten(text)
    if any(phrase in text for phrase in missing):
        return "no-converter", "coremltools 9.0 has no converter for it"
    return "attempt", f"coremltools 9.0 fails to convert it with these arguments ({_shorten(text)})"


def _shorten(text: str, limit: int = 160) -> str:
    return text if len(text) <= limit else text[: limit - 3] + "..."


def _is_our_bug(error: Exception) -> bool:
    """Whether the innermost frame is a converter of ours and the type is not one that converters refuse with."""
    return _raised_by_us(error) and not isinstance(error, (NotImplementedError, ValueError, OverflowError))


def _raised_by_us(error: Exception) -> bool:
    frames = traceback.extract_tb(error.__traceback__)
    return bool(frames) and frames[-1].filename.startswith(_PACKAGE)


def _one_node_program(node: Node, piece: _Slice, view: ProgramView, constant_nodes: set[Node]) -> ExportedProgram:
    graph = Graph()
    copies: dict[Node, Node] = {}
    specs: list[InputSpec] = []
    constants: dict[str, torch.Tensor] = {}
    known = [leaf for leaf in piece.leaves if view.is_owned(leaf) or leaf in constant_nodes]
    for leaf in (*known, *(leaf for leaf in piece.leaves if leaf not in known)):
        copies[leaf] = graph.placeholder(leaf.name)
        copies[leaf].meta = dict(leaf.meta)
        if tensors(leaf) and not is_in_order(tensors(leaf)[0]):  # a layout matters at the border of a delegate only
            copies[leaf].meta["val"] = tensors(leaf)[0].new_empty(tensors(leaf)[0].shape)
        argument = TensorArgument(name=copies[leaf].name)
        if leaf in known:
            constants[leaf.name] = _constant_value(leaf, view)
            specs.append(InputSpec(InputKind.CONSTANT_TENSOR, argument, target=leaf.name))
        else:
            specs.append(InputSpec(InputKind.USER_INPUT, argument, target=None))
    for inner in piece.inner:
        copies[inner] = graph.node_copy(inner, lambda n: copies[n])
    outputs = _outputs(graph, node, copies[node])
    graph.output(tuple(outputs))
    kind = SymIntArgument if is_symbol(node) else TensorArgument
    signature = ExportGraphSignature(
        specs, [OutputSpec(OutputKind.USER_OUTPUT, kind(name=o.name), target=None) for o in outputs]
    )
    return _program(graph, signature, constants, view)


def _program(
    graph: Graph, signature: ExportGraphSignature, constants: dict[str, torch.Tensor], view: ProgramView
) -> ExportedProgram:
    return ExportedProgram(
        root=GraphModule({}, graph),
        graph=graph,
        graph_signature=signature,
        state_dict={},
        range_constraints=_ranges(graph, view),
        module_call_graph=view.program.module_call_graph,
        constants=constants,
        verifiers=[view.program.verifier],
    )


def _ranges(graph: Graph, view: ProgramView) -> dict:
    """The program's ranges, and one for every size expression (`s0 // 2`) that an input of the piece has.

    Inside its partition such a size is computed; alone, the node's input has it, and coremltools takes only
    sizes that have a range of their own.
    """
    from torch.utils._sympy.value_ranges import ValueRanges

    ranges = dict(view.program.range_constraints)
    for placeholder in graph.find_nodes(op="placeholder"):
        for value in tensors(placeholder):
            for size in value.shape:
                if isinstance(size, torch.SymInt) and size.node.expr not in ranges:
                    ranges[size.node.expr] = ValueRanges(1, 2**31 - 1)
    return ranges


def _constant_value(leaf: Node, view: ProgramView) -> torch.Tensor:
    value = view.constants.get(leaf)
    if value is not None:
        return value.detach()
    fake = tensors(leaf)[0]
    return large_constant(fake.dtype, tuple(size if isinstance(size, int) else 2 for size in fake.shape))


def _outputs(graph: Graph, node: Node, copy: Node) -> list[Node]:
    """The copy itself, or its elements that somebody takes, for a node that makes several tensors."""
    value = node.meta.get("val")
    if not isinstance(value, (tuple, list)):
        return [copy]
    items = []
    for index in used_items(node):
        item = graph.call_function(operator.getitem, (copy, index))
        item.meta = {**node.meta, "val": value[index]}
        items.append(item)
    return items


def _proof(node: Node, program: ExportedProgram, emitted: ir.Program, view: ProgramView) -> Verdict:
    """Step 3: the values are torch's on every probe."""
    if has_undefined_values(node):
        return Verdict(True, reason="its values are undefined in torch")
    try:
        evidence = wrong_values(program, emitted, view.is_random(node), takes_any_of_equals(node))
    except RandomValues as error:
        return Verdict(True, reason=str(error))
    except Unproven as error:
        return Verdict(False, "unproven", f"its conversion could not be shown to be right: {error}")
    return (
        Verdict(False, "value", "its conversion gives other values than torch", evidence=evidence)
        if evidence
        else PROVEN
    )


def _contract(node: Node, mil: Program) -> Verdict:
    """Step 2: every emitted value has the shape and dtype that torch gave the node."""
    if is_symbol(node):
        return PROVEN
    emitted = mil.functions["main"].outputs
    for tensor, var in zip(used_tensors(node), emitted, strict=True):
        verdict = _contract_of_one(tensor, var)
        if not verdict.ok:
            return verdict
    return PROVEN


def _contract_of_one(tensor: torch.Tensor, var: Any) -> Verdict:
    if not types.is_tensor(var.sym_type) and not types.is_scalar(var.sym_type):
        return Verdict(False, "contract-type", f"coremltools made a {var.sym_type.__type_info__()}, no tensor")
    dtype = types.builtin_to_string(var.dtype)
    wanted = types.builtin_to_string(MIL_DTYPES[tensor.dtype])
    if dtype != wanted:
        torch_name = dtype_name(tensor.dtype)
        return Verdict(False, "contract-dtype", f"coremltools makes it {dtype}, torch has {torch_name}")
    shape = tuple(var.shape) if types.is_tensor(var.sym_type) else ()
    if not _same_shape(tuple(tensor.shape), shape):
        return Verdict(
            False, "contract-shape", f"coremltools gives it shape {_show(shape)}, torch {_show(tuple(tensor.shape))}"
        )
    return PROVEN


def _same_shape(torch_shape: tuple, mil_shape: tuple) -> bool:
    """Equal rank and sizes; a size that MIL leaves open may be any, one that torch leaves open must not be fixed."""
    if len(torch_shape) != len(mil_shape):
        return False
    pairs = zip(torch_shape, mil_shape, strict=True)
    return all(is_symbolic(m) or (isinstance(t, int) and t == m) for t, m in pairs)


def _show(shape: tuple) -> str:
    return "(" + ", ".join(str(size) for size in shape) + ("," if len(shape) == 1 else "") + ")"
