"""What the user names on the command line, a `.pt2` file or `file.py:function`, to a model and its inputs."""

from __future__ import annotations

import importlib.util
import logging
import sys
import traceback
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from .errors import InputError

if TYPE_CHECKING:
    from torch import nn
    from torch.export import ExportedProgram

_LINES = 4  # of an exception's message: `load_state_dict` says in the second one what is wrong
_RETURNS = "(model, example_inputs) or (model, example_inputs, dynamic_shapes)"


@dataclass(frozen=True)
class Source:
    """A model as `coreproof.lower` takes it.

    Attributes:
        model: a module, or the exported program of a `.pt2` file.
        example_inputs: positional inputs of the module; None for an exported program, which has its own.
        dynamic_shapes: as `torch.export.export` takes it, or None.
    """

    model: nn.Module | ExportedProgram
    example_inputs: tuple[Any, ...] | None = None
    dynamic_shapes: Any = None


def load_source(text: str) -> Source:
    """Load `text`, which is `model.pt2` or `file.py:function`.

    The Python file runs as a script would: with its folder first on `sys.path`, which stays so, because a model may
    import a neighbour as late as its `forward`. Nothing is unpickled except by `torch.export.load`.

    Raises:
        InputError: the file is missing, does not load or fails, the function is not there, fails, or returns
            something else.
    """
    if text.endswith(".pt2"):
        return Source(_load_exported(_existing_file(text)))
    file, colon, function = text.rpartition(":")
    if not colon or not file.endswith(".py") or not function.isidentifier():
        raise InputError(f"cannot read the source {text!r}: expected a .pt2 file or file.py:function")
    path = _existing_file(file)
    build = _function(_import_file(path), function, path)
    return _checked(_guarded(build, f"{function}() of {path}", path), f"{function}() of {path}")


def _existing_file(text: str) -> Path:
    path = Path(text)
    if path.is_dir():
        raise InputError(f"{path} is a folder; expected a .pt2 file or file.py:function")
    if not path.is_file():
        raise InputError(f"{path} does not exist; expected a .pt2 file or file.py:function")
    return path


class _Reasons(logging.Handler):
    """Keeps the exceptions that torch.export.load logs instead of raising."""

    def __init__(self) -> None:
        super().__init__()
        self.errors: list[BaseException] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info and record.exc_info[1]:
            self.errors.append(record.exc_info[1])


def _load_exported(path: Path) -> ExportedProgram:
    import torch

    if not zipfile.is_zipfile(path):
        raise InputError(f"{path} is not a .pt2 file: not a zip archive, or cut short; write it with torch.export.save")
    if not _holds_program(path):
        raise InputError(
            f"{path} holds no exported program, perhaps a checkpoint or TorchScript; write it with torch.export.save"
        )
    logger, reasons = logging.getLogger("torch.export"), _Reasons()
    logger.addHandler(reasons)
    try:
        return torch.export.load(path)
    except Exception as error:
        if isinstance(error, KeyError) and error.args == ("model",):
            reason = "it holds no program named 'model'"
        else:
            reason = _described(reasons.errors[0] if reasons.errors else error)
        raise InputError(f"{path} does not load: {reason}; write it with torch.export.save of this version") from error
    finally:
        logger.removeHandler(reasons)


def _holds_program(path: Path) -> bool:
    """Whether the zip archive has the marker of torch.export's format, or that of its older one (`version`)."""
    with zipfile.ZipFile(path) as archive:
        return any(name == "version" or name.endswith("/archive_format") for name in archive.namelist())


def _import_file(path: Path) -> ModuleType:
    # A name that cannot collide: a file called types.py must not take the place of the library's module.
    name = f"_coreproof_source_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path.resolve())
    assert spec is not None and spec.loader is not None, "a .py file always has a loader"
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    sys.path.insert(0, str(path.resolve().parent))
    loader = spec.loader
    _guarded(lambda: loader.exec_module(module), str(path), path)
    return module


def _function(module: ModuleType, name: str, path: Path) -> Callable[[], Any]:
    found = getattr(module, name, None)
    if callable(found):
        return found
    if found is not None:
        raise InputError(f"{name} in {path} is {type(found).__name__}; expected a function that returns {_RETURNS}")
    own = [
        key
        for key, value in vars(module).items()
        if callable(value) and not key.startswith("_") and getattr(value, "__module__", None) == module.__name__
    ]
    raise InputError(f"no function {name} in {path}; it defines {', '.join(own) or 'no function'}")


def _guarded(call: Callable[[], Any], what: str, path: Path) -> Any:
    """Run the user's code; whatever it raises becomes one line with the exception and the user's own line."""
    try:
        return call()
    except (Exception, SystemExit) as error:
        line = _line_in(error, path)
        where = f" at {path.name}:{line}" if line else ""
        raise InputError(f"{what} failed{where}: {_described(error)}") from error


def _line_in(error: BaseException, path: Path) -> int | None:
    """The deepest line of the file `path` that the error passed through."""
    file = str(path.resolve())
    if isinstance(error, SyntaxError) and error.filename == file:
        return error.lineno
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
    return lines[-1] if lines else None


def _checked(value: Any, what: str) -> Source:
    from torch import nn

    if not isinstance(value, tuple) or len(value) not in (2, 3):
        got = f"a tuple of {len(value)}" if isinstance(value, tuple) else type(value).__name__
        raise InputError(f"{what} returned {got}; expected {_RETURNS}")
    model, inputs = value[:2]
    if not isinstance(model, nn.Module):
        raise InputError(f"{what} returned {type(model).__name__} as the model; expected a torch.nn.Module")
    if not isinstance(inputs, (tuple, list)):
        raise InputError(
            f"{what} returned {type(inputs).__name__} as example_inputs; expected a tuple, also for one input: (x,)"
        )
    return Source(model, tuple(inputs), value[2] if len(value) == 3 else None)


def _described(error: BaseException) -> str:
    """`Type: message` on one line, without what follows the first few lines of a long message."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return ": ".join([type(error).__name__, *filter(None, [" ".join(lines[:_LINES])])])
