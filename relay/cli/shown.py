"""How documents look to people: columns of tables, and the pairs of one thing."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from relay.cli.printer import Column, Document, Printer

__all__ = [
    "ATTEMPTS",
    "AUDIT",
    "BULK",
    "CHECKS",
    "FAILURES",
    "FIRES",
    "HISTORY",
    "JOBS",
    "QUEUES",
    "SCHEDULES",
    "TASKS",
    "TOKENS",
    "WORKERS",
    "ago",
    "count",
    "draw_bulk",
    "draw_job",
    "draw_pairs",
    "draw_system",
    "jobs",
    "length",
]

_UNITS: Final = ((86_400, "d"), (3_600, "h"), (60, "m"), (1, "s"))


# --- times and numbers ---------------------------------------------------------------


def length(seconds: float | None) -> str:
    """Return a span as people write it: two units at most."""
    if seconds is None:
        return ""
    if 0 < seconds < 1:
        return f"{seconds * 1_000:.0f}ms"
    if seconds < 60:
        return f"{seconds:.1f}".removesuffix(".0") + "s"
    rest, shown = int(seconds), list[str]()
    for size, unit in _UNITS:
        number, rest = divmod(rest, size)
        if number:
            shown.append(f"{number}{unit}")
    return "".join(shown[:2])


def ago(text: str | None, *, now: datetime | None = None) -> str:
    """Return how long an instant is past, or with a plus how long it is ahead."""
    if not text:
        return ""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:  # of another release
        return text
    seconds = ((now or datetime.now(UTC)) - moment).total_seconds()
    return length(seconds) if seconds >= 0 else f"+{length(-seconds)}"


def size(number: float) -> str:
    """Return a number of bytes as people read it."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if number < 1_024:
            return f"{number:.0f} {unit}"
        number /= 1_024
    return f"{number:,.1f} TiB"


def count(document: Document | None) -> str:
    """Return a count, with a plus where there are more."""
    if document is None:
        return ""
    return f"{document['count']:,}{'+' if document['capped'] else ''}"


def jobs(found: Document) -> str:
    """Return how many jobs were counted."""
    return f"{count(found)} job{'' if found['count'] == 1 else 's'}"


def _when(job: Document) -> str:
    """Return the time that matters of a job in its state."""
    state = job["state"]
    if state in ("scheduled", "retrying"):
        return ago(job["run_at"])
    if state == "running":
        return ago(job["started_at"])
    return ago(job["finished_at"] or job["created_at"])


def _tries(job: Document) -> str:
    """Return its attempts, of how many; alone where a retry or a loss added some."""
    attempt, most = job["attempt"], job["max_retries"] + 1
    return f"{attempt}/{most}" if attempt <= most else f"{attempt}"


def _call(document: Document) -> str:
    """Return arguments as in a call."""
    args, kwargs = document.get("args"), document.get("kwargs")
    if not isinstance(args, list) or not isinstance(kwargs, dict):
        return str(args if args is not None else "")
    parts = [json.dumps(value, ensure_ascii=False) for value in args]
    parts += [f"{k}={json.dumps(v, ensure_ascii=False)}" for k, v in kwargs.items()]
    return ", ".join(parts)


def _key(name: str, title: str | None = None, **values: Any) -> Column:
    return Column(title or name.upper(), lambda each: each.get(name), **values)


def _since(name: str, title: str) -> Column:
    return Column(title, lambda each: ago(each.get(name)), is_number=True)


def _number(name: str, title: str | None = None) -> Column:
    return _key(name, title, is_number=True)


def _count(name: str) -> Column:
    return Column(name.upper(), lambda each: count(each[name]), is_number=True)


# --- tables --------------------------------------------------------------------------

