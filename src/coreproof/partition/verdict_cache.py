"""Verdicts on disk, one small file each, so that a second lowering does not prove the same again.

The folder is named after the versions of torch, ExecuTorch, coremltools and
coreproof and after coreproof's own code. A file is written to a temporary name
and renamed, so that processes may share the folder; one that cannot be read is
ignored and written anew. Nothing in it is ever executed.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import sys
import tempfile
from dataclasses import asdict, fields
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TypeVar

_PACKAGE = Path(__file__).parents[1]
_CODE = ("convert", "partition", "runtime")  # what a verdict follows from
T = TypeVar("T")


def cache_folder() -> Path:
    """Where verdicts are kept: `COREPROOF_CACHE` if set, else the user's cache folder of the operating system."""
    named = os.environ.get("COREPROOF_CACHE")
    if named:
        return Path(named)
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "coreproof"
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home()) / "coreproof" / "Cache"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "coreproof"


@cache
def _versions() -> str:
    """The folder of this installation: a digest of all that a verdict depends on beside its signature."""
    digest = hashlib.sha256()
    for package in ("torch", "executorch", "coremltools", "coreproof"):
        with contextlib.suppress(PackageNotFoundError):
            digest.update(f"{package} {version(package)}\n".encode())
    for folder in _CODE:
        for path in sorted((_PACKAGE / folder).rglob("*.py")):
            digest.update(path.read_bytes())
    return digest.hexdigest()[:32]


def _path(signature: str) -> Path:
    name = hashlib.sha256(signature.encode()).hexdigest()
    return cache_folder() / "verdicts" / _versions() / name[:2] / f"{name}.json"


def recall(signature: str, kind: type[T]) -> T | None:
    """The verdict (a flat dataclass of bools and strings) that was kept for the signature, or None."""
    try:
        kept = json.loads(_path(signature).read_text(encoding="utf-8"))
        if kept.pop("signature") != signature:
            return None
        expected = {field.name: field.type for field in fields(kind)}  # type: ignore[arg-type]
        good = kept.keys() == expected.keys() and all(
            type(value).__name__ == expected[name] for name, value in kept.items()
        )
        return kind(**kept) if good else None
    except (OSError, ValueError, TypeError, AttributeError, KeyError, RecursionError):
        return None  # not there, cut off, or not ours


def keep(signature: str, verdict: object) -> None:
    """Keep the verdict; where the folder cannot be written nothing is kept."""
    text = json.dumps({"signature": signature, **asdict(verdict)})  # type: ignore[call-overload]
    path = _path(signature)
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, suffix=".tmp")
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(text)
            os.replace(name, path)
        except OSError:
            os.unlink(name)
