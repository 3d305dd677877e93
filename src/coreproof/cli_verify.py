"""The command `verify`."""

from __future__ import annotations

import argparse
import logging
from typing import TYPE_CHECKING, Any

from .cli_runtime import Result, positive
from .errors import InputError, UnsupportedFileError
from .files import check_output_path, write_atomically

if TYPE_CHECKING:
    from .report.console import Progress
    from .verify.record import Verification

logger = logging.getLogger(__name__)

_EXIT_CODES = {"match": 0, "precision": 0, "mismatch": 1, "unverified": 3}


def add_command(commands: Any, exit_codes: str) -> None:
    """Add `verify` to an argparse parser's subcommands."""
    summary = "hold a finished program against the model that it was made from"
    parser: argparse.ArgumentParser = commands.add_parser(
        "verify",
        help=summary,
        description=summary[0].upper() + summary[1:] + ".",
        epilog=exit_codes,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(command=_verify, command_name="verify")
    parser.add_argument("file", metavar="FILE", help="a .pte file or an .mlpackage folder, whoever made it")
    parser.add_argument("source", metavar="SOURCE", help="the model, as `coreproof lower` takes it")
    parser.add_argument(
        "--inputs",
        nargs="+",
        metavar="FILE",
        help="in place of the source's example inputs: one .npy or .pt (a tensor) for each, in order",
    )
    parser.add_argument("--steps", type=positive, help="calls in sequence (default 1; 3 for a model with state)")
    parser.add_argument("--variations", type=int, default=2, help="random variations of the inputs (default 2)")
    parser.add_argument("--seed", type=int, default=0, help="of the variations (default 0)")
    parser.add_argument("--rtol", type=float, help="allowed difference over the greatest value of an output")
    parser.add_argument("--atol", type=float, help="allowed difference added to that")
    parser.add_argument(
        "--runtime",
        choices=("reference", "coreml", "executorch"),
        default="reference",
        help="what runs the program: coreml needs macOS, executorch there or a program without Core ML (reference)",
    )
    parser.add_argument(
        "--repro", metavar="FILE.py", help="write a script that shows the first wrong op by itself, as small as it gets"
    )
    parser.add_argument("--json", action="store_true", help="print a JSON document instead of the table")
    volume = parser.add_mutually_exclusive_group()
    volume.add_argument("-v", "--verbose", action="store_true", help="show logs, every call and tracebacks")
    volume.add_argument("--quiet", action="store_true", help="print nothing but errors")


def _verify(arguments: argparse.Namespace, progress: Progress) -> Result:
    from .report.verification import verification_document
    from .source import load_source

    if arguments.repro:
        check_output_path(arguments.repro, ".py")
    progress("loading the model")
    source = load_source(arguments.source)
    inputs = source.example_inputs
    progress("loading ExecuTorch and Core ML Tools")
    from . import verify_program

    if arguments.inputs:
        inputs = _given(arguments.inputs, inputs if inputs is not None else _held(source.model))
    progress("verifying the program")
    found = verify_program(
        arguments.file,
        source.model,
        inputs,
        dynamic_shapes=source.dynamic_shapes,
        steps=arguments.steps,
        variations=arguments.variations,
        seed=arguments.seed,
        rtol=arguments.rtol,
        atol=arguments.atol,
        runtime=arguments.runtime,
    )
    if arguments.repro:
        _write_script(arguments.repro, found)
    document = verification_document(found, command="verify", file=arguments.file, source=arguments.source)
    return Result(document, lambda: _text(found, arguments.verbose), _EXIT_CODES[found.outcome])


def _write_script(path: str, found: Verification) -> None:
    wrong = found.first_wrong
    if wrong is None or wrong.script is None:
        logger.warning("%s is not written: no op is wrong by itself", path)
        return
    try:
        text = wrong.script()
    except UnsupportedFileError as error:
        logger.warning("%s is not written: %s", path, error)
        return
    write_atomically(path, text.encode())


def _text(found: Verification, verbose: bool) -> str:
    from .report.console import as_text
    from .report.verification import verification_report

    return as_text(verification_report(found, verbose=verbose))


def _held(program: Any) -> tuple[Any, ...]:
    example = program.example_inputs
    return example[0] if example is not None else ()


def _given(files: list[str], example: tuple[Any, ...]) -> tuple[Any, ...]:
    """The example inputs with each tensor replaced by a file's, in order; dtypes and shapes must fit."""
    from torch.utils import _pytree as pytree

    from .runtime.given import tensor_from_file

    leaves, structure = pytree.tree_flatten(example)
    if len(files) != len(leaves):
        raise InputError(f"--inputs names {len(files)} files; the model takes {len(leaves)} inputs")
    tensors = [tensor_from_file(file) for file in files]
    for file, tensor, known in zip(files, tensors, leaves, strict=True):
        dtype = getattr(known, "dtype", None)
        if dtype is not None and tensor.dtype != dtype:
            raise InputError(f"{file} holds {tensor.dtype}; expected {dtype}")
    return pytree.tree_unflatten(tensors, structure)
