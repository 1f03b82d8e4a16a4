"""For LOGGING: formatters that show fields, and a filter that adds the job's.

Each line that is logged while a handler runs, in its thread or coroutine, says of which
job it is: the project's own lines too. Fields: docs/reference/logs.md.
"""

from __future__ import annotations

import json
import logging
import math
import re
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from typing import Any, Final

from relay import origin
from relay.context import current_facts
from relay.traces import current_ids

__all__ = ["JSONFormatter", "JobContext", "KeyValueFormatter", "of_request"]

# What every record has: the rest is what was given as extra.
_ALWAYS: Final = frozenset(vars(logging.makeLogRecord({}))) | {
    "asctime",
    "message",
    "taskName",  # since Python 3.12
}
_CONTEXT: Final = (
    *("job_id", "task", "queue", "attempt", "failures", "max_retries"),
    "worker_id",
)
_BARE: Final = re.compile(r"[^\s\"=\\\x00-\x1f\x7f]+")


def of_request(request_id: str | None) -> AbstractContextManager[None]:
    """Name the request that is being answered, for a with statement around it.

    Its id is the field request_id of what is logged inside, and goes with the jobs that
    are enqueued inside, and with theirs: their lines have it too.

    Args:
        request_id: as of the header X-Request-ID; cut at 128 characters. None or ""
            names none.
    """
    return origin.asked_by(None, request_id)


class JobContext(logging.Filter):
    """Adds the fields of the job that is running, of the request and of the span.

    Put it on a handler, for formatters of others: relay's own need none. A field that
    the record has already stays as it is; one that tells of another job, as of one that
    is enqueued, gets none of the running job's.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        """Add the fields; always True."""
        facts = current_facts()
        values = vars(record)
        if facts is not None and _is_of(values, str(facts[0])):
            for name, value in zip(_CONTEXT, facts, strict=False):
                values.setdefault(name, value if isinstance(value, int) else str(value))
        if (request_id := origin.request_id()) is not None:
            values.setdefault("request_id", request_id)
        ids = current_ids()
        if ids is not None:
            values.setdefault("trace_id", ids[0])
            values.setdefault("span_id", ids[1])
        return True


def _is_of(values: Mapping[str, Any], job_id: str) -> bool:
    """Tell whether a record tells of this job, or of none."""
    return str(values.get("job_id", job_id)) == job_id


_context: Final = JobContext()


def _fields(record: logging.LogRecord) -> Iterator[tuple[str, Any]]:
    """Give the fields of a record in their order, those of its job with them."""
    _context.filter(record)
    moment = datetime.fromtimestamp(record.created, UTC)
    yield "time", moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    yield "level", record.levelname
    yield "logger", record.name
    yield "message", record.getMessage()
    for name, value in vars(record).items():
        if name not in _ALWAYS and not name.startswith("_"):
            yield name, value


class JSONFormatter(logging.Formatter):
    """Writes each record as one line of JSON, with its fields."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line; what JSON has no form for stands in it as text."""
        document = {name: _plain(value) for name, value in _fields(record)}
        document.update(_traces(self, record))
        return json.dumps(document, default=str, ensure_ascii=False)


class KeyValueFormatter(logging.Formatter):
    """Writes each record as one line of key=value, with its fields (logfmt)."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line; a value with spaces and the like stands in quotes."""
        fields = [*_fields(record), *_traces(self, record).items()]
        return " ".join(f"{name}={_quoted(value)}" for name, value in fields)


def _plain(value: Any) -> Any:
    """Return the value, or as text a number that JSON does not have."""
    is_number = not isinstance(value, float) or math.isfinite(value)
    return value if is_number else str(value)


def _quoted(value: Any) -> str:
    text = "" if value is None else str(value)
    return text if _BARE.fullmatch(text) else json.dumps(text, ensure_ascii=False)


def _traces(formatter: logging.Formatter, record: logging.LogRecord) -> dict[str, str]:
    found: dict[str, str] = {}
    if record.exc_info:
        found["exception"] = formatter.formatException(record.exc_info)
    if record.stack_info:
        found["stack"] = formatter.formatStack(record.stack_info)
    return found