JOBS: Final[Sequence[Column]] = (
    _key("id"),
    _key("state"),
    _key("task", can_cut=True),
    Column("ARGUMENTS", _call, can_cut=True),
    _key("queue", can_cut=True),
    _number("priority", "PRIO"),
    Column("TRIES", _tries, is_number=True),
    Column("AGE", _when, is_number=True),
    _key("error_class", "ERROR", can_cut=True),
)
ATTEMPTS: Final[Sequence[Column]] = (
    _number("attempt"),
    _key("outcome"),
    _key("started_at", "STARTED"),
    Column("TOOK", lambda each: length(each["duration"]), is_number=True),
    _key("worker", can_cut=True),
    Column(
        "ERROR",
        lambda each: ": ".join(filter(None, (each["error_class"], each["error"]))),
        can_cut=True,
    ),
)
HISTORY: Final[Sequence[Column]] = (
    _key("at"),
    _key("event"),
    _number("attempt"),
    _key("actor", can_cut=True),
    _key("detail", can_cut=True),
)
FAILURES: Final[Sequence[Column]] = (
    _number("count"),
    _key("task", can_cut=True),
    _key("error_class", "ERROR"),
    _key("error", "MESSAGE", can_cut=True),
    _since("last_at", "LAST"),
    _key("sample"),
)
QUEUES: Final[Sequence[Column]] = (
    _key("name", "QUEUE"),
    Column("STATE", lambda each: "paused" if each["paused"] else "open"),
    _key("policy", "ORDER"),
    _number("weight"),
    Column("LATENCY", lambda each: length(each["latency"]), is_number=True),
    _count("queued"),
    _count("running"),
    _count("retrying"),
    _count("scheduled"),
    _number("workers"),
)
WORKERS: Final[Sequence[Column]] = (
    _key("id"),
    _key("name", can_cut=True),
    _key("state"),
    Column("QUEUES", lambda each: ",".join(each["queues"]), can_cut=True),
    Column(
        "RUNS",
        lambda each: f"{each['running']}/{each['concurrency']}",
        is_number=True,
    ),
    _since("started_at", "UP"),
    Column("BEAT", lambda each: length(each["silent_for"]), is_number=True),
    _key("asked"),
)
SCHEDULES: Final[Sequence[Column]] = (
    _key("name", "SCHEDULE"),
    Column("STATE", lambda each: "on" if each["enabled"] else "paused"),
    _key("when", can_cut=True),
    _key("timezone", "ZONE"),
    _key("task", can_cut=True),
    _since("next_due_at", "NEXT"),
    _since("last_due_at", "LAST"),
    _key("source"),
    _key("error", can_cut=True),
)
FIRES: Final[Sequence[Column]] = (
    _key("planned_at", "UTC"),
    _key("local"),
    _key("note"),
)
BULK: Final[Sequence[Column]] = (
    _key("id"),
    _key("action"),
    _key("state"),
    _number("matched"),
    _number("done"),
    Column("SKIPPED", lambda each: sum(each["skipped"].values()), is_number=True),
    _number("failed"),
    _since("created_at", "AGE"),
    _key("filter", can_cut=True),
)
TASKS: Final[Sequence[Column]] = (
    _key("name", "TASK"),
    _key("queue"),
    _number("priority", "PRIO"),
    _number("max_retries", "RETRIES"),
    Column("TIMEOUT", lambda each: length(each["timeout"]), is_number=True),
    Column("PERMISSION", lambda each: each.get("permission")),
    _key("signature", can_cut=True),
)
TOKENS: Final[Sequence[Column]] = (
    _key("id"),
    _key("name", can_cut=True),
    _key("prefix"),
    Column("SCOPES", lambda each: ",".join(each["scopes"])),
    Column("QUEUES", lambda each: ",".join(each["queues"] or ["all"]), can_cut=True),
    Column("TASKS", lambda each: ",".join(each.get("tasks") or ["all"]), can_cut=True),
    _since("expires_at", "EXPIRES"),
    _since("last_used_at", "USED"),
    _key("state"),
)
AUDIT: Final[Sequence[Column]] = (
    _key("at"),
    _key("actor", can_cut=True),
    _key("source"),
    _key("operation"),
    _key("subject"),
    _key("target", can_cut=True),
    _key("reason", can_cut=True),
)
TABLES: Final[Sequence[Column]] = (
    _key("name", "TABLE"),
    Column("SIZE", lambda each: size(each["size_bytes"]), is_number=True),
    Column("INDEXES", lambda each: size(each["index_bytes"]), is_number=True),
    _number("live_rows", "ROWS"),
    _number("dead_rows", "DEAD"),
    _since("vacuumed_at", "VACUUMED"),
)
CHECKS: Final[Sequence[Column]] = (
    _key("level"),
    _key("id"),
    _key("message", can_cut=True),
    _key("hint", can_cut=True),
)


