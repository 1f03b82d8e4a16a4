"""What handlers tell while they run, and how it gets into rows."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import psycopg
import pytest
from asgiref.sync import async_to_sync
from django.test import override_settings

from relay import ArgumentError, JobHandle, Progress, current_job, task
from relay.engine.claim import ClaimedJob
from relay.engine.connection import EngineConnection
from relay.engine.report import Output, write_outputs
from relay.ids import uuid7
from relay.models import Job
from relay.models import Output as OutputRow
from relay.testing import drain, perform
from relay.worker import reports as reports_module
from relay.worker.reports import Reports
from tests.engine import rows
from tests.waiting import until
from tests.worker.harness import Database, Workers

pytestmark = pytest.mark.django_db(transaction=True)

body: Callable[..., Any] = lambda: None  # noqa: E731 - replaced by each test


@task(name="tests.reports.plain", max_retries=0)
def plain() -> Any:
    return body()


@task(name="tests.reports.coroutine", max_retries=0)
async def coroutine() -> Any:
    return body()


@task(name="tests.reports.captured", max_retries=0, capture_logs=True)
def captured() -> Any:
    return body()


@task(name="tests.reports.acaptured", max_retries=0, capture_logs=True)
async def acaptured() -> Any:
    return body()


@task(name="tests.reports.failing", max_retries=1, capture_logs="failed")
def failing() -> Any:
    return body()


@task(name="tests.reports.transactional", capture_logs=True, transactional=True)
def transactional() -> Any:
    return body()


@task(name="tests.reports.printing", max_retries=0, capture_stdout=True)
def printing() -> Any:
    return body()


def run(made: Any, handler: Callable[..., Any], **options: Any) -> JobHandle[Any]:
    global body
    body = handler
    handle: JobHandle[Any] = made.using(**options).enqueue()
    drain(with_retries=True)
    return handle


def logged(handle: JobHandle[Any]) -> list[str]:
    found = OutputRow.objects.filter(job_id=handle.id).order_by("attempt")
    return list(found.values_list("text", flat=True))


class Held:
    """A worker's jobs, as its loop holds them."""

    def __init__(self, duty: EngineConnection, count: int = 1) -> None:
        self.worker_id = rows.add_worker(duty)
        self.ids = rows.hold(duty, self.worker_id, count)
        self.jobs = {job_id: self._claimed(job_id) for job_id in self.ids}
        self.session = duty
        self.news = 0
        self.reports = Reports(self._count)

    def _count(self) -> None:
        self.news += 1

    def _claimed(self, job_id: UUID) -> ClaimedJob:
        values = dict.fromkeys(ClaimedJob._fields)
        args = {"args": [], "kwargs": {}}
        return ClaimedJob(**{**values, "id": job_id, "attempt": 1, "args": args})  # type: ignore[arg-type] # only what is looked at

    def tell(self, percent: float, *, place: int = 0, attempt: int = 1) -> None:
        self.reports.progress(self.ids[place], attempt, Progress(percent=percent))

    def write(self, *ended: UUID) -> None:
        self.reports.write(self.session, self.worker_id, self.jobs, ended=ended)

    def progress(self, place: int = 0) -> Any:
        return rows.job_row(self.session, self.ids[place])["progress"]


# --- progress ------------------------------------------------------------------------


@pytest.mark.parametrize("made", [plain, coroutine])
def test_the_last_progress_of_a_job_is_in_its_row(made: Any) -> None:
    def tell() -> None:
        for done in range(1, 4):
            current_job().progress(done, 3, message=f"row {done}")

    handle = run(made, tell)

    wanted = Progress(percent=100.0, done=3, total=3, message="row 3")
    assert handle.progress == wanted
    assert async_to_sync(handle.aprogress)() == wanted
    assert handle.state == "completed"


def test_a_job_that_tells_nothing_has_no_progress() -> None:
    assert run(plain, lambda: None).progress is None


def test_a_progress_that_is_no_number_fails_the_handler_that_tells_it() -> None:
    handle = run(plain, lambda: current_job().progress(-1))

    assert handle.state == "failed"
    assert Job.objects.get(pk=handle.id).error_class == ArgumentError.__name__


