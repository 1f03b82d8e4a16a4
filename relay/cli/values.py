"""What people write for spans, instants and values, read alike by both transports."""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any, Final

from relay.cli.errors import UsageError

__all__ = [
    "assignment",
    "document",
    "filled",
    "filter_text",
    "instant",
    "merged",
    "pause",
    "span",
    "whole",
]

_UNITS: Final = {"w": 604_800, "d": 86_400, "h": 3_600, "m": 60, "s": 1}
_SPAN: Final = re.compile(r"(?:\d+(?:\.\d+)?(?:ms|[wdhms]))+")
_PART: Final = re.compile(r"(\d+(?:\.\d+)?)(ms|[wdhms])")
_ISO: Final = re.compile(
    r"P(?:(?P<w>\d+)W)?(?:(?P<d>\d+)D)?"
    r"(?:T(?:(?P<h>\d+)H)?(?:(?P<m>\d+)M)?(?:(?P<s>\d+(?:\.\d+)?)S)?)?"
)
_LONGEST: Final = 36_525 * 86_400.0
_SHORTEST_PAUSE: Final = 0.1
# Of a place in a list, in digits.
_LONGEST_PLACE: Final = 10


def span(text: str) -> float:
    """Return the seconds that 30s, 2m, 1h30m, 250ms, PT90S or a plain number mean.

    Raises:
        argparse.ArgumentTypeError: it is none.
    """
    seconds = _seconds(text.strip())
    if seconds is None or not 0 <= seconds <= _LONGEST:
        raise argparse.ArgumentTypeError(
            f"{text!r} is no span of time: write 30s, 2m, 1h30m or PT90S"
        )
    return seconds


def pause(text: str) -> float:
    """Return the seconds between two looks: at least a tenth.

    Raises:
        argparse.ArgumentTypeError: it is no span, or shorter.
    """
    seconds = span(text)
    if seconds < _SHORTEST_PAUSE:
        raise argparse.ArgumentTypeError(f"{text!r} is too often: give at least 100ms")
    return seconds


def filled(text: str) -> str:
    """Return a name.

    Raises:
        argparse.ArgumentTypeError: it is empty.
    """
    if not text.strip():
        raise argparse.ArgumentTypeError(f"{text!r} is no name")
    return text


def _seconds(text: str) -> float | None:
    if re.fullmatch(r"\d{1,12}(?:\.\d{1,9})?", text):
        return float(text)
    if len(text) > 40:
        return None
    if _SPAN.fullmatch(text):
        return sum(
            float(number) * (0.001 if unit == "ms" else _UNITS[unit])
            for number, unit in _PART.findall(text)
        )
    found = _ISO.fullmatch(text.upper())
    if found is None or not any(found.groups()):
        return None
    return sum(
        float(number or 0) * _UNITS[u] for u, number in found.groupdict().items()
    )


def instant(text: str) -> str:
    """Return an instant as RFC 3339 in UTC; with a plus and a span it is from now.

    Raises:
        argparse.ArgumentTypeError: it is none, or has no time zone.
    """
    if text.startswith("+"):
        moment = datetime.now(UTC) + timedelta(seconds=span(text[1:]))
        return _written(moment)
    with suppress(ValueError, OverflowError):
        found = datetime.fromisoformat(text)
        if found.utcoffset() is not None:
            return _written(found.astimezone(UTC))
    raise argparse.ArgumentTypeError(
        f"{text!r} is no instant: write 2026-11-30T08:00:00Z, or +10m for from now"
    )


def _written(moment: datetime) -> str:
    return moment.isoformat().replace("+00:00", "Z")


def whole(least: int, most: int) -> Callable[[str], int]:
    """Return the type of an argument that is a whole number in a range."""

    def number(text: str) -> int:
        digits = text.removeprefix("-")
        if digits.isascii() and digits.isdigit() and least <= int(text) <= most:
            return int(text)
        raise argparse.ArgumentTypeError(
            f"{text!r} is no whole number from {least} to {most}"
        )

    return number


def document(kind: type[Any], name: str) -> Callable[[str], Any]:
    """Return the type of an argument that is JSON of one kind."""

    def read(text: str) -> Any:
        try:
            found = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise argparse.ArgumentTypeError(f"{text!r} is not JSON: {error}") from None
        if not isinstance(found, kind):
            raise argparse.ArgumentTypeError(f"{text!r}: give a JSON {name}")
        return found

    return read


def assignment(text: str) -> tuple[str, Any]:
    """Return the name and the value of name=value: JSON, or else the text itself.

    Raises:
        argparse.ArgumentTypeError: there is no name or no equals sign.
    """
    name, equals, value = text.partition("=")
    if not equals or not name.strip():
        raise argparse.ArgumentTypeError(f"{text!r}: write name=value")
    try:
        return name.strip(), json.loads(value)
    except (ValueError, RecursionError):
        return name.strip(), value


def merged(
    pairs: Iterable[tuple[str, Any]], args: list[Any], kwargs: dict[str, Any]
) -> None:
    """Set arguments by their paths: args.0=1, args.user.id=7, kwargs.user=….

    As in filters, `args.` reads a place where a number follows, else a name.

    Raises:
        UsageError: a path leads nowhere.
    """
    for path, value in pairs:
        head, *steps = path.split(".")
        if head not in ("args", "kwargs") or not all(steps) or not steps:
            raise UsageError(f"{path!r} is no argument: write args.0=… or args.name=…")
        root: Any = args if head == "args" and _is_place(steps[0]) else kwargs
        for step, following in pairwise(steps):
            root = _child(root, step, following, path)
        _put(root, steps[-1], value, path)


def _is_place(step: str) -> bool:
    return step.isascii() and step.isdigit()


def _place(step: str) -> int:
    """Return the place that a step names in a list; -1 of none."""
    return int(step) if _is_place(step) and len(step) < _LONGEST_PLACE else -1


def _child(root: Any, step: str, following: str, path: str) -> Any:
    if isinstance(root, dict):
        return root.setdefault(step, [] if following == "0" else {})
    if isinstance(root, list) and 0 <= _place(step) < len(root):
        return root[int(step)]
    raise _nowhere(path)


def _put(root: Any, step: str, value: Any, path: str) -> None:
    if isinstance(root, dict):
        root[step] = value
    elif isinstance(root, list) and 0 <= _place(step) < len(root):
        root[int(step)] = value
    elif isinstance(root, list) and _place(step) == len(root):
        root.append(value)
    else:
        raise _nowhere(path)


def _nowhere(path: str) -> UsageError:
    return UsageError(
        f"{path!r} leads to nothing: the job's arguments have no such place"
    )


def filter_text(words: Iterable[str], **terms: Iterable[str] | None) -> str:
    """Return one text in the filter language of words and flags of a command line.

    What the shell took the quotation marks off gets them again.
    """
    parts = [
        f"{name}:{','.join(map(_quoted, values))}"
        for name, values in terms.items()
        if values
    ]
    return " ".join([*map(_word, words), *parts])


def _word(text: str) -> str:
    is_phrase = any(each.isspace() for each in text) and ":" not in text
    return f'"{text}"' if is_phrase and '"' not in text else text


def _quoted(text: str) -> str:
    if not any(each.isspace() for each in text):
        return text
    marked = text.replace('"', '""')  # as the filter language has one of them
    return f'"{marked}"'
