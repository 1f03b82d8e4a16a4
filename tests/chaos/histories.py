"""The histories of a run: how they are written, dumped and read again.

The checker sees nothing but these files. What concerns a single job is spread over
files by the last digit of its id, so that a large run can be judged in parts: in
names of files a "?" stands for the digit. Times are seconds: `at` and `began` by the
wall clock, which the database of a run shares with everybody, `mono` by the
monotonic clock.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import psycopg

__all__ = [
    "RECORD_TRANSITIONS",
    "TRANSITIONS_AFTER",
    "Complaint",
    "Effect",
    "Entry",
    "Fault",
    "Histories",
    "Job",
    "Occurrence",
    "ProcessEvent",
    "Transition",
    "WorkerRow",
    "Written",
    "dump",
    "read_parts",
    "write_lines",
]

DIGITS: Final = "0123456789abcdef"

# Installed by the harness in its own database only. What a write put into the row
# says which attempt made it: every task of the workload answers, and fails, with
# the token of its attempt. Only a changed error message is this write's own.
RECORD_TRANSITIONS: Final = r"""
CREATE TABLE chaos_transition (
    seq bigserial PRIMARY KEY,
    job uuid NOT NULL,
    old text,
    new text,
    old_attempt int,
    attempt int,
    old_worker uuid,
    worker uuid,
    at timestamptz NOT NULL DEFAULT clock_timestamp(),
    backend int NOT NULL DEFAULT pg_backend_pid(),
    token text,
    charge text,
    error text
);
-- Its deferred trigger draws the COMMIT out, for kills to meet it.
CREATE TABLE chaos_written (job uuid NOT NULL, attempt int NOT NULL);
CREATE FUNCTION chaos_dawdle() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_sleep(0.03 * random());
    RETURN NULL;
END
$$;
CREATE CONSTRAINT TRIGGER chaos_dawdle AFTER INSERT ON chaos_written
DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION chaos_dawdle();
CREATE FUNCTION chaos_record() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    token text;
BEGIN
    IF TG_OP = 'INSERT' THEN
        INSERT INTO chaos_transition (job, new, attempt, worker)
        VALUES (NEW.id, NEW.state, NEW.attempt, NEW.worker_id);
    ELSIF TG_OP = 'DELETE' THEN
        INSERT INTO chaos_transition (job, old, old_attempt, old_worker)
        VALUES (OLD.id, OLD.state, OLD.attempt, OLD.worker_id);
    ELSIF OLD.state IN ('completed', 'failed', 'cancelled')
        OR (OLD.state, OLD.attempt, OLD.worker_id, OLD.result)
            IS DISTINCT FROM (NEW.state, NEW.attempt, NEW.worker_id, NEW.result)
    THEN
        IF NEW.state = 'completed' THEN
            token := substring(NEW.result::text from '\d+ [0-9a-f-]{36}');
        ELSIF NEW.error_message IS DISTINCT FROM OLD.error_message THEN
            token := substring(NEW.error_message from '\d+ [0-9a-f-]{36}');
        END IF;
        INSERT INTO chaos_transition
            (job, old, new, old_attempt, attempt, old_worker, worker, token, charge,
            error)
        VALUES (NEW.id, OLD.state, NEW.state, OLD.attempt, NEW.attempt,
            OLD.worker_id, NEW.worker_id, token,
            CASE WHEN NEW.losses > OLD.losses THEN 'loss'
                WHEN NEW.crashes > OLD.crashes THEN 'crash'
                WHEN NEW.failures > OLD.failures THEN 'failure' END,
            NEW.error_class);
    END IF;
    RETURN NULL;
END
$$;
CREATE TRIGGER chaos_record AFTER INSERT OR UPDATE OR DELETE ON relay_job
FOR EACH ROW EXECUTE FUNCTION chaos_record();
"""

TRANSITIONS_AFTER: Final = """
SELECT seq, job::text, old, new, old_attempt, attempt, old_worker::text,
    worker::text, extract(epoch FROM at)::float8 AS at, backend, token, charge, error
