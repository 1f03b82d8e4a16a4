"""What each method of each address takes and answers: for checks and for docs."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final, TypeVar, cast

from django.http import QueryDict

from relay.api.fields import read_span
from relay.api.problems import ProblemError, invalid
from relay.operations import QUALIFIERS

__all__ = [
    "CURSOR",
    "FILTER",
    "INCLUDE",
    "LIMIT",
    "Endpoint",
    "Parameter",
    "choice",
    "endpoint",
    "endpoint_of",
    "flag",
    "one_of",
    "read_query",
    "span",
    "text",
    "whole",
]

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of the query: how its text is read, and what JSON Schema says of it.

    Attributes:
        read: raises ValueError with what to give instead.
    """

    about: str
    read: Callable[[str], Any]
    schema: Mapping[str, Any] = field(default_factory=lambda: {"type": "string"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """One method of one address.

    Attributes:
        permission: what who calls needs; None: anything of relay's.
        summary: what it does, in one line.
        answers: the document of each status that is no error; None for no body.
        body: the class of relay.api.bodies that its body is read by.
        query: parameters by name.
        has_filter: whether what relay.operations.from_parameters takes is one too.
        codes: of relay.api.problems, besides those that any may answer with.
        is_for_some: whether tokens for some queues may use it.
        is_once: whether it heeds the header Idempotency-Key.
    """

    permission: str | None
    summary: str
    answers: Mapping[int, Any]
    body: type[Any] | None = None
    query: Mapping[str, Parameter] = field(default_factory=dict)
    has_filter: bool = False
    codes: Sequence[str] = ()
    is_for_some: bool = False
    is_once: bool = False


def endpoint(
    permission: str | None, answers: Mapping[int, Any], **values: Any
) -> Callable[[F], F]:
    """Say of a view's method what it takes and answers; see Endpoint."""

    def note(method: F) -> F:
        summary = (inspect.getdoc(method) or "").partition("\n")[0]
        made = Endpoint(
            permission=permission, answers=answers, summary=summary, **values
        )
        cast("Any", method).endpoint = made
        return method

    return note


def endpoint_of(view: object, method: str) -> Endpoint | None:
    """Return what a view's method takes and answers; None if it has none such."""
    name = "get" if method == "HEAD" else method.lower()
    return getattr(getattr(view, name, None), "endpoint", None)


def read_query(about: Endpoint, given: QueryDict) -> tuple[dict[str, Any], Any]:
    """Return the parameters' values by name, and those of the filter as texts.

    Raises:
        ProblemError: one is unknown, there twice, or cannot be read.
    """
    values: dict[str, Any] = {}
    filters: dict[str, str] = {}
    for name, texts in given.lists():
        if len(texts) > 1:
            raise _refused(name, "repeated", "is given more than once")
        if (parameter := about.query.get(name)) is not None:
            try:
                values[name] = parameter.read(texts[0])
            except ValueError as error:
                raise _refused(name, "invalid", str(error)) from None
        elif about.has_filter:
            filters[name] = texts[0]
        else:
            known = ", ".join(sorted(about.query))
            there = f"there are {known}" if known else "this takes no parameters"
            raise _refused(name, "unknown", f"is unknown: {there}")
    return values, filters


def _refused(name: str, code: str, reason: str) -> ProblemError:
    problem = invalid(name, code, f"{name}: {reason}")
    return ProblemError(problem.code, problem.detail, errors=problem.errors)


# --- kinds of parameters -------------------------------------------------------------


def _plain(value: str) -> str:
    if "\x00" in value or not value:
        raise ValueError("give a text without NUL")
    return value


def text(about: str) -> Parameter:
    """Return a parameter that is a text."""
    return Parameter(about, _plain, {"type": "string", "minLength": 1})


def whole(about: str, least: int, most: int) -> Parameter:
    """Return a parameter that is a whole number."""

    def read(value: str) -> int:
        is_number = value.isascii() and value.isdigit() and len(value) < 10
        if not is_number or not least <= int(value) <= most:
            raise ValueError(f"give a whole number from {least} to {most}")
        return int(value)

    schema = {"type": "integer", "minimum": least, "maximum": most}
    return Parameter(about, read, schema)


def choice(about: str, *words: str) -> Parameter:
    """Return a parameter that is some of these words, between commas."""

    def read(value: str) -> tuple[str, ...]:
        found = tuple(dict.fromkeys(value.split(",")))
        if not set(found) <= set(words):
            raise ValueError(f"give some of {', '.join(words)}")
        return found

    one = "|".join(words)
    return Parameter(
        about, read, {"type": "string", "pattern": f"^({one})(,({one}))*$"}
    )


def one_of(about: str, *words: str) -> Parameter:
    """Return a parameter that is one of these words."""

    def read(value: str) -> str:
        if value not in words:
            raise ValueError(f"give one of {', '.join(words)}")
        return value

    return Parameter(about, read, {"type": "string", "enum": list(words)})


def flag(about: str) -> Parameter:
    """Return a parameter that is true or false."""

    def read(value: str) -> bool:
        if value not in ("true", "false"):
            raise ValueError("give true or false")
        return value == "true"

    return Parameter(about, read, {"type": "boolean"})


def span(about: str, most: timedelta) -> Parameter:
    """Return a parameter that is a span of time."""

    def read(value: str) -> timedelta:
        found = read_span(value)
        if not timedelta(0) <= found <= most:
            raise ValueError(f"give 0s to {most.total_seconds():g}s")
        return found

    return Parameter(about, read)


LIMIT: Final = whole("Most results on a page; 50 unless given.", 1, 500)
CURSOR: Final = text("From `next` or `previous` of another page.")
INCLUDE: Final = choice(
    "What of the job to send with it.", "attempts", "history", "logs", "steps"
)
# What has_filter stands for, as documentation lists it.
FILTER: Final[Mapping[str, Parameter]] = {
    name: text(f"Qualifier `{name}` of the filter language.")
    for name in QUALIFIERS
    if not name.startswith("args.")
} | {"q": text("A text in the filter language.")}
