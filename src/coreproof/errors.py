"""Every exception that coreproof raises on purpose.

A message is one line: what happened, where (op and source line), expected and
got, and what to do. `exit_code` is what the command line returns for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .verify.record import Verification


class CoreproofError(Exception):
    """Base of all of coreproof's own errors."""

    exit_code = 2


class InputError(CoreproofError):
    """A bad argument, file or model was given (exit code 2)."""


class RequirementError(CoreproofError, NotImplementedError):
    """A requirement that the caller set cannot be met, for instance a full-graph lowering (exit code 1).

    It is a NotImplementedError too, which is what ExecuTorch's own partitioner raises for `lower_full_graph`.
    `refusals` holds the `Refusal` records that say why; it may be empty.
    """

    exit_code = 1

    def __init__(self, message: str, refusals: tuple = ()) -> None:
        super().__init__(message)
        self.refusals = tuple(refusals)


class StateError(RequirementError):
    """A mutable buffer cannot become Core ML state, because ops outside one delegate use it too (exit code 1)."""


class MissingKernelError(RequirementError):
    """An op would stay on the CPU, and ExecuTorch has no kernel for it (exit code 1)."""


class MismatchError(RequirementError):
    """A finished program gives other values than the model (exit code 1); `verification` says where and by how much."""

    def __init__(self, message: str, verification: Verification) -> None:
        super().__init__(message)
        self.verification = verification


class ModelError(InputError):
    """A program or a file is malformed: the message names the op or field, expected and got (exit code 2)."""


class UnsupportedFileError(InputError):
    """A file of a kind that the reference runtime does not run, for instance a neural network (exit code 2)."""
