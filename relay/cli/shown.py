"""How documents look to people: columns of tables, and the pairs of one thing."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from relay.cli.figures import ago, count, length, moment, size
from relay.cli.printer import Column, Document, Printer, inert

__all__ = [
    "ATTEMPTS",
    "AUDIT",
    "BULK",
    "FAILURES",
    "FIRES",
    "HISTORY",
    "JOBS",
    "OCCURRENCES",
    "QUEUES",
    "SCHEDULES",
    "TASKS",
    "TOKENS",
    "WORKERS",
    "draw_bulk",
    "draw_job",
    "draw_pairs",
    "draw_system",
]

# What of a document is a number of seconds.
_SPANS: Final = frozenset(
    {"duration", "timeout", "latency", "silent_for", "every", "spread"}
) | {"catch_up_window", "success_within", "late_by"}
# JSON that is no longer stands beside its name, else below it.
_LONGEST_BESIDE: Final = 60


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


def _oldest(queue: Document) -> str:
    """Return for how long the oldest ready job has waited; nothing where none does."""
    return length(queue["latency"] if queue["queued"]["count"] else None)


def _key(name: str, title: str | None = None, **values: Any) -> Column:
    return Column(title or name.upper(), lambda each: each.get(name), **values)


def _since(name: str, title: str, **values: Any) -> Column:
    return Column(title, lambda each: ago(each.get(name)), is_number=True, **values)


def _at(name: str, title: str) -> Column:
    return Column(title, lambda each: moment(each.get(name)))


def _number(name: str, title: str | None = None, **values: Any) -> Column:
    return _key(name, title, is_number=True, **values)


def _count(name: str) -> Column:
    return Column(name.upper(), lambda each: count(each[name]), is_number=True)


# --- tables --------------------------------------------------------------------------

# The end of a task's name tells it from others.
_TASK: Final = _key("task", can_cut=True, least=14, keeps_end=True)
_ID: Final = _key("id", is_id=True)

JOBS: Final[Sequence[Column]] = (
    _ID,
    _key("state"),
    _TASK,
    Column("ARGUMENTS", _call, can_cut=True, least=10, rank=2),
    _key("queue", can_cut=True),
    _number("priority", "PRIO", rank=3),
    Column("TRIES", _tries, is_number=True),
    Column("AGE", _when, is_number=True),
    _key("error_class", "ERROR", can_cut=True, least=10, rank=1),
)
ATTEMPTS: Final[Sequence[Column]] = (
    _number("attempt"),
    _key("outcome"),
    _at("started_at", "STARTED"),
    Column("TOOK", lambda each: length(each["duration"]), is_number=True),
    _key("worker", can_cut=True),
    Column(
        "ERROR",
        lambda each: ": ".join(filter(None, (each["error_class"], each["error"]))),
        can_cut=True,
    ),
)
HISTORY: Final[Sequence[Column]] = (
    _at("at", "AT"),
    _key("event"),
    _number("attempt"),
    _key("actor", can_cut=True),
    Column("DETAIL", lambda each: _pairs(each["detail"]), can_cut=True),
)
FAILURES: Final[Sequence[Column]] = (
    _number("count"),
    _TASK,
    _key("error_class", "ERROR", can_cut=True, least=12),
    _key("error", "MESSAGE", can_cut=True),
    _since("last_at", "LAST"),
    _key("sample", is_id=True),
)
QUEUES: Final[Sequence[Column]] = (
    _key("name", "QUEUE", can_cut=True, least=16),
    Column("STATE", lambda each: "paused" if each["paused"] else "open"),
    _key("policy", "ORDER", rank=1),
    _number("weight", rank=2),
    Column("LATENCY", _oldest, is_number=True),
    _count("queued"),
    _count("running"),
    _count("retrying"),
    _count("scheduled"),
    _number("workers"),
)
WORKERS: Final[Sequence[Column]] = (
    _ID,
    _key("name", can_cut=True, least=16),
    _key("state"),
    Column("QUEUES", lambda each: ",".join(each["queues"]), can_cut=True),
    Column(
        "RUNS",
        lambda each: f"{each['running']}/{each['concurrency']}",
        is_number=True,
    ),
    _since("started_at", "UP"),
    Column("BEAT", lambda each: length(each["silent_for"]), is_number=True),
    _key("asked", rank=1),
)
SCHEDULES: Final[Sequence[Column]] = (
    _key("name", "SCHEDULE", can_cut=True, least=20),
    Column("STATE", lambda each: "on" if each["enabled"] else "paused"),
    _key("when", can_cut=True, least=13),
    _key("timezone", "ZONE", can_cut=True, least=11, rank=3),
    _TASK,
    _since("next_due_at", "NEXT"),
    _since("last_due_at", "LAST", rank=4),
    _key("source", rank=5),
    _key("error", can_cut=True, rank=1),
)
FIRES: Final[Sequence[Column]] = (
    _key("planned_at", "UTC"),
    _key("local"),
    _key("note"),
)
OCCURRENCES: Final[Sequence[Column]] = (
    _at("due_at", "DUE"),
    _key("state"),
    _key("job_id", "JOB", is_id=True),
    _key("outcome"),
    _key("reason", can_cut=True),
    _number("count"),
)
BULK: Final[Sequence[Column]] = (
    _ID,
    _key("action"),
    _key("state"),
    _number("matched"),
    _number("done"),
    Column("SKIPPED", lambda each: sum(each["skipped"].values()), is_number=True),
    _number("failed"),
    _since("created_at", "AGE", rank=1),
    _key("filter", can_cut=True, least=12),
)
TASKS: Final[Sequence[Column]] = (
    _key("name", "TASK"),
    _key("queue"),
    _number("priority", "PRIO"),
    _number("max_retries", "RETRIES"),
    Column("TIMEOUT", lambda each: length(each["timeout"]), is_number=True),
    Column("PERMISSION", lambda each: each.get("permission"), rank=2),
    _key("signature", can_cut=True, rank=1),
)
TOKENS: Final[Sequence[Column]] = (
    _ID,
    _key("name", can_cut=True),
    _key("prefix", rank=2),
    Column("SCOPES", lambda each: ",".join(each["scopes"]), can_cut=True, least=12),
    Column("QUEUES", lambda each: ",".join(each["queues"] or ["all"]), can_cut=True),
    Column(
        "TASKS",
        lambda each: ",".join(each.get("tasks") or ["all"]),
        can_cut=True,
        rank=3,
    ),
    _since("expires_at", "EXPIRES"),
    _since("last_used_at", "USED", rank=1),
    _key("state"),
)
AUDIT: Final[Sequence[Column]] = (
    _at("at", "AT"),
    _key("actor", can_cut=True),
    _key("source"),
    _key("operation"),
    _key("subject", rank=2),
    _key("target", can_cut=True, least=13),
    _key("reason", can_cut=True, rank=1),
)
TABLES: Final[Sequence[Column]] = (
    _key("name", "TABLE"),
    Column("SIZE", lambda each: size(each["size_bytes"]), is_number=True),
    Column("INDEXES", lambda each: size(each["index_bytes"]), is_number=True),
    _number("live_rows", "ROWS"),
    _number("dead_rows", "DEAD"),
    _since("vacuumed_at", "VACUUMED"),
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
_CALL: Final = ("args", "kwargs", "result", "meta")
_BULK: Final = [
    "id",
    "action",
    "filter",
    "state",
    "expected",
    "matched",
    "done",
    "asked to stop",
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
    """Write the values of a document that are set: long ones below the others."""
    wanted = list(document if names is None else names)
    below = {name for name in wanted if _is_long(document.get(name))}
    printer.fields(
        (name, _plain(name, document.get(name))) for name in wanted if name not in below
    )
    for name in wanted:
        if name in below:
            text = json.dumps(document[name], indent=2, ensure_ascii=False)
            printer.block(name, text)


def _is_long(value: object) -> bool:
    if not isinstance(value, Mapping | list) or _is_texts(value):
        return False
    return len(json.dumps(value, ensure_ascii=False)) > _LONGEST_BESIDE


def _is_texts(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(each, str) for each in value)


def _plain(name: str, value: object) -> object:
    if isinstance(value, Mapping) and value.keys() == {"count", "capped"}:
        return count(value)
    if name == "pid":  # a name, and no number
        return str(value)
    if name in _SPANS and isinstance(value, int | float):
        return length(value)
    if value is None or value in ([], {}):
        return None
    if name in _CALL:
        return json.dumps(value, ensure_ascii=False)
    return ", ".join(value) if isinstance(value, list) and _is_texts(value) else value


def _pairs(value: object) -> object:
    """Return the values of a small document on one line."""
    if not isinstance(value, Mapping):
        return value
    return ", ".join(
        f"{name} {each if isinstance(each, str) else json.dumps(each)}"
        for name, each in value.items()
    )


def draw_job(printer: Printer, job: Document) -> None:
    """Write one job with its arguments, its result and what went wrong."""
    draw_pairs(printer, job, [*_JOB, *_CALL])
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
    """Write one bulk operation; how many it could not change only where it is some."""
    told = {**bulk, "asked to stop": bulk["asked"] or None}
    told["failed"] = bulk["failed"] or None
    draw_pairs(printer, told, _BULK)
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
    for check in system["checks"]:
        printer.line(inert(f"{check['level']} {check['id']}: {check['message']}"))
        if check["hint"]:
            printer.line(inert(f"    {check['hint']}"))
    if not system["checks"]:
        printer.line("nothing is wrong")