def test_a_handler_without_a_row_may_tell_its_progress() -> None:
    global body
    body = lambda: current_job().progress(1)  # noqa: E731 - as above

    assert perform(plain).state == "completed"


def test_progress_is_written_at_most_once_in_a_while(
    duty: EngineConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1_000.0
    clock = SimpleNamespace(monotonic=lambda: now)
    monkeypatch.setattr(reports_module, "time", clock)
    held = Held(duty)
    held.tell(1)
    held.tell(2)
    assert held.news == 1
    assert held.reports.seconds_left() == 0
    held.write()
    assert held.progress() == {"percent": 2}

    held.tell(3)
    held.write()

    assert 0 < held.reports.seconds_left() <= reports_module.WRITE_SECONDS
    assert held.progress() == {"percent": 2}
    now += reports_module.WRITE_SECONDS
    assert held.reports.seconds_left() == 0
    held.write()
    assert held.progress() == {"percent": 3}
    assert held.reports.seconds_left() == float("inf")


def test_the_last_progress_is_written_before_the_job_ends(
    duty: EngineConnection,
) -> None:
    held = Held(duty, 2)
    held.tell(1)
    held.write()

    held.tell(2)
    held.tell(2, place=1)
    held.write(held.ids[0])

    assert held.progress(0) == {"percent": 2}
    assert held.progress(1) is None


def test_progress_under_another_s_token_changes_nothing(
    duty: EngineConnection,
) -> None:
    held = Held(duty, 3)
    held.tell(1, attempt=2)
    held.tell(1, place=1)
    duty.execute(
        "UPDATE relay_job SET worker_id = %s WHERE id = %s", (uuid7(), held.ids[1])
    )
    held.tell(1, place=2)
    duty.execute("UPDATE relay_job SET state = 'failed' WHERE id = %s", (held.ids[2],))

    held.write()

    assert [held.progress(place) for place in range(3)] == [None, None, None]


def test_progress_of_a_job_that_is_not_held_is_dropped(duty: EngineConnection) -> None:
    held = Held(duty)
    held.jobs.clear()
    held.tell(1)

    held.write()

    assert held.progress() is None
    assert not held.reports.has_news


def test_a_row_that_somebody_locks_holds_up_no_progress(
    duty: EngineConnection, database: Database
) -> None:
    held = Held(duty, 2)
    held.tell(1)
    held.tell(1, place=1)

    with psycopg.connect(database.dsn) as other:
        other.execute("SELECT FROM relay_job WHERE id = %s FOR UPDATE", (held.ids[0],))
        held.write()

    assert [held.progress(0), held.progress(1)] == [None, {"percent": 1}]


def test_progress_is_kept_while_the_database_is_away(duty: EngineConnection) -> None:
    held = Held(duty)
    held.tell(1)
    held.reports.output(Output(held.ids[0], 1, "a line"))
    broken = EngineConnection.connect(duty.info.dsn, autocommit=True)
    broken.close()
    for _ in range(2):
        with pytest.raises(psycopg.OperationalError):
            held.reports.write(broken, held.worker_id, held.jobs, ended=[])

    held.write(held.ids[0])

    assert held.progress() == {"percent": 1}
    assert OutputRow.objects.get().text == "a line"


# --- logs ----------------------------------------------------------------------------


@pytest.mark.parametrize("made", [captured, acaptured])
def test_what_a_handler_logs_is_kept_beside_its_job(made: Any) -> None:
    def log() -> None:
        logging.getLogger("shop").warning("paid %d", 42)
        current_job().log.info("sent")

    handle = run(made, log)

    [text] = logged(handle)
    assert "WARNING shop: paid 42\n" in text
    assert text.endswith("INFO relay.job: sent")


def test_a_transactional_task_has_its_log_and_its_last_progress() -> None:
    def tell() -> None:
        current_job().progress(100)
        current_job().log.info("sent")

    handle = run(transactional, tell)

    assert handle.state == "completed"
    assert handle.progress == Progress(percent=100.0)
    assert len(logged(handle)) == 1


def test_a_handler_that_logs_nothing_has_no_log() -> None:
    assert logged(run(captured, lambda: None)) == []


def test_without_being_asked_for_no_log_is_kept() -> None:
    def log() -> None:
        logging.getLogger("shop").warning("paid")
        raise ValueError("bad")

    assert logged(run(plain, log)) == []


@pytest.mark.parametrize("made", [captured, acaptured])
def test_an_attempt_that_breaks_off_leaves_no_capture_behind(made: Any) -> None:
    class Exits(Exception):
        def __str__(self) -> str:
            raise SystemExit

    def log() -> None:
        raise Exits

    handlers = list(logging.getLogger().handlers)
    handle = run(made, log)

    assert handle.state == "failed"
    assert logging.getLogger().handlers == handlers


def test_each_attempt_that_fails_has_its_log() -> None:
    def log() -> None:
        logging.getLogger("shop").warning("attempt %d", current_job().attempt)
        raise ValueError("bad")

    handle = run(failing, log)

    assert handle.state == "failed"
    assert ["attempt 1" in text for text in logged(handle)] == [True, False]
    assert ["attempt 2" in text for text in logged(handle)] == [False, True]


def test_of_attempts_that_complete_no_log_is_kept_where_failures_are_asked_for() -> (
    None
):
    handle = run(failing, lambda: logging.getLogger("shop").warning("paid"))

    assert handle.state == "completed"
    assert logged(handle) == []


def test_the_settings_say_what_is_kept_of_tasks_that_do_not() -> None:
    with override_settings(RELAY={"CAPTURE_LOGS": True}):
        handle = run(plain, lambda: logging.getLogger("shop").warning("paid"))

    assert len(logged(handle)) == 1


def test_prints_are_kept_where_the_task_asks_for_them(
    capsys: pytest.CaptureFixture[str],
) -> None:
    handle = run(printing, lambda: print("paid"))  # noqa: T201 - what is tested

    [text] = logged(handle)
    assert text.endswith("PRINT stdout: paid")
    assert capsys.readouterr().out == "paid\n"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"capture_logs": "always"}, "capture_logs='always'"),
        ({"capture_logs": 1}, "capture_logs=1"),
        ({"capture_logs": None, "capture_stdout": True}, "capture_logs=None"),
        ({"capture_stdout": "yes"}, "capture_stdout='yes'"),
        ({"capture_stdout": True, "capture_logs": False}, "capture_logs is False"),
    ],
)
def test_options_of_logs_that_make_no_sense_are_refused(
    options: dict[str, Any], said: str
) -> None:
    with pytest.raises(ArgumentError, match=said):
        task(**options)


