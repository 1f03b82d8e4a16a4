"""F16: jobs that take their process down, never end, or return what no row can hold."""

from __future__ import annotations

import base64
import json
import time
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

from tests.chaos import proc
from tests.engine import rows
from tests.worker.harness import Database, Worker, Workers, until

__all__ = ["Poison", "poisons", "strike"]

APP: Final = {"WORKER_TESTS_APP": "tests.worker.apart"}
KEYS: Final = {"one": base64.b64encode(bytes(32)).decode()}  # its tasks want one
APART: Final = "tests.worker.apart.tasks"
# Beside a job that holds the interpreter nothing else ends, so not for long.
GRACES: Final = {"TIMEOUT_GRACE": 1.0, "GRACE": 2.0}
# Deeper than Python parses, and less deep than PostgreSQL does.
DEPTH: Final = 3_000
CRASHES: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Poison:
    """One job, and how it must end.

    Attributes:
        error: the class of its error; None where it completes.
        columns: of its row.
    """

    about: str
    task: str
    args: tuple[Any, ...] = ()
    error: str | None = None
    columns: tuple[tuple[str, Any], ...] = ()


def _deadly(how: str) -> Poison:
    return Poison(about=how, task="die_by", args=(how,), error="PoisonJob")


def _endless(about: str, task: str) -> Poison:
    return Poison(
        about=about,
        task=task,
        args=(3_600,),
        error="JobTimeout",
        columns=(("timeout_ms", 500), ("max_retries", 0)),
    )


def _once(about: str, task: str, *args: Any, error: str | None = None) -> Poison:
    return Poison(
        about=about, task=task, args=args, error=error, columns=(("max_retries", 0),)
    )


def poisons(*, result_bytes: int, generations: int) -> list[Poison]:
    """Return one of each kind.

    Args:
        generations: of a fork bomb: it comes to 2 to the power of this.
    """
    return [
        *(_deadly(how) for how in ("segfault", "abort", "exit", "kill")),
        _endless("endless loop", "spin"),
        _endless("endless call into C", "hold_interpreter"),
        _once("out of memory", f"{APART}.grow", 4_096, error="MemoryLimit"),
        _once("fork bomb", f"{APART}.bomb", generations, 1.0),
        _once("huge result", "return_much", result_bytes),
        _once("huge result from apart", f"{APART}.return_much", result_bytes),
        _once("deep result", "return_nested", 100_000),
        _once("result with NUL", "orders", "return NUL"),
        _once("result that is no UTF-8", "orders", "return surrogate"),
        _once("error that is no UTF-8", "orders", "raise surrogate", error="OSError"),
    ]


def strike(
    database: Database, workers: Workers, kinds: list[Poison], *, neighbours: int
) -> list[str]:
    """Run every kind at once among jobs that must come to no harm; return what broke.

    The neighbours may not fail once: they have no retries.
    """
    worker = workers.start(
        *("-c", "4"),
        processes=2,
        environment=APP,
        TIMEOUT_GRACE=1,
        ENCRYPTION_KEYS=KEYS,
    )
    with database.session.transaction():
        jobs = {
            kind.about: database.enqueue_one(
                kind.task, *kind.args, wake=False, **dict(kind.columns)
            )
            for kind in kinds
        }
    harmless = []
    for _ in range(neighbours):
        harmless += database.enqueue("nap", 0.02, max_retries=0)
        time.sleep(0.005)
    deep = _enqueue_deep_arguments(database)
    until(lambda: _is_over(database), seconds=180, what="all jobs ended")
    after = database.enqueue_one("quick", "alive")
    database.wait_for(after)
    return [
        *_judge_poisons(database, kinds, jobs, deep),
        *_judge_neighbours(database, harmless),
        *_judge_worker(worker),
    ]


def _enqueue_deep_arguments(database: Database) -> UUID:
    """Insert what relay's own enqueue refuses."""
    args = '{"args": [' + "[" * DEPTH + "]" * DEPTH + '], "kwargs": {}}'
    (made,) = rows.add_jobs(
        database.session, args=args, task="tests.worker.tasks.quick", max_retries=0
    )
    return made


def _is_over(database: Database) -> bool:
    return not database.ask(
        "SELECT count(*) FROM relay_job "
        "WHERE state NOT IN ('completed', 'failed', 'cancelled')"
    )


def _judge_poisons(
    database: Database, kinds: list[Poison], jobs: dict[str, UUID], deep: UUID
) -> list[str]:
    found = []
    for kind in kinds:
        row = _row(database, jobs[kind.about])
        wanted = "completed" if kind.error is None else "failed"
        starts = len(database.effects_of(jobs[kind.about], "start"))
        if row["state"] != wanted or (kind.error and row["error_class"] != kind.error):
            found.append(f"{kind.about}: {_shown(row)} and not {wanted} {kind.error}")
        # One whose process another takes down first may not come to its own line.
        elif kind.error == "PoisonJob" and not 0 < starts <= CRASHES == row["crashes"]:
            found.append(f"{kind.about}: started {starts} times: {_shown(row)}")
    row = _row(database, deep)
    if (row["state"], row["error_class"]) != ("failed", "DecodeError"):
        found.append(f"deep arguments: {_shown(row)}")
    return found


def _judge_neighbours(database: Database, harmless: list[UUID]) -> list[str]:
    return [
        f"neighbour {job}: {_shown(row)}"
        for job in harmless
        if (row := _row(database, job))["state"] != "completed" or row["failures"]
    ]


def _judge_worker(worker: Worker) -> list[str]:
    if worker.process.poll() is not None:
        return [f"the worker ended with {worker.process.returncode}"]
    started = {each.pid for each in worker.tree()}
    code = worker.stop()
    left = sorted(started & proc.scan().keys())
    return [
        *([f"the worker ended with {code} on SIGTERM"] if code else []),
        *([f"processes outlived the worker: {left}"] if left else []),
    ]


def _row(database: Database, job: UUID) -> dict[str, Any]:
    """Return what became of a job; not its arguments, which may be beyond Python."""
    text = database.ask(
        "SELECT json_build_object('state', state, 'attempt', attempt, 'failures', "
        "failures, 'crashes', crashes, 'losses', losses, 'error_class', error_class, "
        "'error_message', left(error_message, 200)) FROM relay_job WHERE id = %s",
        job,
    )
    return dict(text)


def _shown(row: dict[str, Any]) -> str:
    return json.dumps(row)
