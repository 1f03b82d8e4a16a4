"""What relay and the database raise, as the errors of the command line."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, TypeVar

from django.core.exceptions import ImproperlyConfigured, ValidationError
from django.db import DatabaseError, InterfaceError
from psycopg import errors

from relay.cli.errors import (
    CliError,
    ConflictError,
    MissingError,
    NotAllowedError,
    UnreachableError,
    UsageError,
)
from relay.engine.connection import is_outage
from relay.exceptions import (
    ArgumentError,
    Conflict,
    DecodeError,
    DuplicateJob,
    EncodeError,
    MissingKey,
    NotAllowed,
    NotFound,
    ReadTimeout,
    ScheduleError,
    StateConflict,
    UnknownTask,
    WaitRefused,
)
from relay.operations import FilterError

__all__ = ["explained"]

T = TypeVar("T")

# The first that fits: what it becomes, and what REST calls it.
_KINDS: Final[
    Sequence[tuple[type[Exception] | tuple[type[Exception], ...], type[CliError], str]]
] = (
    (NotAllowed, NotAllowedError, "not_allowed"),
    (DuplicateJob, ConflictError, "duplicate_job"),
    ((Conflict, WaitRefused), ConflictError, "conflict"),
    (UnknownTask, MissingError, "unknown_task"),
    ((MissingKey, DecodeError), CliError, "key_missing"),
    (NotFound, MissingError, "not_found"),
    (FilterError, UsageError, "invalid_filter"),
    ((ArgumentError, EncodeError, ScheduleError), UsageError, "invalid_request"),
    (ReadTimeout, CliError, "too_slow"),
    (ImproperlyConfigured, CliError, "misconfigured"),
)


def explained(made: type[T]) -> type[T]:
    """Have all public methods of a class raise the errors of the command line."""
    for name, method in list(vars(made).items()):
        if callable(method) and not name.startswith("_"):
            setattr(made, name, _wrapped(method))
    return made


def _wrapped(method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def run(*args: Any, **kwargs: Any) -> Any:
        with _explaining():
            return method(*args, **kwargs)

    return run


@contextmanager
def _explaining() -> Iterator[None]:
    try:
        yield
    except ValidationError as error:
        raise _of_validation(error) from error
    except (DatabaseError, InterfaceError) as error:
        raise _of_database(error) from error
    except Exception as error:
        for kinds, kind, code in _KINDS:
            if isinstance(error, kinds):
                raise kind(str(error), code=code, data=_data(error)) from error
        raise


def _data(error: Exception) -> Mapping[str, Any]:
    if isinstance(error, DuplicateJob):
        return {"job_id": str(error.job_id)}
    if isinstance(error, StateConflict):
        return {"job_id": str(error.job_id), "state": error.state}
    return {}


def _of_validation(error: ValidationError) -> UsageError:
    if hasattr(error, "error_dict"):
        reasons = [
            f"{name}: {message}"
            for name, messages in error.message_dict.items()
            for message in messages
        ]
    else:
        reasons = list(error.messages)
    return UsageError("; ".join(reasons), code="invalid_request")


def _of_database(error: Exception) -> CliError:
    cause = error.__cause__
    first = str(error).partition("\n")[0]
    if isinstance(cause, errors.UndefinedTable | errors.UndefinedColumn):
        return CliError(
            "relay's tables are missing or of an older release: run manage.py migrate "
            f"({first})",
            code="misconfigured",
        )
    if isinstance(cause, errors.QueryCanceled):
        return CliError(
            "the database took too long: narrow the filter", code="too_slow"
        )
    if is_outage(error):
        return UnreachableError(f"the database cannot be used: {first}")
    return CliError(f"{type(error).__name__}: {first}")
