"""Errors as RFC 9457 has them: each with a code that programs can tell.

What a view, an operation or Django REST framework raises becomes one of PROBLEMS.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypedDict

import psycopg.errors
from django.core.exceptions import (
    DisallowedHost,
    PermissionDenied,
    SuspiciousOperation,
    ValidationError,
)
from django.db import DatabaseError, InterfaceError, OperationalError
from django.http import Http404
from rest_framework import exceptions as rest
from rest_framework.settings import api_settings

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

__all__ = ["PROBLEMS", "Fault", "Kind", "Problem", "ProblemError", "problem_of"]


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of error: its status, what it is called, and what it says to do."""

    status: int
    title: str
    remedy: str


# By code. Source of the table in docs/reference/problems.md.
PROBLEMS: Final[Mapping[str, Kind]] = {
    "invalid_json": Kind(
        400, "The body is no JSON", "Send one JSON object, in UTF-8, without NaN."
    ),
    "invalid_request": Kind(
        400,
        "A value cannot be taken",
        "Correct what `errors` points at, or else `detail` says.",
    ),
    "invalid_filter": Kind(
        400, "The filter cannot be read", "Ask as the filter language says."
    ),
    "unauthenticated": Kind(
        401, "Nobody is logged in", "Send a token, or log in to the project."
    ),
    "invalid_token": Kind(
        401, "The token is not valid", "It is none, expired or revoked: get another."
    ),
    "not_allowed": Kind(
        403, "A permission is missing", "Ask for the permission or scope it names."
    ),
    "csrf_failed": Kind(
        403,
        "The request may be forged",
        "With a session, send the CSRF token as the header X-CSRFToken.",
    ),
    "commands_disabled": Kind(
        403, "Command jobs are off", "Enqueue a task instead of a command."
    ),
    "not_found": Kind(
        404, "There is no such thing", "Correct the address: what it names is not here."
    ),
    "method_not_allowed": Kind(
        405, "The address does not take this method", "See the header `Allow`."
    ),
    "conflict": Kind(
        409, "Its state does not allow it", "Look at it again: nothing was changed."
    ),
    "duplicate_job": Kind(
        409, "Another job holds the unique key", "Use the job that `job_id` names."
    ),
    "request_in_progress": Kind(
        409, "The same key is being worked on", "Send it again in a moment."
    ),
    "precondition_failed": Kind(
        412, "It has changed meanwhile", "Read it again, and send its new ETag."
    ),
    "too_large": Kind(
        413, "The body is too large", "Send less, or refer to where the data is."
    ),
    "unsupported_media_type": Kind(
        415, "The body is of another type", "Send Content-Type: application/json."
    ),
    "idempotency_key_reused": Kind(
        422, "The key was used for something else", "Take a new Idempotency-Key."
    ),
    "too_many_requests": Kind(
        429, "Too many at once", "Wait for as long as `Retry-After` says."
    ),
    "internal_error": Kind(
        500, "It is a fault of the server", "Give `request_id` to who runs it."
    ),
    "key_missing": Kind(
        503,
        "Encrypted arguments cannot be read here",
        "Give the server the key in RELAY['ENCRYPTION_KEYS'].",
    ),
    "unavailable": Kind(
        503,
        "The database does not answer",
        "Send it again; where it makes something, with an Idempotency-Key.",
    ),
    "too_slow": Kind(503, "The database took too long", "Narrow the filter."),
}