# --- one thing -----------------------------------------------------------------------

_JOB: Final = [
    "id",
    "task",
    "state",
    "queue",
    "priority",
    "tags",
    "attempt",
    "max_retries",
    "failures",
    "crashes",
    "losses",
    "timeout",
    "created_at",
    "run_at",
    "started_at",
    "finished_at",
    "deadline_at",
    "expires_at",
    "cancel_requested_at",
    "duration",
    "worker",
    "worker_id",
    "schedule",
    "occurrence_at",
    "workflow_id",
    "replay_of",
    "replays",
    "unique_key",
    "error_class",
    "progress",
]
_BULK: Final = [
    "id",
    "action",
    "filter",
    "state",
    "expected",
    "matched",
    "done",
    "asked",
    "skipped",
    "failed",
    "error",
    "actor",
    "reason",
    "created_at",
    "started_at",
    "finished_at",
]


def draw_pairs(
    printer: Printer, document: Mapping[str, Any], names: Iterable[str] | None = None
) -> None:
    """Write the values of a document that are set, one in each line."""
    wanted = document.keys() if names is None else names
    printer.fields((name, _plain(document.get(name))) for name in wanted)


def _plain(value: object) -> object:
    if isinstance(value, Mapping) and value.keys() == {"count", "capped"}:
        return count(value)
    if isinstance(value, list) and all(isinstance(each, str) for each in value):
        return ", ".join(value)
    return None if value in ([], {}) else value


def draw_job(printer: Printer, job: Document) -> None:
    """Write one job with its arguments, its result and what went wrong."""
    draw_pairs(printer, job, _JOB)
    for name in ("args", "kwargs", "result", "meta"):
        value = job.get(name)
        if value not in (None, [], {}):
            printer.block(name, json.dumps(value, indent=2, ensure_ascii=False))
    if job.get("error"):
        printer.block("error", str(job["error"]))
    if job.get("attempts"):
        printer.line()
        printer.table(ATTEMPTS, job["attempts"])
    for attempt in job.get("attempts") or ():
        if attempt["traceback"]:
            printer.block(f"attempt {attempt['attempt']}", attempt["traceback"])
    for log in job.get("logs") or ():
        printer.block(f"log of attempt {log['attempt']}", log["text"])


def draw_bulk(printer: Printer, bulk: Document) -> None:
    draw_pairs(printer, bulk, _BULK)
    if why := bulk.get("why"):
        printer.fields([("why", why["summary"]), ("remedy", why["remedy"])])


def draw_system(printer: Printer, system: Document) -> None:
    """Write what runs here, how large its tables are, and what checks find."""
    names = ("version", "python", "django", "postgresql", "database")
    missing = ", ".join(system["migrations"]["missing"])
    printer.fields(
        [
            *((name, system[name]) for name in names),
            ("migrations missing", missing or "none"),
            ("oldest transaction", length(system["oldest_transaction"])),
            ("statistics lag", length(system["statistics_lag"])),
        ]
    )
    printer.line()
    printer.table(TABLES, system["tables"])
    printer.line()
    if system["checks"]:
        printer.table(CHECKS, system["checks"])
    else:
        printer.line("nothing is wrong")
