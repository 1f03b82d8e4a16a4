"""What jobs are called and say never reaches a terminal as more than text."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from io import StringIO
from pathlib import Path

import pytest
from django.db.models.functions import Now

from relay.cli.verbs import export
from relay.models import Attempt, History, Job, Output, Schedule, Worker
from relay.operations import Actor, cancel_job
from tests.cli.conftest import Run
from tests.operations.factory import make_job

pytestmark = pytest.mark.django_db

HOSTILE = "\x1b]0;owned\x07\x1b[2J\x9b31m\r\nnext\x7f\u202egnp\u2028end"
# Of a list or table, a block and a document.
LINES = [
    "jobs",
    "jobs --json",
    "jobs --jsonl",
    "job {job} --logs",
    "job {job} --logs --json",
    "history {job}",
    "logs {job}",
    "logs {job} --jsonl",
    "why {job}",
    "export",
    "dlq groups",
    "schedules",
    "schedules show {schedule}",
    "workers",
    "workers show {worker}",
    "audit",
    "stats",
    "top --once",
    "retry {job} --dry-run",
    "cancel {job} {job}",
]


@pytest.fixture
def rows() -> dict[str, str]:
    job = make_job(
        "failed",
        task=HOSTILE,
        args={"args": [HOSTILE], "kwargs": {HOSTILE: HOSTILE}},
        tags=[HOSTILE],
        error_class=HOSTILE,
        error_message=HOSTILE,
        result={HOSTILE: HOSTILE},
        progress=HOSTILE,
        finished_at=Now(),
    )
    Output.objects.create(job=job, attempt=1, text=HOSTILE)
    Attempt.objects.create(
        job=job,
        attempt=1,
        outcome="failed",
        error_class=HOSTILE,
        error_message=HOSTILE,
        traceback=HOSTILE,
    )
    History.objects.create(job=job, event="edited", actor=HOSTILE)
    worker = Worker.objects.create(
        name=HOSTILE,
        host=HOSTILE,
        pid=1,
        queues=["default"],
        concurrency=1,
        version=HOSTILE,
        lease_expires_at=datetime.now(UTC) + timedelta(hours=1),
    )
    schedule = Schedule(name=HOSTILE, task=HOSTILE, cron="0 7 * * *")
    Schedule.objects.bulk_create([schedule])  # which checks nothing
    waiting = make_job("queued")
    cancel_job(Actor(name="ada", source="cli", reason=HOSTILE), waiting.pk)
    return {"job": str(job.pk), "worker": str(worker.pk), "schedule": HOSTILE}


@pytest.mark.parametrize("line", LINES)
def test_nothing_that_a_terminal_would_obey_gets_through(
    line: str, relay: Run, rows: dict[str, str]
) -> None:
    result = relay(*(word.format(**rows) for word in line.split(" ")))

    for text in (result.out, result.err):
        assert text.replace("\n", "").isprintable(), line
    assert result.out or result.err


def test_a_table_for_programs_is_inert_only_where_somebody_looks() -> None:
    job = dict.fromkeys(export._COLUMNS) | {"error": HOSTILE}
    seen, kept = StringIO(), StringIO()

    export._csv(seen.write, True)(job)
    export._csv(kept.write, False)(job)

    assert seen.getvalue().replace("\n", "").isprintable()
    assert HOSTILE in kept.getvalue()


@pytest.mark.parametrize("sign", ["=", "+", "-", "@", "\t", "\n", "\uff1d"])
def test_a_table_has_no_formulas(sign: str) -> None:
    job = dict.fromkeys(export._COLUMNS) | {"error": f"{sign}1"}
    written = StringIO()

    export._csv(written.write, False)(job)

    assert f"'{sign}1" in written.getvalue()


# --- arguments that are not shown ----------------------------------------------------


def test_a_mask_is_never_taken_for_an_argument(relay: Run) -> None:
    secret = {"password": "p", "deep": [{"token": "t"}], "user": 1}
    job = make_job("failed", args={"args": [], "kwargs": secret})
    waiting = make_job("queued", args={"args": [], "kwargs": secret})

    replayed = relay("replay", job.pk, "--set", "args.user=2")
    edited = relay("jobs", "edit", waiting.pk, "--set", "args.user=2")

    assert (replayed.code, edited.code) == (2, 2)
    assert "not shown" in replayed.err
    assert Job.objects.count() == 2
    waiting.refresh_from_db()
    assert waiting.args["kwargs"] == secret


def test_what_is_set_anew_need_not_be_shown(relay: Run) -> None:
    job = make_job("failed", args={"args": [], "kwargs": {"password": "p", "user": 1}})

    [new] = relay(
        *("replay", job.pk, "--set", "args.user=2", "--set", "args.password=q", "-q")
    ).lines

    assert Job.objects.get(pk=new).args["kwargs"] == {"password": "q", "user": 2}


# --- an export that does not come to its end -----------------------------------------


def test_half_an_export_does_not_pass_for_the_whole(
    relay: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_job("failed")
    file = tmp_path / "jobs.jsonl"

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(export.Progress, "show", stop)
    result = relay("export", "--output", file)

    assert result.code == 130
    assert not file.exists()
