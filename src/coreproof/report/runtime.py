"""The runtime's findings as text for a reader."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from ..runtime import Finding


def outputs_text(outputs: dict[str, Any], written: str | None) -> str:
    """One line for each output: name, type, shape and range of values."""
    lines = [f"{name}: {_summary(value)}" for name, value in outputs.items()]
    if written:
        lines.append(f"written to {written}")
    return "\n".join(lines)


def _summary(value: Any) -> str:
    if not isinstance(value, np.ndarray):
        return repr(value) if isinstance(value, (str, dict)) else str(value)
    text = f"{value.dtype}{list(value.shape)}"
    if not value.size or value.dtype.kind not in "iuf":
        return text
    wide = value.astype(np.float64)
    finite = wide[np.isfinite(wide)]
    if finite.size:
        text += f", {finite.min():.6g} to {finite.max():.6g}, mean {finite.mean():.6g}"
    strange = wide.size - finite.size
    return text + (f", {strange} not finite" if strange else "")


def inspection_text(found: dict[str, Any]) -> str:
    """What `inspect` found, a section for each function."""
    lines = [f"specification {found['specification'] or 'none'}, runs from {found['target'] or 'unknown'} on"]
    for name, function in found["functions"].items():
        marked = " (default)" if name == found["default_function"] and len(found["functions"]) > 1 else ""
        lines += ["", f"function {name}{marked}, opset {function['opset']}"]
        for kind in ("inputs", "outputs"):
            for value, described in function[kind].items():
                extra = "".join(f", {key} {one}" for key, one in described.items() if key != "type")
                lines.append(f"  {kind[:-1]:7} {value}: {described['type']}{extra}")
        lines += [f"  state   {value}: {declared}" for value, declared in function["states"].items()]
        total = sum(function["ops"].values())
        ops = ", ".join(f"{op} {count}" for op, count in function["ops"].items())
        lines.append(f"  {total} ops: {ops}")
        if function["weights"]:
            sizes = ", ".join(f"{dtype} {size:,} bytes" for dtype, size in function["weights"].items())
            lines.append(f"  weights: {sizes}")
    return "\n".join(lines)


def pte_text(found: dict[str, Any]) -> str:
    """What `inspect` found in a `.pte`, a section for each method and each delegate."""
    lines: list[str] = []
    for name, method in found["methods"].items():
        lines += [*([""] if lines else []), f"method {name}"]
        for kind in ("inputs", "outputs"):
            lines += [f"  {kind[:-1]:7} {number}: {value}" for number, value in enumerate(method[kind])]
        lines += [f"  buffer  {value}" for value in method["mutable_buffers"]]
        kernels = ", ".join(f"{kernel} {count}" for kernel, count in method["kernels"].items())
        lines.append(f"  {sum(method['kernels'].values())} kernel calls{': ' if kernels else ''}{kernels}")
        lines.append(f"  memory: {method['constant_bytes']:,} bytes constant, {method['planned_bytes']:,} planned")
        for number, delegate in enumerate(method["delegates"]):
            lines.append(f"  delegate {number}: {delegate['backend']}, {delegate['bytes']:,} bytes")
            if delegate["model"]:
                lines += [f"    {line}".rstrip() for line in inspection_text(delegate["model"]).splitlines()]
    if found["missing_kernels"]:
        lines += ["", f"no kernel in the ExecuTorch runtime: {', '.join(found['missing_kernels'])}"]
    return "\n".join(lines)


def findings_text(findings: Sequence[Finding]) -> str:
    """One line for each finding."""
    if not findings:
        return "nothing found that Apple's runtime is known to refuse or get wrong"
    return "\n".join(f"[{one.rule}] {one.where}: {one.problem} ({one.source})" for one in findings)