FROM chaos_transition WHERE seq > %(seq)s ORDER BY seq
"""

_JOBS = """
SELECT id::text, task, state, attempt, failures, crashes, losses, max_retries,
    args->'kwargs'->>'key' AS key, schedule_id::text AS schedule,
    extract(epoch FROM occurrence_at)::float8 AS due_at
FROM relay_job ORDER BY id
"""

_WORKERS = """
SELECT id::text, name, pid, state, extract(epoch FROM started_at)::float8 AS began
FROM relay_worker ORDER BY started_at
"""

_OCCURRENCES = """
SELECT schedule_id::text AS schedule, extract(epoch FROM due_at)::float8 AS due_at,
    state, job_id::text AS job, count,
    extract(epoch FROM until_at)::float8 AS until_at
FROM relay_occurrence ORDER BY schedule_id, due_at
"""


# By transactional jobs: as often as is found there, they took effect.
_WRITTEN: Final = "SELECT job::text, attempt FROM chaos_written ORDER BY job, attempt"


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """What a producer knows of one key: its last word on it."""

    key: str
    word: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """One line that a running task wrote."""

    phase: str
    job: str
    attempt: int
    worker: str
    pid: int
    mono: float
    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Transition:
    """One write to a job's row.

    Attributes:
        token: the attempt that wrote, where it says so.
        charge: the budget it was charged to: failure, crash, loss, or none.
    """

    seq: int
    job: str
    old: str | None
    new: str | None
    old_attempt: int | None = None
    attempt: int | None = None
    old_worker: str | None = None
    worker: str | None = None
    at: float = 0.0
    backend: int = 0
    token: str | None = None
    charge: str | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A job's row as the run left it."""

    id: str
    task: str
    state: str
    key: str | None = None
    attempt: int = 1
    failures: int = 0
    crashes: int = 0
    losses: int = 0
    max_retries: int = 25
    schedule: str | None = None
    due_at: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerRow:
    """A row of relay_worker as the run left it."""

    id: str
    name: str
    pid: int
    state: str
    began: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Occurrence:
    """A row of relay_occurrence as the run left it."""

    schedule: str
    due_at: float
    state: str
    job: str | None
    count: int = 1
    until_at: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """A row that a transactional job wrote to the database."""

    job: str
    attempt: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One fault that struck. `pids`: the children that run jobs there."""

    kind: str
    victim: str
    pids: tuple[int, ...]
    began: float
    ended: float
    mono_began: float
    mono_ended: float
    leases: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessEvent:
    """What the supervisor saw of a process it owns.

    Attributes:
        event: `exit` (a parent or scheduler ended), `orphan` (a process went on after
            its parent's death), `seen` (when a child process was last alive).
        expected: the harness had killed it or asked it to stop.
        seconds: for an expected exit, how long after the signal it came.
    """

    event: str
    name: str
    pid: int
    mono: float
    code: int | None = None
    expected: bool = True
    seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Complaint:
    """What a log holds that no fault explains: whose log, what, and how often."""

    source: str
    text: str
    count: int


@dataclass(slots=True, kw_only=True)
class Histories:
    """Everything the checker may know about a run."""

    ledger: list[Entry] = field(default_factory=list)
    effects: list[Effect] = field(default_factory=list)
    transitions: list[Transition] = field(default_factory=list)
    jobs: list[Job] = field(default_factory=list)
    workers: list[WorkerRow] = field(default_factory=list)
    occurrences: list[Occurrence] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    processes: list[ProcessEvent] = field(default_factory=list)
    complaints: list[Complaint] = field(default_factory=list)
    written: list[Written] = field(default_factory=list)
    # Wall-clock times between which schedules had to fire; None: there were none.
    scheduled: tuple[float, float] | None = None
    lease_seconds: float = 1.0
    grace_seconds: float = 1.0


def write_lines(path: Path, rows: Iterable[Any]) -> None:
    """Write one JSON document per line; rows are dicts or the dataclasses above."""
    with path.open("w", encoding="utf-8") as file:
        for row in rows:
            document = row if isinstance(row, dict) else asdict(row)
            file.write(json.dumps(document) + "\n")


def dump(connection: psycopg.Connection[Any], folder: Path) -> None:
    """Write down what the database of a finished run holds."""
    for name, query in (
        ("transitions", TRANSITIONS_AFTER),
        ("jobs", _JOBS),
        ("written", _WRITTEN),
    ):
        digit = "right(id, 1)" if name == "jobs" else "right(job, 1)"
        with ExitStack() as files:
            parts = {
                ord(part): files.enter_context(
                    (folder / f"{name}-{part}.jsonl").open("wb")
                )
                for part in DIGITS
            }
            for line in _copy(connection, f"{digit} || row_to_json(row)", query):
                parts[line[0]].write(line[1:])
    for name, query in (("workers", _WORKERS), ("occurrences", _OCCURRENCES)):
        with (folder / f"{name}.jsonl").open("wb") as file:
            file.writelines(_copy(connection, "row_to_json(row)", query))


def _copy(
    connection: psycopg.Connection[Any], line: str, query: str
) -> Iterator[bytes | bytearray | memoryview]:
    """Yield the rows of a query as lines of JSON, few of them in memory at once."""
    # No document holds these two characters, so none is quoted.
    statement = (
        f"COPY (SELECT {line} FROM ({query}) AS row) TO STDOUT "
        "(FORMAT csv, DELIMITER E'\\x02', QUOTE E'\\x01')"
    )
    with connection.cursor().copy(statement.encode(), {"seq": 0}) as rows:
        yield from rows


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    if path.exists():
        with path.open(encoding="utf-8") as file:
            for line in file:
                yield json.loads(line)


def _read_ledger(folder: Path) -> list[Entry]:
    last: dict[str, str] = {}
    for path in sorted(folder.glob("ledger-*.txt")):
        with path.open(encoding="ascii") as file:
            for line in file:
                word, key, _ = line.split()
                last[key] = word
    # A try without an answer: the producer's end is all that is known.
    return [
        Entry(key=key, word="unknown" if word == "try" else word)
        for key, word in last.items()
    ]


def _read_effects(path: Path) -> list[Effect]:
    if not path.exists():
        return []
    found = []
    with path.open(encoding="ascii") as file:
        for line in file:
            phase, job, attempt, worker, pid, mono, at = line.split()
            found.append(
                Effect(
                    phase=phase,
                    job=job,
                    attempt=int(attempt),
                    worker=worker,
                    pid=int(pid),
                    mono=float(mono),
                    at=float(at),
                )
            )
    return found


def _read_common(folder: Path) -> Histories:
    """Read what concerns no single job."""
    run = next(_lines(folder / "run.jsonl"))
    scheduled = run["scheduled"]
    return Histories(
        ledger=_read_ledger(folder),
        workers=[WorkerRow(**row) for row in _lines(folder / "workers.jsonl")],
        occurrences=[Occurrence(**row) for row in _lines(folder / "occurrences.jsonl")],
        faults=[
            Fault(**{**row, "pids": tuple(row["pids"])})
            for row in _lines(folder / "faults.jsonl")
        ],
        processes=[ProcessEvent(**row) for row in _lines(folder / "processes.jsonl")],
        complaints=[Complaint(**row) for row in _lines(folder / "complaints.jsonl")],
        scheduled=None if scheduled is None else (scheduled[0], scheduled[1]),
        lease_seconds=run["lease_seconds"],
        grace_seconds=run["grace_seconds"],
    )


def read_parts(folder: Path) -> Iterator[Histories]:
    """Read a run's folder: sixteen histories of one sixteenth of the jobs each."""
    common = _read_common(folder)
    for part in DIGITS:

        def lines(name: str, part: str = part) -> Iterator[dict[str, Any]]:
            return _lines(folder / f"{name}-{part}.jsonl")

        yield replace(
            common,
            effects=_read_effects(folder / f"effects-{part}.txt"),
            transitions=[Transition(**row) for row in lines("transitions")],
            jobs=[Job(**row) for row in lines("jobs")],
            written=[Written(**row) for row in lines("written")],
        )
