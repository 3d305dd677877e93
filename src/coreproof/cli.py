"""The `coreproof` command: each subcommand is a thin call of a public function.

Torch, ExecuTorch and coremltools are imported by the command that needs them,
after the output is silenced: `--help` and `--version` answer at once.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from . import cli_runtime, cli_verify
from .cli_runtime import Result
from .errors import CoreproofError
from .version import __version__

if TYPE_CHECKING:
    from .lowering import Lowered
    from .partition.record import Placement
    from .report.console import Progress
    from .verify.record import Verification

# The macOS release that runs the same Core ML as an iOS release.
_TARGETS = {
    "iOS15": "iOS15",
    "iOS16": "iOS16",
    "iOS17": "iOS17",
    "iOS18": "iOS18",
    "macOS12": "iOS15",
    "macOS13": "iOS16",
    "macOS14": "iOS17",
    "macOS15": "iOS18",
}
_INTERNAL_ERROR = 70  # EX_SOFTWARE of sysexits.h
_INTERRUPTED = 130  # 128 + SIGINT, as shells report it

_EXIT_CODES = """\
exit codes:
  0    done
  1    a requirement was not met, for instance --full-graph, or the program gives other values than the model
  2    bad usage or input
  3    unverified: nothing shows that the program is right (`verify` only)
  70   internal error: a bug in coreproof, never a limit of Core ML
  130  interrupted
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line `argv` (without the program's name; None takes the process's) and return the exit code."""
    parser = _parser()
    arguments = parser.parse_args(argv)
    if getattr(arguments, "full_graph", False) and (arguments.skip_op or arguments.no_state):
        parser.error("--full-graph excludes --skip-op and --no-state, which keep something off Core ML")
    try:
        return _run(arguments)
    except KeyboardInterrupt:
        return _failed("interrupted", _INTERRUPTED, arguments.verbose)
    except CoreproofError as error:
        if arguments.json:
            from .report.document import error_document

            _print(json.dumps(error_document(error), indent=2))
        return _failed(f"error: {error}", error.exit_code, arguments.verbose)
    except Exception as error:
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        advice = "this is a bug in coreproof; please report it with the output of the same command with -v"
        return _failed(f"internal error: {reason}; {advice}", _INTERNAL_ERROR, arguments.verbose)


def _run(arguments: argparse.Namespace) -> int:
    from .report.console import progress_display

    with progress_display(verbose=arguments.verbose, quiet=arguments.quiet) as progress:
        result: Result = arguments.command(arguments, progress)
    if arguments.json:
        _print(json.dumps(result.document, indent=2))
    elif not arguments.quiet:
        _print(result.text())
    return result.exit_code


def _lower_and_report(arguments: argparse.Namespace, progress: Progress) -> Result:
    lowered = _lower(arguments, progress)
    return _placement_result(arguments, lowered.placement, lowered.verification)


def _plan_and_report(arguments: argparse.Namespace, progress: Progress) -> Result:
    return _placement_result(arguments, _plan(arguments, progress))


def _lower(arguments: argparse.Namespace, progress: Progress) -> Lowered:
    from .files import check_output_path
    from .source import load_source

    check_output_path(arguments.output, ".pte")
    progress("loading the model")
    source = load_source(arguments.source)
    progress("loading ExecuTorch and Core ML Tools")
    from . import lower

    lowered = lower(
        source.model,
        source.example_inputs,
        dynamic_shapes=source.dynamic_shapes,
        verify=not arguments.no_verify,
        on_mismatch=arguments.on_mismatch,
        progress=progress,
        **_options(arguments),
    )
    lowered.save(arguments.output)
    return lowered


def _plan(arguments: argparse.Namespace, progress: Progress) -> Placement:
    from .source import load_source

    progress("loading the model")
    source = load_source(arguments.source)
    progress("loading ExecuTorch and Core ML Tools")
    from . import plan

    return plan(
        source.model,
        source.example_inputs,
        dynamic_shapes=source.dynamic_shapes,
        progress=progress,
        **_options(arguments),
    )


def _options(arguments: argparse.Namespace) -> dict[str, Any]:
    """The options of both commands, by the names that `coreproof.lower` and `coreproof.plan` give them."""
    return {
        "minimum_deployment_target": arguments.target,
        "compute_precision": arguments.precision,
        "float32_ops": arguments.float32_op,
        "compute_units": arguments.compute_units,
        "skip_ops_for_coreml_delegation": arguments.skip_op,
        "use_cache": not arguments.no_cache,
        "take_over_mutable_buffer": not arguments.no_state,
        "lower_full_graph": arguments.full_graph,
    }


def _placement_result(
    arguments: argparse.Namespace, placement: Placement, verification: Verification | None = None
) -> Result:
    from .report.document import placement_document
    from .report.verification import verification_entry

    output: str | None = getattr(arguments, "output", None)
    size = Path(output).stat().st_size if output else 0
    context = {
        "command": arguments.command_name,
        "source": arguments.source,
        "options": _options(arguments),
        "output": {"path": output, "bytes": size} if output else None,
        "verification": verification_entry(verification) if verification is not None else None,
    }
    document = placement_document(placement, **context)
    return Result(document, lambda: _table(placement, verification, output, size, arguments.verbose))


def _table(
    placement: Placement, verification: Verification | None, output: str | None, size: int, verbose: bool
) -> str:
    from .report.console import as_text
    from .report.table import file_size, placement_report

    written = f"{output} ({file_size(size)})" if output else ""
    return as_text(placement_report(placement, verification=verification, written=written, verbose=verbose))


def _print(text: str) -> None:
    try:
        print(text, flush=True)
    except BrokenPipeError:
        # The reader has seen enough (`| head`). The interpreter must not flush into the closed pipe at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _failed(message: str, exit_code: int, verbose: bool) -> int:
    if verbose:
        traceback.print_exc()
    print(f"coreproof: {message}", file=sys.stderr)
    return exit_code


class _Parser(argparse.ArgumentParser):
    """An argument parser whose errors are one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: error: {message}; see {self.prog} --help\n")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="coreproof",
        description="Lower PyTorch models to Core ML through ExecuTorch, with a reason for what stays on the CPU.",
        epilog=_EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"coreproof {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    lower = _command(commands, "lower", _lower_and_report, "lower a model and write a .pte for the ExecuTorch runtime")
    lower.add_argument("-o", "--output", required=True, metavar="FILE.pte", help="the file to write")
    lower.add_argument("--no-verify", action="store_true", help="do not run the program beside the model")
    lower.add_argument(
        "--on-mismatch",
        choices=("cpu", "error", "keep"),
        default="cpu",
        help="an op that the finished program gets wrong: run it on the CPU (default), fail, or keep it",
    )
    _command(commands, "plan", _plan_and_report, "show what would run where, without converting")
    cli_runtime.add_commands(commands, _EXIT_CODES)
    cli_verify.add_command(commands, _EXIT_CODES)
    return parser


