"""`load`: anything that holds a Core ML program, to a model that runs."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, overload

from coremltools.converters.mil.mil import Program as MILProgram
from coremltools.models import MLModel

from ..errors import InputError, ModelError, UnsupportedFileError
from .from_mil import from_mil
from .from_proto import from_spec, parse_spec
from .interpreter import Mode
from .ir import Program
from .model import Model
from .package import Flattened, Folder, blobs, is_flattened, read_package
from .pte import PteProgram, is_pte


@overload
def load(source: MLModel | MILProgram, *, mode: Mode = "declared") -> Model: ...


@overload
def load(
    source: Any, *, mode: Mode = "declared", external: tuple[str | os.PathLike[str] | bytes, ...] = ()
) -> Model | PteProgram: ...


def load(
    source: Any, *, mode: Mode = "declared", external: tuple[str | os.PathLike[str] | bytes, ...] = ()
) -> Model | PteProgram:
    """A model that runs on this machine.

    Args:
        source: path of a `.mlpackage` folder or of a `.mlmodel` file with an ML Program, the bytes of a Core ML
            delegate, a `coremltools.models.MLModel`, or a MIL `Program` (before or after its passes); or path or
            bytes of a whole ExecuTorch `.pte`, which gives a `PteProgram`.
        mode: `declared` rounds each result once to its declared type, `exact` computes in float32 throughout.
        external: paths or bytes of the `.ptd` files that a `.pte` keeps data in.

    Raises:
        UnsupportedFileError: a compiled model, a neural network, or another kind of model.
        ModelError: the file is broken.
        InputError: there is no such file, or `source` is something else.
    """
    data = _pte_bytes(source)
    if data is not None:
        return PteProgram(data, external=external, mode=mode)
    return Model(read_program(source), mode)


def _pte_bytes(source: Any) -> bytes | memoryview | None:
    """The bytes of a `.pte`; None where the source is something else."""
    if isinstance(source, (bytes, bytearray, memoryview)):
        data = memoryview(source)
        return data if is_pte(data) else None
    if not isinstance(source, (str, os.PathLike)) or not Path(source).is_file():
        return None
    with Path(source).open("rb") as file:
        if not is_pte(file.read(8)):
            return None
        file.seek(0)
        return file.read()


def read_program(source: Any) -> Program:
    """The runtime's form of what `load` takes; raises as `load`."""
    if isinstance(source, MILProgram):
        return from_mil(source)
    if isinstance(source, MLModel):
        folder = Folder(Path(source.weights_dir).parent) if source.weights_dir else None
        return from_spec(source.get_spec(), blobs(folder, "") if folder is not None else _no_weights)
    if isinstance(source, (bytes, bytearray, memoryview)):
        return _from_bytes(memoryview(source))
    if isinstance(source, (str, os.PathLike)):
        return _from_path(Path(source))
    raise InputError(f"cannot load a {type(source).__name__}; expected a path, bytes, an MLModel or a MIL Program")


def _from_path(path: Path) -> Program:
    if not path.exists():
        raise InputError(f"no such file or folder: {path}")
    if path.suffix == ".mlmodelc" or (path.is_dir() and (path / "coremldata.bin").exists()):
        raise UnsupportedFileError(
            f"{path} is a compiled Core ML model, in Apple's private format; load the .mlpackage it was compiled from"
        )
    if path.is_dir():
        return read_package(Folder(path))
    data = path.read_bytes()
    if path.suffix == ".mlmodel":
        return from_spec(parse_spec(data, str(path)), _no_weights)
    return _from_bytes(memoryview(data))


def _from_bytes(data: memoryview) -> Program:
    if is_pte(data):
        raise UnsupportedFileError("this is a whole .pte program; expected one Core ML model, such as a delegate of it")
    if not is_flattened(data):
        raise ModelError("these bytes are no Core ML delegate: no list of files at their end")
    files = Flattened(data)
    manifests = [path for path in files.paths if path.endswith("model.mlpackage/Manifest.json")]
    if not manifests:
        if any(".mlmodelc/" in path for path in files.paths):
            raise UnsupportedFileError("the delegate holds a compiled Core ML model, in Apple's private format")
        raise ModelError(f"the delegate holds no model.mlpackage, only {', '.join(files.paths[:5]) or 'nothing'}")
    return read_package(files, manifests[0].removesuffix("/Manifest.json"))


def _no_weights(name: str) -> Any:
    raise ModelError(f"the model reads the weight file {name!r}, which a single .mlmodel file does not have")
