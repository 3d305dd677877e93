"""The commands of the reference runtime: `run`, `inspect`, `check`, `extract`."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from . import cli_pte
from .cli_result import Result

if TYPE_CHECKING:
    from .report.console import Progress


def add_commands(commands: Any, exit_codes: str) -> None:
    """Add the runtime's commands to an argparse parser's subcommands."""
    run = _command(commands, "run", _run, "run a Core ML program on this machine", exit_codes)
    given = run.add_mutually_exclusive_group(required=True)
    given.add_argument(
        "--inputs",
        nargs="+",
        metavar="[NAME=]FILE",
        help="an .npz with all inputs by name, or one .npy, .pt (tensors only) or image file for each input; of a .pte "
        "in the order of the method",
    )
    given.add_argument("--random", action="store_true", help="seeded random inputs of the declared shapes")
    run.add_argument("-o", "--output", metavar="FILE.npz", help="file for the outputs, by name")
    run.add_argument("--function", metavar="NAME", help="function of a model that has several; method of a .pte")
    run.add_argument("--steps", type=positive, default=1, help="calls in sequence, states kept (default 1)")
    run.add_argument("--mode", choices=("declared", "exact"), default="declared", help="see the README (declared)")
    run.add_argument("--seed", type=int, default=0, help="of --random and of random ops (default 0)")
    _command(commands, "inspect", _inspect, "show what a Core ML program holds", exit_codes)
    _command(commands, "check", _check, "find what Apple's runtime would refuse or get wrong", exit_codes)
    extract = _command(
        commands, "extract", cli_pte.extract, "write a .pte's Core ML delegates as .mlpackage", exit_codes
    )
    extract.add_argument("-o", "--output", required=True, metavar="FOLDER", help="a new folder for the packages")


def _command(
    commands: Any, name: str, run: Callable[..., Result], summary: str, exit_codes: str
) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = commands.add_parser(
        name,
        help=summary,
        description=summary[0].upper() + summary[1:] + ".",
        epilog=exit_codes,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(command=run, command_name=name)
    parser.add_argument(
        "file", metavar="FILE", help="an .mlpackage folder, an .mlmodel with an ML Program, a delegate, or a .pte"
    )
    parser.add_argument("--json", action="store_true", help="print a JSON document")
    volume = parser.add_mutually_exclusive_group()
    volume.add_argument("-v", "--verbose", action="store_true", help="show logs and tracebacks")
    volume.add_argument("--quiet", action="store_true", help="print nothing but errors")
    return parser


def positive(text: str) -> int:
    """An argument that is a number of steps."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{number} steps; expected at least 1")
    return number


def _run(arguments: argparse.Namespace, progress: Progress) -> Result:
    from .files import check_output_path, write_atomically
    from .report.runtime import outputs_text
    from .runtime import Model, read_program
    from .runtime.given import archive_of, inputs_from_files, random_inputs

    if arguments.output:
        check_output_path(arguments.output, ".npz")
    if _is_pte(arguments.file):
        return cli_pte.run(arguments, progress)
    progress("loading the program")
    model = Model(read_program(arguments.file), arguments.mode)
    function = model.function(arguments.function)
    if arguments.random:
        data = random_inputs(function, arguments.seed)
    else:
        data = inputs_from_files(function, arguments.inputs)
    state = model.make_state(arguments.function)
    outputs: dict[str, Any] = {}
    for step in range(arguments.steps):
        progress(f"running step {step + 1} of {arguments.steps}")
        outputs = model.predict(data, state, function_name=arguments.function, seed=arguments.seed)
    if arguments.output:
        write_atomically(arguments.output, archive_of(outputs))
    document = {
        "command": "run",
        "file": arguments.file,
        "mode": arguments.mode,
        "output": arguments.output,
        "outputs": {name: cli_pte.described(value) for name, value in outputs.items()},
    }
    return Result(document, lambda: outputs_text(outputs, arguments.output))


def _inspect(arguments: argparse.Namespace, progress: Progress) -> Result:
    from .report.runtime import inspection_text
    from .runtime import read_program
    from .runtime.inspect import inspect

    if _is_pte(arguments.file):
        return cli_pte.inspect(arguments, progress)
    progress("loading the program")
    found = inspect(read_program(arguments.file))
    return Result({"command": "inspect", "file": arguments.file, **found}, lambda: inspection_text(found))


def _check(arguments: argparse.Namespace, progress: Progress) -> Result:
    from dataclasses import asdict

    from .report.runtime import findings_text
    from .runtime import check, read_program

    if _is_pte(arguments.file):
        return cli_pte.check(arguments, progress)
    progress("loading the program")
    findings = check(read_program(arguments.file))
    document = {"command": "check", "file": arguments.file, "findings": [asdict(one) for one in findings]}
    return Result(document, lambda: findings_text(findings), exit_code=1 if findings else 0)


def _is_pte(path: str) -> bool:
    """Whether the path is that of a whole ExecuTorch program."""
    from .runtime.pte import is_pte

    try:
        with open(path, "rb") as file:
            return is_pte(file.read(8))
    except OSError:  # a folder, or not there: the reader of packages says so
        return False
