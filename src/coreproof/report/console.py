"""The progress display, and the silence of everything else while it runs."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from rich.console import RenderableType

logger = logging.getLogger(__name__)

Progress = Callable[[str], None]


@contextmanager
def silence() -> Iterator[TextIO]:
    """Drop what is written to stdout and stderr in the body; yields a stream that still reaches the real stderr.

    It works on the file descriptors, because the libraries below write in every way there is: Python's warnings,
    log handlers with a stream of their own, prints, C++ code and child processes.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    saved = {fd: os.dup(fd) for fd in (1, 2)}
    null = os.open(os.devnull, os.O_WRONLY)
    try:
        for fd in saved:
            os.dup2(null, fd)
        with open(os.dup(saved[2]), "w", encoding=sys.stderr.encoding, errors="backslashreplace") as real_stderr:
            yield real_stderr
    finally:
        # What Python still holds must go where it was meant to go, which is nowhere.
        sys.stdout.flush()
        sys.stderr.flush()
        for fd, copy in saved.items():
            os.dup2(copy, fd)
            os.close(copy)
        os.close(null)


def as_text(report: RenderableType) -> str:
    """A report as text, with colour codes where stdout is a terminal."""
    from rich.console import Console

    console = Console(highlight=False)
    with console.capture() as capture:
        console.print(report)
    return "\n".join(line.rstrip() for line in capture.get().rstrip().split("\n"))


@contextmanager
def progress_display(*, verbose: bool = False, quiet: bool = False) -> Iterator[Progress]:
    """Show the stage that the work is in, on one line of stderr where that is a terminal; yields the function to call.

    Args:
        verbose: nothing is silenced: logs of level INFO and above, warnings and prints appear, and so do the stages.
        quiet: silence without a display.
    """
    if verbose:
        logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(levelname)s %(name)s: %(message)s")
        yield lambda stage: logger.info("%s", stage)
        return
    with silence() as stderr:
        if quiet or not stderr.isatty():
            yield lambda stage: None
            return
        from rich.console import Console
        from rich.live import Live
        from rich.spinner import Spinner
        from rich.text import Text

        spinner = Spinner("dots", Text("starting"))
        # Live's own redirection would bring the silenced prints back.
        with Live(spinner, console=Console(file=stderr), transient=True, redirect_stdout=False, redirect_stderr=False):
            yield lambda stage: spinner.update(text=Text(stage))
