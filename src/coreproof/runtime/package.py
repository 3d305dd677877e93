"""Where a Core ML model's files are: a `.mlpackage` folder, or the flattened folder inside a delegate.

ExecuTorch flattens the folder of a delegate to one run of bytes: the files one
after another, then a JSON text written backwards, whose nodes name each file or
folder, its region and its children (read off files that executorch 1.5.1 wrote).
"""

from __future__ import annotations

import json
import posixpath
from pathlib import Path
from typing import Any, Protocol

from ..errors import ModelError
from .blob import Blob
from .from_proto import OpenBlob, from_spec, parse_spec
from .ir import Program

_MODEL_PATH = "@model_path/"
_MAX_NODES = 10_000
_MAX_DEPTH = 32
_MAX_METADATA = 64 * 2**20


class Files(Protocol):
    """The files of one model, by path with forward slashes."""

    def source(self, path: str) -> Path | memoryview:
        """The file at `path`. Raises ModelError: there is none."""


class Folder:
    """The files of a folder on disk; nothing outside it is reached."""

    def __init__(self, root: Path) -> None:
        self._root = root.resolve()

    def source(self, path: str) -> Path:
        found = (self._root / path).resolve()
        if not found.is_relative_to(self._root):
            raise ModelError(f"the file {path!r} lies outside the package")
        if not found.is_file():
            raise ModelError(f"the package has no file {path!r}")
        return found


class Flattened:
    """The files of a flattened folder.

    Raises:
        ModelError: the bytes end in no such description, or a region lies outside them.
    """

    def __init__(self, data: bytes | memoryview) -> None:
        self._data = memoryview(data)
        self._regions: dict[str, tuple[int, int]] = {}
        nodes = _description(self._data)
        if nodes:
            self._walk(nodes, _root(nodes), "", 0, set())

    @property
    def paths(self) -> list[str]:
        """The paths of all files."""
        return list(self._regions)

    def source(self, path: str) -> memoryview:
        if path not in self._regions:
            raise ModelError(f"the delegate has no file {path!r}")
        offset, size = self._regions[path]
        return self._data[offset : offset + size]

    def _walk(self, nodes: list[Any], index: int, path: str, depth: int, seen: set[int]) -> None:
        if depth > _MAX_DEPTH or index in seen or not 0 <= index < len(nodes):
            raise ModelError(f"the delegate's list of files is broken at {path or 'its root'!r}")
        seen.add(index)
        try:
            node = nodes[index]
            if node["kind"] == 0:
                offset, size = int(node["dataRegion"]["offset"]), int(node["dataRegion"]["size"])
                children: dict[str, int] = {}
            else:
                offset, size, children = 0, 0, {str(k): int(v) for k, v in node["children"].items()}
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ModelError(f"the delegate's list of files is broken at {path or 'its root'!r} ({error!r})") from error
        if node["kind"] == 0:
            if offset < 0 or size < 0 or offset + size > len(self._data):
                raise ModelError(f"the file {path!r} of the delegate lies outside its {len(self._data)} bytes")
            self._regions[path] = (offset, size)
        for name, child in children.items():
            if name in ("", ".", "..") or "/" in name or "\\" in name:
                raise ModelError(f"the delegate names a file {name!r}")
            self._walk(nodes, child, posixpath.join(path, name), depth + 1, seen)


def is_flattened(data: bytes | memoryview) -> bool:
    """Whether the bytes look like a flattened folder (the description ends in what opens a JSON object)."""
    return bytes(memoryview(data)[-1:]) == b"{"


def read_package(files: Files, root: str = "") -> Program:
    """The program of the `.mlpackage` whose Manifest.json is under `root`.

    Raises:
        ModelError: a file is missing or broken, or a name leads out of the package.
        UnsupportedFileError: the model is no ML Program.
    """
    manifest = _json(files, posixpath.join(root, "Manifest.json"))
    try:
        item = manifest["itemInfoEntries"][manifest["rootModelIdentifier"]]["path"]
    except (KeyError, TypeError) as error:
        raise ModelError(f"Manifest.json names no root model ({error!r})") from error
    model = _inside(posixpath.join(root, "Data"), str(item))
    folder = posixpath.dirname(model)
    return from_spec(parse_spec(_bytes(files.source(model)), str(item)), blobs(files, folder))


def blobs(files: Files, folder: str) -> OpenBlob:
    """Opens weight files, each once; `folder` is that of the model file, which `@model_path` stands for."""
    opened: dict[str, Blob] = {}

    def open_blob(name: str) -> Blob:
        if name not in opened:
            path = _inside(folder, name.removeprefix(_MODEL_PATH))
            opened[name] = Blob(files.source(path), name.removeprefix(_MODEL_PATH))
        return opened[name]

    return open_blob


def _inside(folder: str, name: str) -> str:
    path = posixpath.normpath(posixpath.join(folder, name.replace("\\", "/")))
    if path.startswith(("/", "..")) or (folder and not path.startswith(folder + "/")):
        raise ModelError(f"the file {name!r} lies outside the package")
    return path


def _bytes(source: Path | memoryview) -> bytes:
    return source.read_bytes() if isinstance(source, Path) else bytes(source)


def _json(files: Files, path: str) -> Any:
    try:
        return json.loads(_bytes(files.source(path)))
    except (ValueError, RecursionError) as error:
        raise ModelError(f"{path} is no JSON ({error})") from error


def _root(nodes: list[Any]) -> int:
    """The number of the node that no other one names as its child (the last, in files that ExecuTorch writes)."""
    try:
        children = {int(child) for node in nodes for child in node["children"].values()}
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ModelError(f"the delegate's list of files is broken ({error!r})") from error
    roots = set(range(len(nodes))) - children
    if len(roots) != 1:
        raise ModelError(f"the delegate's list of files has {len(roots)} roots; expected 1")
    return roots.pop()


def _description(data: memoryview) -> list[Any]:
    """The nodes that the reversed JSON at the end describes."""
    size = 4096
    while True:
        tail = bytes(data[-size:])[::-1].decode("latin-1")
        try:
            found, _ = json.JSONDecoder().raw_decode(tail)
            break
        except (ValueError, RecursionError) as error:
            if size >= min(len(data), _MAX_METADATA):
                raise ModelError("these bytes are no Core ML delegate: no list of files at their end") from error
            size *= 4
    nodes = found.get("nodes") if isinstance(found, dict) else None
    if not isinstance(nodes, list) or len(nodes) > _MAX_NODES:
        raise ModelError("these bytes are no Core ML delegate: no list of files at their end")
    return nodes
