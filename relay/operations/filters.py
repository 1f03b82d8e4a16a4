"""The filter language: which jobs, in one line of text.

`state:failed queue:mail task:send_* tag:vip age:>1h "connection refused"`: all parts
have to hold; within one, what stands between commas is or. What may be asked for is the
list QUALIFIERS and nothing else.
Source: docs/reference/filters.md.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from uuid import UUID

from django.utils import timezone
from django.utils.dateparse import parse_datetime

from relay.conf import check_queue_name
from relay.exceptions import ArgumentError
from relay.ids import read_id
from relay.labels import check_tag
from relay.models import JobState
from relay.nearest import meant
from relay.operations.first_line import first_line
from relay.operations.job_filter import FilterError, IdPrefix, JobFilter, Term
from relay.redaction import is_secret_name
from relay.unique import KEY_BYTES

__all__ = ["QUALIFIERS", "from_parameters", "parse"]

# Of a text: as long as MOST_VALUES ids.
LONGEST: Final = 40_000
MOST_VALUES: Final = 1_000
# Deeper than this no argument is nested.
MOST_STEPS: Final = 20

# Other words for states. Source: docs/reference/filters.md, "States".
_ALIASES: Final = {
    "pending": "queued",
    "ready": "queued",
    "available": "queued",
    "waiting": "blocked",
    "retry": "retrying",
    "retryable": "retrying",
    "active": "running",
    "executing": "running",
    "succeeded": "completed",
    "done": "completed",
    "archived": "failed",
    "dead": "failed",
    "dlq": "failed",
    "discarded": "failed",
    "canceled": "cancelled",
}
# Between quotation marks one of them stands as two. Possessive: half of a pair is none.
_MARKED: Final = '(?:[^"]|"")*+'
_TOKEN: Final = re.compile(
    rf"""(?P<name>[A-Za-z_][A-Za-z0-9_.-]*):(?P<value>(?:"{_MARKED}"|[^\s"])*)
        |"(?P<words>{_MARKED})"|(?P<word>[^\s"]+)|(?P<broken>")""",
    re.VERBOSE,
)
_VALUE: Final = re.compile(rf'"({_MARKED})"|([^,"]+)')
_ONE: Final = rf'(?:"{_MARKED}"|[^,"]+)?'
_VALUES: Final = re.compile(rf"{_ONE}(?:,{_ONE})*")
# As a text names them too: another name would be read as something else there.
_PATH: Final = re.compile(r"args\.[A-Za-z0-9_.-]+")
_SPAN: Final = re.compile(r"(?:(\d+)w)?(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?")
_UNITS: Final = ("weeks", "days", "hours", "minutes", "seconds")
_DIGITS: Final = re.compile(r"[0-9a-f]{8,31}")
_KEY: Final = re.compile(rf"[0-9a-f]{{{2 * KEY_BYTES}}}")


# --- reading -------------------------------------------------------------------------


def parse(text: str, *, now: datetime | None = None) -> JobFilter:
    """Return the filter that a text says.

    Args:
        now: what ages count back from; the clock's time unless given.

    Raises:
        FilterError: a qualifier is unknown, or a value cannot be one of its.
    """
    if len(text) > LONGEST or not _can_be_stored(text):
        raise FilterError(
            f"a filter is a text of at most {LONGEST:,} characters, without NUL and "
            "lone surrogates"
        )
    moment = now or timezone.now().astimezone(UTC)
    terms: list[Term] = []
    words: list[str] = []
    tokens = list(_TOKEN.finditer(text))
    if any(found["broken"] for found in tokens):
        raise FilterError(
            "a quotation mark is not closed: write error text as "
            '"connection refused", one of its own as two'
        )
    for found in tokens:
        if found["name"] is None:
            word = found["word"] or found["words"].replace('""', '"')
            words += [word] if word else []
        else:
            terms.append(
                _term(found["name"], _split(found["name"], found["value"]), moment)
            )
    return _made(terms, words)


def from_parameters(
    given: Mapping[str, str], *, now: datetime | None = None
) -> JobFilter:
    """Return the filter that parameters of a URL say: a qualifier is a name; q a text.

    Raises:
        FilterError: as parse().
    """
    moment = now or timezone.now().astimezone(UTC)
    rest = parse(given["q"], now=moment) if "q" in given else JobFilter(())
    terms = [
        _term(name, _split(name, value), moment)
        for name, value in given.items()
        if name != "q"
    ]
    return _made([*terms, *rest.terms], rest.words)


def _made(terms: Iterable[Term], words: Iterable[str]) -> JobFilter:
    made = JobFilter(tuple(terms), tuple(words))
    if made.states is not None and not made.states:
        raise FilterError("no job can be in all the states that the filter asks for")
    return made


def _split(name: str, value: str) -> Iterator[str]:
    if not _VALUES.fullmatch(value):
        raise FilterError(
            f'{name}: a value in quotation marks ends at a comma: write {name}:"a b",c',
            name,
        )
    for marked, plain in _VALUE.findall(value):
        yield marked.replace('""', '"') or plain


def _term(name: str, given: Iterable[str], now: datetime) -> Term:
    values = tuple(dict.fromkeys(given))
    if not values:
        raise FilterError(f"{name}: has no value", name)
    if len(values) > MOST_VALUES:
        raise FilterError(f"{name}: has more than {MOST_VALUES:,} values", name)
    if not all(map(_can_be_stored, values)):
        raise FilterError(f"{name}: no job holds NUL or lone surrogates", name)
    if name.startswith("args.") and name != "args.":
        _check_path(name)
        return Term(name, values)
    if name in _AGES:
        if len(values) > 1:
            raise FilterError(f"{name}: takes one value", name)
        return _aged(name, values[0], now)
    read = _READERS.get(name)
    if read is None:
        raise FilterError(
            f"unknown qualifier {name!r}{meant(name, QUALIFIERS)}: there are "
            f"{', '.join(QUALIFIERS)}; a text with a colon is quoted",
            name,
        )
    try:
        return Term(name, tuple(read(value) for value in values))
    except ValueError as error:
        raise FilterError(f"{name}:{values[0]}: {error}", name) from None
    except ArgumentError as error:
        raise FilterError(f"{name}: {error}", name) from None


def _check_path(name: str) -> None:
    if name.count(".") > MOST_STEPS:
        raise FilterError(f"{name}: is deeper than {MOST_STEPS} steps", name)
    if not _PATH.fullmatch(name):
        raise FilterError(
            f"{name!r}: write a path of letters, digits, '_' and '-', dots between",
            name,
        )
    # Each answer would tell whether a guess was right.
    if any(map(is_secret_name, name.split(".")[1:])):
        raise FilterError(
            f"{name}: what RELAY['REDACTED_NAMES'] calls a secret is shown to nobody, "
            "and looked for by nobody",
            name,
        )


def _can_be_stored(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return "\x00" not in text


def _aged(name: str, value: str, now: datetime) -> Term:
    """Return a span back from now, or ahead of it, as the instant that it means."""
    sign, span = value[:1], _span(value[1:])
    if sign not in "<>" or span is None:
        raise FilterError(
            f"{name}:{value}: write {name}:>1h, {name}:<30m or {name}:<1d12h", name
        )
    before, after = _AGES[name]
    if name == "due":  # ahead: more than an hour from now is after it
        return Term(after if sign == ">" else before, (now + span,))
    return Term(before if sign == ">" else after, (now - span,))


def _span(text: str) -> timedelta | None:
    found = _SPAN.fullmatch(text)
    if found is None or not any(found.groups()) or len(text) > 20:
        return None
    parts = zip(_UNITS, found.groups(), strict=True)
    try:
        span = timedelta(**{unit: int(number or 0) for unit, number in parts})
    except OverflowError:
        return None
    return span if span < timedelta(days=36_525) else None


def _state(value: str) -> str:
    state = _ALIASES.get(value.lower(), value.lower())
    if state not in JobState.values:
        raise ValueError(f"no state; there are {', '.join(JobState.values)}")
    return state


def _uuid(value: str) -> UUID:
    found = read_id(value)
    if found is None:
        raise ValueError("no id: give all 36 characters")
    return found


def _key(value: str) -> str:
    if _KEY.fullmatch(value.lower()) is None:
        raise ValueError(f"no unique key: give all {2 * KEY_BYTES} digits of its hash")
    return value.lower()


def _id(value: str) -> UUID | IdPrefix:
    found = read_id(value)
    if found is not None:
        return found
    digits = value.lower().replace("-", "")
    if _DIGITS.fullmatch(digits) is None:
        raise ValueError("no id: give it, or at least its first 8 digits")
    return IdPrefix(digits)


def _moment(value: str) -> datetime:
    try:
        moment = parse_datetime(value)
        if moment is not None and moment.utcoffset() is not None:
            return moment.astimezone(UTC)
    except (ValueError, OverflowError):  # at the edge of time its zone is beyond it
        pass
    raise ValueError("no time: write 2026-11-30T08:00:00Z")


def _name(value: str) -> str:
    if not value.isprintable() or len(value) > 500:
        raise ValueError("no name: control characters, or too long")
    return value


# --- what may be asked for -----------------------------------------------------------

# A span of time, and which two instants it may mean: before it, after it.
_AGES: Final = {
    "age": ("created_before", "created_after"),
    "finished": ("finished_before", "finished_after"),
    "due": ("run_at_before", "run_at_after"),
}
_READERS: Final[Mapping[str, Callable[[str], Any]]] = {
    "id": _id,
    "state": _state,
    "queue": check_queue_name,
    "task": str,
    "tag": check_tag,
    "error": str,
    "error_line": first_line,
    "worker": _name,
    "schedule": _name,
    "replay_of": _uuid,
    "unique_key": _key,
    "created_after": _moment,
    "created_before": _moment,
    "finished_after": _moment,
    "finished_before": _moment,
    "run_at_after": _moment,
    "run_at_before": _moment,
}
# All that may be asked for, as errors and documentation list them.
QUALIFIERS: Final = (*_READERS, *_AGES, "args.<path>")
