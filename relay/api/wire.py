"""What goes over the wire: JSON in and out, whatever the host's settings say."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import IO, Any, Final

from rest_framework.negotiation import BaseContentNegotiation
from rest_framework.parsers import BaseParser
from rest_framework.renderers import BaseRenderer

from relay.api.problems import Problem, ProblemError, invalid, pointer_of
from relay.conf import get_settings

__all__ = ["JsonOnly", "JsonParser", "JsonRenderer", "check_size", "read_object"]

# Deeper than arguments may be by the few levels that are around them.
_MOST_LEVELS: Final = 140


class JsonRenderer(BaseRenderer):
    """JSON in ASCII: whatever a text holds, lone surrogates too, can be sent."""

    media_type = "application/json"
    format = "json"
    charset = None

    def render(
        self,
        data: Any,
        accepted_media_type: str | None = None,
        renderer_context: Mapping[str, Any] | None = None,
    ) -> bytes:
        """Return the document; nothing for None."""
        if data is None:
            return b""
        return json.dumps(data, allow_nan=False, separators=(",", ":")).encode()


class JsonOnly(BaseContentNegotiation):
    """JSON, whatever was asked for: there is nothing else to choose from."""

    def select_parser(self, request: Any, parsers: Any) -> Any:
        """Return the one parser, if the body may be JSON."""
        kind = (request.content_type or "").partition(";")[0].strip().lower()
        is_json = kind in ("", "application/json") or kind.endswith("+json")
        return parsers[0] if is_json else None

    def select_renderer(
        self, request: Any, renderers: Any, format_suffix: str | None = None
    ) -> tuple[Any, str]:
        """Return the one renderer."""
        return renderers[0], renderers[0].media_type


class JsonParser(BaseParser):
    """One JSON object: of bounded size and depth, without NaN, NUL or surrogates."""

    media_type = "application/json"

    def parse(
        self,
        stream: IO[bytes],
        media_type: str | None = None,
        parser_context: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        """Return the object.

        Raises:
            ProblemError: it is none, or too large.
        """
        body = stream.read(get_settings().api.max_body_bytes + 1)
        check_size(len(body))
        return read_object(body)


def check_size(size_bytes: int) -> None:
    """Refuse a body that is too large.

    Raises:
        ProblemError: it is.
    """
    most = get_settings().api.max_body_bytes
    if size_bytes > most:
        raise ProblemError(
            "too_large",
            f"The body has more than {most:,} bytes, as RELAY['API']["
            "'MAX_BODY_BYTES'] bounds it.",
        )


def read_object(body: bytes) -> dict[str, Any]:
    """Return the JSON object that a body holds.

    Raises:
        ProblemError: it is none.
    """
    try:
        found = json.loads(
            body.decode(), parse_constant=_refuse, object_pairs_hook=_without_repeats
        )
    except (ValueError, RecursionError) as error:
        raise ProblemError("invalid_json", f"The body is no JSON: {error}.") from None
    if not isinstance(found, dict):
        raise ProblemError("invalid_json", "The body is no JSON object.")
    for problem in _unfit(found, []):
        raise ProblemError(problem.code, problem.detail, errors=problem.errors)
    return found


def _refuse(name: str) -> None:
    raise ValueError(f"{name} is no number that JSON knows")


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("an object has a name twice")
    return found


def _unfit(value: Any, steps: list[object]) -> Iterator[Problem]:
    """Yield what PostgreSQL could not hold, or nobody could mean."""
    if isinstance(value, str):
        if "\x00" in value or not _is_unicode(value):
            detail = "NUL and lone surrogates cannot be kept: leave them out."
            yield invalid(pointer_of(steps), "cannot_be_carried", detail)
    elif isinstance(value, dict | list):
        if len(steps) > _MOST_LEVELS:
            yield invalid("", "too_deep", f"Nested deeper than {_MOST_LEVELS} levels.")
            return
        items = value.items() if isinstance(value, dict) else enumerate(value)
        for step, each in items:
            if isinstance(step, str):
                yield from _unfit(step, [*steps, "…"])
            yield from _unfit(each, [*steps, step])


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