def test_a_log_under_another_s_token_is_not_kept(duty: EngineConnection) -> None:
    held = Held(duty, 2)
    stale = [Output(held.ids[0], 2, "stale"), Output(held.ids[1], 1, "sound")]

    write_outputs(duty, held.worker_id, stale)
    write_outputs(duty, held.worker_id, stale)

    assert OutputRow.objects.get().text == "sound"


def test_the_logs_of_many_attempts_are_written_together(
    duty: EngineConnection,
) -> None:
    held = Held(duty, 120)
    for job_id in held.ids:
        held.reports.output(Output(job_id, 1, "a line"))

    held.write(*held.ids)

    assert OutputRow.objects.count() == 120
    assert not held.reports.has_news


# --- in a real worker ----------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("name", ["tell_progress", "atell_progress"])
def test_progress_is_seen_while_the_job_runs_in_a_transaction(
    database: Database, workers: Workers, tmp_path: Path, name: str
) -> None:
    workers.start()
    door = tmp_path / "door"
    job_id = database.enqueue_one(name, str(door))
    handle = JobHandle[Any](job_id, name)

    until(lambda: handle.progress == Progress(percent=50.0, message="half way"))

    assert database.job(job_id)["state"] == "running"
    door.touch()
    database.wait_for(job_id)
    assert handle.progress == Progress(percent=100.0)


@pytest.mark.slow
def test_the_log_of_a_job_is_there_when_its_end_is(
    database: Database, workers: Workers
) -> None:
    workers.start()
    ids = database.enqueue("log_and_fail", count=5, max_retries=0)

    for job_id in ids:
        database.wait_for(job_id, "failed")
        [text] = OutputRow.objects.filter(job_id=job_id).values_list("text", flat=True)
        assert "INFO relay.job: about to fail" in text
        assert "PRINT stdout: printed" in text
        assert "ERROR" not in text