def _command(commands: Any, name: str, run: Callable[..., Result], summary: str) -> argparse.ArgumentParser:
    """Add a command with the arguments that all commands share."""
    parser: argparse.ArgumentParser = commands.add_parser(
        name,
        help=summary,
        description=summary[0].upper() + summary[1:] + ".",
        epilog=_EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(command=run, command_name=name)
    parser.add_argument(
        "source",
        metavar="SOURCE",
        help="a .pt2 file, or file.py:function whose function returns (model, example_inputs) or "
        "(model, example_inputs, dynamic_shapes); loading either runs its code, so use files you trust",
    )
    parser.add_argument(
        "--target",
        type=_target,
        default="iOS18",
        help=f"oldest system the program must run on: {', '.join(_TARGETS)} (default iOS18)",
    )
    parser.add_argument(
        "--precision",
        choices=("float16", "float32", "mixed"),
        default="float16",
        help="float type that Core ML computes in (default float16); mixed is float16 but for --float32-op",
    )
    parser.add_argument(
        "--float32-op",
        action="append",
        default=[],
        metavar="NAME",
        help="with --precision mixed, an op or node that stays float32, for instance aten.softmax.int (repeatable)",
    )
    parser.add_argument(
        "--compute-units",
        choices=("all", "cpu_only", "cpu_and_gpu", "cpu_and_ne"),
        default="all",
        help="hardware that Core ML may use (default all)",
    )
    parser.add_argument("--full-graph", action="store_true", help="fail unless every op runs on Core ML")
    parser.add_argument(
        "--skip-op",
        action="append",
        metavar="NAME",
        help="keep an op off Core ML, for instance aten.gelu.default (repeatable)",
    )
    parser.add_argument("--no-state", action="store_true", help="make no mutable buffer a Core ML state")
    parser.add_argument("--no-cache", action="store_true", help="prove every op anew, and keep no verdicts on disk")
    parser.add_argument("--json", action="store_true", help="print a JSON document instead of the table")
    volume = parser.add_mutually_exclusive_group()
    volume.add_argument("-v", "--verbose", action="store_true", help="show logs, full lists and tracebacks")
    volume.add_argument("--quiet", action="store_true", help="no progress and no table")
    return parser


def _target(text: str) -> str:
    names = {name.lower(): target for name, target in _TARGETS.items()}
    try:
        return names[text.lower()]
    except KeyError:
        raise argparse.ArgumentTypeError(
            f"unknown deployment target {text!r}, expected one of {', '.join(_TARGETS)}"
        ) from None
