"""A placement as text for a terminal: shares, delegates, mutable buffers, and every refusal with its reason."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterable, Sequence

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from ..partition.record import BufferPlacement, MethodPlacement, Partition, Placement, Refusal
from ..verify.record import Verification
from .verification import precision_costs, verdict

_KINDS = {"state": "Core ML state", "io": "passed in and out", "cpu": "CPU"}
_LIBRARIES = re.compile(r"^.*/(?:site|dist)-packages/")
_FEW = 3  # entries of a line
_MANY = 10  # delegates


def placement_report(
    placement: Placement, *, verification: Verification | None = None, written: str = "", verbose: bool = False
) -> Group:
    """The whole report.

    Args:
        placement: as `coreproof.lower` and `coreproof.plan` return it.
        verification: of the finished program; its verdict comes first.
        written: the file that was written and its size, or "" where none was.
        verbose: every source line and boundary tensor instead of the first few, the tensors that refusals speak of,
            and the narrowed tensors.

    Returns:
        What `rich.console.Console.print` takes. It needs 80 columns and uses no markup in the user's own names.
    """
    parts: list[RenderableType] = [_summary(placement, verification, written)]
    costs = precision_costs(verification) if verification is not None else None
    if costs is not None:
        parts += _section("What float16 costs", costs)
    for name, method in placement.items():
        label = f" of {name}" if len(placement) > 1 else ""
        if method.partitions:
            parts += _section(f"Delegates{label}", _delegates(method.partitions, verbose))
        if method.buffers:
            parts += _section(f"Mutable buffers{label}", _buffers(method.buffers, verbose))
        if method.refusals:
            parts += _section(f"Not on Core ML{label}", _refusals(method, verbose))
        if verbose and method.narrowings:
            parts += _section(f"Narrowed to 32 bits{label}", _narrowings(method))
    return Group(*parts)


def file_size(count: int) -> str:
    """`count` bytes in the largest unit that keeps it at 1 or above, for instance `1.2 MB` (powers of 1000)."""
    size, units = float(count), ["bytes", "kB", "MB", "GB"]
    while size >= 999.95 and len(units) > 1:
        size, units = size / 1000, units[1:]
    return f"{count} bytes" if units[0] == "bytes" else f"{size:.1f} {units[0]}"


def _summary(placement: Placement, verification: Verification | None, written: str) -> Table:
    table = Table.grid(padding=(0, 2))
    for _ in range(2):
        table.add_column(overflow="fold")
    if verification is not None:
        table.add_row(Text("Verified", style="bold"), verdict(verification))
    for name, method in placement.items():
        table.add_row(Text("Core ML" if len(placement) == 1 else name, style="bold"), Text(_share(method)))
    if len(placement) > 1:
        whole = f"{placement.share:.1%} of the ops in {_count(placement.delegates, 'delegate')}"
        table.add_row(Text("All methods", style="bold"), Text(whole))
    narrowed = Counter(f"{n.from_dtype} to {n.to_dtype}" for method in placement.values() for n in method.narrowings)
    if narrowed:
        counts = ", ".join(f"{_count(number, 'tensor')} {pair}" for pair, number in sorted(narrowed.items()))
        table.add_row(Text("Narrowed", style="bold"), Text(counts))
    if written:
        table.add_row(Text("Written", style="bold"), Text(written))
    return table


def _share(method: MethodPlacement) -> str:
    total = len(method.nodes)
    on_coreml = f"{method.on_coreml} of {_count(total, 'op')} ({method.share:.1%})"
    return f"{on_coreml} in {_count(len(method.partitions), 'delegate')}, {total - method.on_coreml} on the CPU"


def _delegates(partitions: Sequence[Partition], verbose: bool) -> Group:
    shown = partitions if verbose else partitions[:_MANY]
    parts: list[RenderableType] = []
    for partition in shown:
        parts.append(Text(f"{partition.id}: {_count(partition.ops, 'op')}"))
        for label, tensors in (("in", partition.inputs), ("out", partition.outputs)):
            shapes = _few([_compact(tensor) for tensor in tensors], verbose)
            parts.append(Padding(Text(f"{label:<4}{shapes}", style="dim"), (0, 0, 0, 4)))
    if len(shown) < len(partitions):
        parts.append(Text(f"and {len(partitions) - len(shown)} more"))
    return Group(*parts)


def _buffers(buffers: Iterable[BufferPlacement], verbose: bool) -> Group:
    homes: dict[str, list[str]] = {}
    for buffer in buffers:
        home = _KINDS[buffer.kind] + (f" of delegate {buffer.partition}" if buffer.partition is not None else "")
        shape = ",".join(str(size) for size in buffer.shape)
        entry = f"{buffer.name} {buffer.dtype}[{shape}]"
        homes.setdefault(f"{home}: {buffer.reason}" if buffer.reason else home, []).append(entry)
    parts: list[RenderableType] = []
    for home, names in homes.items():
        parts += [Text(home), Padding(Text(_few(names, verbose), style="dim"), (0, 0, 0, 4))]
    return Group(*parts)


def _refusals(method: MethodPlacement, verbose: bool) -> Group:
    parts: list[RenderableType] = []
    for rule, reason, ops, refusals in method.refusals_by_reason():
        parts.append(Text.assemble((rule, "yellow"), f": {reason}"))
        counts = ", ".join(f"{number} x {op}" for op, number in ops.most_common())
        parts.append(Padding(Text(counts), (0, 0, 0, 4)))
        parts.append(Padding(Text(_few(_places(refusals), verbose), style="dim"), (0, 0, 0, 4)))
        subjects = list(dict.fromkeys(_compact(refusal.tensor) for refusal in refusals if refusal.tensor))
        if verbose and subjects:
            parts.append(Padding(Text(", ".join(subjects), style="dim"), (0, 0, 0, 4)))
        evidence = list(dict.fromkeys(refusal.evidence for refusal in refusals if refusal.evidence))
        parts += [Padding(Text(text), (0, 0, 0, 4)) for text in (evidence if verbose else evidence[:1])]
    return Group(*parts)


def _places(refusals: Iterable[Refusal]) -> list[str]:
    """The source lines, each once, in the order of the graph; the module or the node where there is no line."""
    return list(dict.fromkeys(_near(refusal.source) or refusal.module or refusal.node for refusal in refusals))


def _near(source: str) -> str:
    """A source line without the path to the current folder, or to the installed libraries."""
    return _LIBRARIES.sub("", source.removeprefix(os.getcwd() + os.sep))


def _compact(tensor: str) -> str:
    """`x: float32[1,3]` for `x: float32[1, 3]`, so that no line breaks inside a shape."""
    return tensor.replace(", ", ",")


def _narrowings(method: MethodPlacement) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for name in ("op", "from", "to", "source"):
        table.add_column(name, overflow="fold")
    for narrowing in method.narrowings:
        table.add_row(
            Text(narrowing.op),
            narrowing.from_dtype,
            narrowing.to_dtype,
            Text(_near(narrowing.source) or narrowing.node),
        )
    return table


def _few(items: Sequence[str], verbose: bool) -> str:
    shown = items if verbose else items[:_FEW]
    rest = len(items) - len(shown)
    return ", ".join(shown) + (f" and {rest} more" if rest else "")


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _section(title: str, body: RenderableType) -> list[RenderableType]:
    return [Text(), Text(title, style="bold"), Padding(body, (0, 0, 0, 2))]
