"""Why a command did not do what was asked, each with its exit code.

Source of the codes: docs/reference/cli.md, "Exit codes".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final

from relay.cli.printer import inert

__all__ = [
    "EXIT_CODES",
    "CliError",
    "ConflictError",
    "InterruptedByUser",
    "JobEndedBadly",
    "MissingError",
    "NotAllowedError",
    "PartlyDone",
    "UnhealthyError",
    "UnreachableError",
    "UsageError",
    "WaitTimedOut",
]

EXIT_CODES: Final[Mapping[int, str]] = {
    0: "it is done",
    1: "an error that no other code names",
    2: "the command line, a filter or a value cannot be taken; or a confirmation is "
    "missing",
    3: "a job, queue, worker, schedule, task or bulk operation does not exist",
    4: "the server or the database cannot be reached",
    5: "not allowed: a permission, a scope or a valid token is missing",
    6: "a conflict: the state, the unique key or a number that was expected",
    7: "partly done: some could not be changed",
    8: "a job or bulk operation that was waited for failed or was cancelled",
    9: "unhealthy: a check of health or doctor found something",
    124: "it did not end within --timeout",
    130: "interrupted by Ctrl-C",
}


class CliError(Exception):
    """A command that ends with a message on stderr and an exit code.

    Attributes:
        code: what REST calls it, such as not_found.
        data: what is known besides, as JSON takes it.
        lines: more to say, below the message.
    """

    exit_code: ClassVar[int] = 1
    default_code: ClassVar[str] = "error"

    def __init__(
        self,
        message: str,
        *,
        code: str | None = None,
        data: Mapping[str, Any] | None = None,
        lines: Sequence[str] = (),
    ) -> None:
        super().__init__(message)
        self.code = code or self.default_code
        self.data = dict(data or {})
        self.lines = tuple(lines)

    @property
    def text(self) -> str:
        """The message and the lines below it, with nothing that a terminal obeys."""
        return "\n".join(map(inert, (str(self), *self.lines)))


class UsageError(CliError):
    exit_code = 2
    default_code = "invalid"


class MissingError(CliError):
    exit_code = 3
    default_code = "not_found"


class UnreachableError(CliError):
    exit_code = 4
    default_code = "unreachable"


class NotAllowedError(CliError):
    exit_code = 5
    default_code = "not_allowed"


class ConflictError(CliError):
    exit_code = 6
    default_code = "conflict"


class PartlyDone(CliError):
    exit_code = 7
    default_code = "partly_done"


class JobEndedBadly(CliError):
    exit_code = 8
    default_code = "ended_badly"


class UnhealthyError(CliError):
    exit_code = 9
    default_code = "unhealthy"


class WaitTimedOut(CliError):
    exit_code = 124
    default_code = "timed_out"


class InterruptedByUser(CliError):
    exit_code = 130
    default_code = "interrupted"