class Fault(TypedDict):
    """One thing that is wrong with a request.

    Attributes:
        pointer: where in the body, as a JSON pointer; or the parameter's name.
        code: what kind of mistake it is.
        detail: what to do about it.
    """

    pointer: str
    code: str
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One error as it is answered.

    Attributes:
        code: of PROBLEMS.
        more: further members, and headers of the answer.
    """

    code: str
    detail: str
    errors: Sequence[Fault] = ()
    more: Mapping[str, Any] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def status(self) -> int:
        """The status of the answer."""
        return PROBLEMS[self.code].status


class ProblemError(Exception):
    """Raised in a view: answer with this problem."""

    def __init__(self, code: str, detail: str, **values: Any) -> None:
        super().__init__(detail)
        self.problem = Problem(code=code, detail=detail, **values)


def problem_of(error: Exception) -> Problem:
    """Return what an error of a view is answered with; internal_error for a fault."""
    for kinds, code in _PLAIN:
        if isinstance(error, kinds):
            return Problem(code=code, detail=str(error))
    if isinstance(error, ProblemError):
        return error.problem
    if isinstance(error, rest.APIException):
        return _of_rest(error)
    if isinstance(error, DatabaseError | InterfaceError):
        return _of_database(error)
    found = _of_act(error)
    if found is None:
        return Problem(code="internal_error", detail="The server's log says more.")
    return found


# Those whose message is all there is to say; the first that fits.
_PLAIN: Final[Sequence[tuple[type[Exception] | tuple[type[Exception], ...], str]]] = (
    (NotAllowed, "not_allowed"),
    ((MissingKey, DecodeError), "key_missing"),
    (PermissionDenied, "not_allowed"),
    ((DisallowedHost, SuspiciousOperation), "invalid_request"),
    (WaitRefused, "conflict"),
    (ReadTimeout, "too_slow"),
)


def _of_act(error: Exception) -> Problem | None:
    if isinstance(error, DuplicateJob):
        more = {"job_id": str(error.job_id)}
        return Problem(code="duplicate_job", detail=str(error), more=more)
    if isinstance(error, StateConflict) and error.state is not None:
        more = {"job_id": str(error.job_id), "state": error.state}
        return Problem(code="conflict", detail=str(error), more=more)
    if isinstance(error, Conflict):
        return Problem(code="conflict", detail=str(error))
    if isinstance(error, UnknownTask):
        return invalid("/task", "unknown_task", str(error))
    if isinstance(error, Http404):
        return Problem(code="not_found", detail="There is nothing at this address.")
    if isinstance(error, NotFound):
        return Problem(code="not_found", detail=str(error))
    if isinstance(error, FilterError):
        fault = Fault(
            pointer=error.qualifier or "q", code="invalid_filter", detail=str(error)
        )
        return Problem(code="invalid_filter", detail=str(error), errors=[fault])
    if isinstance(error, EncodeError):
        pointer = pointer_of(re.findall(r"[^\[\].'\"]+", error.path))
        return invalid(pointer, "cannot_be_carried", str(error))
    if isinstance(error, ArgumentError | ScheduleError):
        # The messages of options begin with their names.
        named = re.match(r"(\w+)=", str(error))
        if named is not None:
            return invalid(f"/{named[1]}", "invalid", str(error))
        return Problem(code="invalid_request", detail=str(error))
    if isinstance(error, ValidationError):
        return _of_validation(error)
    return None


def invalid(pointer: str, code: str, detail: str) -> Problem:
    """Return a problem with one value of the request."""
    fault = Fault(pointer=pointer, code=code, detail=detail)
    return Problem(code="invalid_request", detail=detail, errors=[fault])


def pointer_of(steps: Sequence[object]) -> str:
    """Return a JSON pointer (RFC 6901)."""
    escaped = (str(step).replace("~", "~0").replace("/", "~1") for step in steps)
    return "".join(f"/{step}" for step in escaped)


def _of_validation(error: ValidationError) -> Problem:
    by_field = (
        error.message_dict if hasattr(error, "error_dict") else {"": error.messages}
    )
    faults = [
        Fault(
            pointer=pointer_of(
                [name.removesuffix("_ms")] if name and name != "__all__" else []
            ),
            code="invalid",
            detail=message,
        )
        for name, messages in by_field.items()
        for message in messages
    ]
    return _with_faults(faults)


def _with_faults(faults: Sequence[Fault]) -> Problem:
    first = faults[0] if faults else None
    detail = "The request cannot be taken as it is."
    if first is not None:
        detail = f"{first['pointer'] or 'The body'}: {first['detail']}"
    return Problem(code="invalid_request", detail=detail, errors=faults)


def _of_database(error: Exception) -> Problem:
    cause = error.__cause__
    if isinstance(cause, psycopg.errors.QueryCanceled):
        return Problem(code="too_slow", detail="The database took too long to answer.")
    is_away = isinstance(error, OperationalError | InterfaceError) or isinstance(
        cause, psycopg.errors.ReadOnlySqlTransaction
    )
    if not is_away:
        return Problem(code="internal_error", detail="The server's log says more.")
    return Problem(
        code="unavailable",
        detail="The database cannot be reached, or takes no writes now.",
        headers={"Retry-After": "1"},
    )


_REST_CODES: Final = {
    400: "invalid_request",
    401: "unauthenticated",
    403: "not_allowed",
    404: "not_found",
    405: "method_not_allowed",
    415: "unsupported_media_type",
    429: "too_many_requests",
}


def _of_rest(error: rest.APIException) -> Problem:
    if isinstance(error, rest.ValidationError):
        return _with_faults(list(_faults(error.get_full_details(), [])))
    code = _REST_CODES.get(error.status_code, "internal_error")
    detail = str(error.detail)
    headers: dict[str, str] = {}
    if isinstance(error, rest.AuthenticationFailed):
        code = "invalid_token"
    elif isinstance(error, rest.PermissionDenied) and detail.startswith("CSRF"):
        code = "csrf_failed"
    elif (wait_seconds := getattr(error, "wait", None)) is not None:
        headers["Retry-After"] = str(max(1, round(wait_seconds)))
    return Problem(code=code, detail=detail, headers=headers)


def _faults(details: Any, steps: list[object]) -> Iterator[Fault]:
    """Return the errors of a serializer, each with its place."""
    if isinstance(details, list):
        for place, each in enumerate(details):
            is_message = isinstance(each, dict) and set(each) == {"message", "code"}
            yield from _faults(each, steps if is_message else [*steps, place])
    elif isinstance(details, dict) and set(details) == {"message", "code"}:
        yield Fault(
            pointer=pointer_of(steps),
            code=str(details["code"]),
            detail=str(details["message"]),
        )
    elif isinstance(details, dict):
        for name, each in details.items():
            is_whole = name == api_settings.NON_FIELD_ERRORS_KEY
            inner = steps if is_whole else [*steps, name]
            yield from _faults(each, inner)
