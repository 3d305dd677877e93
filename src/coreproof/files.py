"""Output files that are either whole or not there."""

from __future__ import annotations

import os
import secrets
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from .errors import InputError


def write_atomically(path: str | os.PathLike[str], data: bytes | Callable[[BinaryIO], object]) -> None:
    """Write `data` to a temporary file beside `path`, then rename it, so that no reader sees half a file.

    Args:
        path: where the file ends up; a file that is there already is replaced, through a symbolic link if it is one.
        data: the bytes, or a function that writes them to the open binary file it gets.

    Raises:
        InputError: the operating system refuses (folder missing, not writable, disk full). Nothing is left behind,
            and a file that was at `path` is untouched; the same holds when `data` raises.
    """
    target = Path(os.path.realpath(path))
    # Opened by hand rather than by tempfile: the result must get the permissions that the umask gives, not 0600.
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(4)}.part")
    try:
        try:
            with open(temporary, "xb") as file:
                if callable(data):
                    data(file)
                else:
                    file.write(data)
            os.replace(temporary, target)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
    except OSError as error:
        raise InputError(f"cannot write {os.fspath(path)}: {error.strerror or error}") from error


def check_output_path(path: str | os.PathLike[str], suffix: str) -> None:
    """Find out, before long work starts, whether `write_atomically(path, ...)` can succeed.

    Raises:
        InputError: `path` does not end with `suffix`, is a folder, or its folder is missing or not writable.
    """
    shown, target = os.fspath(path), Path(os.path.realpath(path))
    if not shown:
        raise InputError(f"the output path is empty; give a file name that ends with {suffix}")
    if target.is_dir():
        raise InputError(f"cannot write {shown}: it is a folder; give a file name that ends with {suffix}")
    if not shown.endswith(suffix):
        raise InputError(f"cannot write {shown}: expected a file name that ends with {suffix}")
    if not target.parent.is_dir():
        raise InputError(f"cannot write {shown}: the folder {target.parent} does not exist; create it first")
    try:
        # Asking os.access is not enough: it says yes to root on a read-only file system.
        with tempfile.TemporaryFile(dir=target.parent):
            pass
    except OSError as error:
        raise InputError(f"cannot write {shown}: {error.strerror or error} in the folder {target.parent}") from error
