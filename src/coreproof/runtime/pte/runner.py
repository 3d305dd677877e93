"""`PteProgram`: a whole `.pte` as the user runs it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

from ...errors import InputError, ModelError
from ..interpreter import Mode
from ..package import Flattened, is_flattened
from .delegates import BACKEND, CoreMLDelegate, Loader
from .file import IDENTIFIER, read_pte
from .machine import LoadedMethod
from .program import Delegate
from .ptd import read_ptd


def is_pte(data: bytes | memoryview) -> bool:
    """Whether the bytes start as a `.pte` does."""
    return bytes(memoryview(data)[4:8]) == IDENTIFIER


class PteProgram:
    """An ExecuTorch program ready to run; made by `coreproof.runtime.load`.

    Args:
        data: the bytes of the `.pte`; they must not change while the program lives.
        external: the `.ptd` files that hold its external data: paths or bytes.
        mode: of its Core ML delegates: `declared` (each result rounded once to its declared type) or `exact`.

    Raises:
        ModelError: the file is broken; the message names the field.
        InputError: an external file cannot be read.

    Attributes:
        program: the runtime's form of it.
    """

    def __init__(
        self,
        data: bytes | memoryview,
        *,
        external: tuple[str | os.PathLike[str] | bytes, ...] = (),
        mode: Mode = "declared",
    ) -> None:
        if mode not in ("declared", "exact"):
            raise InputError(f"unknown mode {mode!r}; expected declared or exact")
        named: dict[str, memoryview] = {}
        for one in external:
            named |= read_ptd(memoryview(one if isinstance(one, bytes) else _file(Path(one))))
        self.program = read_pte(memoryview(data), named)
        self._loader = Loader(named | self.program.named_data, mode)
        self._loaded: dict[str, LoadedMethod] = {}

    def run(self, *inputs: Any, method: str = "forward") -> list[Any]:
        """Run a method once; its mutable buffers and Core ML states live on to the next call.

        Args:
            inputs: tensors in the dtypes and shapes of the export (a dynamic dimension up to its upper bound). A
                number that the module took must be the one of the export, which is compiled in.
            method: name of the method.

        Returns:
            The outputs in order, as `executorch.runtime` gives them: tensors, numbers, None.

        Raises:
            InputError: no such method; another number of inputs, another dtype or shape.
            ModelError: the program is malformed.
            UnsupportedFileError: the method has a delegate for another backend than Core ML.
        """
        return self.loaded(method).run(inputs)

    def reset(self, method: str = "forward") -> None:
        """Set the method's mutable buffers and states to what they were at first. Raises InputError: no such method."""
        self.loaded(method).reset()

    @property
    def method_names(self) -> list[str]:
        """The methods, in the order of the file."""
        return list(self.program.methods)

    @property
    def missing_kernels(self) -> list[str]:
        """The operators of all methods that the ExecuTorch runtime installed here has no kernel for, sorted."""
        used = {name for method in self.program.methods.values() for name in method.operators}
        return sorted(used - _registered())

    @property
    def delegates(self) -> list[bytes]:
        """The bytes of each delegate, over all methods, in the order of the file."""
        return [bytes(one.data) for method in self.program.methods.values() for one in method.delegates]

    def core_ml_delegates(self) -> Iterator[tuple[str, Delegate, CoreMLDelegate]]:
        """Each Core ML delegate of every method: where it is (`forward/0`), as the file has it, and ready to run.

        Raises:
            ModelError: one is broken.
        """
        for method in self.program.methods.values():
            for number, one in enumerate(method.delegates):
                if one.id == BACKEND:
                    where = f"{method.name}/{number}"
                    yield where, one, self._loader.load(one, f"delegate {where}")

    def model_files(self, delegate: Delegate, where: str) -> tuple[str | None, Flattened]:
        """The files of a delegate's model, and the name of the data if several delegates may share it.

        Raises:
            ModelError: the delegate is broken.
        """
        data = self._loader.model_data(delegate, where)
        if not is_flattened(data):
            raise ModelError(f"{where}: no Core ML model: no list of files at the end of its {len(data)} bytes")
        return self._loader.reference(delegate, where)[0], Flattened(data)

    def loaded(self, name: str) -> LoadedMethod:
        """The method of this name, ready to run. Raises InputError: there is none; ModelError: it is broken."""
        if name not in self.program.methods:
            raise InputError(f"no method named {name!r}; expected {', '.join(self.method_names)}")
        if name not in self._loaded:
            self._loaded[name] = LoadedMethod(self.program.methods[name], self._loader)
        return self._loaded[name]


@lru_cache(maxsize=1)
def _registered() -> frozenset[str]:
    from executorch.runtime import Runtime

    return frozenset(Runtime.get().operator_registry.operator_names)


def _file(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from error
