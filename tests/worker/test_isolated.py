"""Isolated tasks: what runs a job may die, and only that attempt with it."""

from __future__ import annotations

import base64
import os
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from django.test import override_settings

from relay.engine import control
from tests.chaos import proc
from tests.worker.apart import tasks
from tests.worker.harness import SHORT_LEASE, Database, Worker, Workers, until

pytestmark = pytest.mark.slow

# docs/explanation/cancelling.md promises 2 s; this is for a machine at its slowest. The
# handlers here would go on for longer.
WITHIN_SECONDS = 40.0
KEYS = {"one": base64.b64encode(bytes(32)).decode()}
APP = {"WORKER_TESTS_APP": "tests.worker.apart"}
# How long a handler has to end, on a slow machine, before its process is killed.
PATIENT = {"WORKER_TESTS_APART_GRACE": "30"}


def start(
    workers: Workers,
    *arguments: str,
    environment: Mapping[str, str] | None = None,
    **options: Any,
) -> Worker:
    options.setdefault("ENCRYPTION_KEYS", KEYS)
    environment = {**APP, **(environment or {})}
    return workers.start(*arguments, environment=environment, **options)


def enqueue(database: Database, task: str, *args: Any, **columns: Any) -> UUID:
    return database.enqueue_one(f"tests.worker.apart.tasks.{task}", *args, **columns)


def attempts_of(database: Database, job: UUID) -> list[tuple[str, str | None]]:
    return database.session.execute(
        "SELECT outcome, error_class FROM relay_attempt WHERE job_id = %s "
        "ORDER BY attempt",
        (job,),
    ).fetchall()


def is_running(pid: object) -> bool:
    return pid in proc.scan()


def pid_of(database: Database, job: UUID, *, start: int = 1) -> int:
    """Return the process in which the job started so often."""
    return database.wait_for_start(job, count=start).pid


def open_files(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))


def wait_for_no_zombies(worker: Worker) -> None:
    until(
        lambda: all(
            process.state != "Z"
            for process in proc.descendants_of(worker.pid, proc.scan(zombies=True))
        ),
        what="no zombies",
    )


@pytest.mark.parametrize("task", ["quick", "aquick"])
def test_a_handler_runs_in_a_process_apart_and_its_result_comes_back(
    task: str, database: Database, workers: Workers
) -> None:
    worker = start(workers, "-c", "2")

    job = enqueue(database, task, {"a": [1, "é", None]})
    database.wait_for(job)

    assert database.job(job)["result"] == {"a": [1, "é", None]}
    effect = database.effects_of(job, "start")[0]
    assert effect.pid not in (worker.pid, *worker.child_pids())
    assert worker.stop() == 0


@pytest.mark.parametrize("how", ["segfault", "abort", "exit", "kill"])
def test_a_crash_is_charged_to_its_attempt_alone(
    how: str, database: Database, workers: Workers, tmp_path: Path
) -> None:
    worker = start(workers, "-c", "4")
    children = worker.child_pids()
    neighbours = [
        database.enqueue_one("gate", str(tmp_path / "open")),
        enqueue(database, "gate", str(tmp_path / "open")),
    ]
    for neighbour in neighbours:
        database.wait_for_start(neighbour)

    job = enqueue(database, "die", how, 1)
    database.wait_for(job)
    (tmp_path / "open").touch()
    for neighbour in neighbours:
        database.wait_for(neighbour)

    row = database.job(job)
    assert (row["attempt"], row["crashes"], row["failures"]) == (2, 1, 0)
    assert attempts_of(database, job) == [("crash", "WorkerDied")]
    assert worker.child_pids() == children
    for neighbour in neighbours:
        row = database.job(neighbour)
        assert (row["attempt"], row["crashes"]) == (1, 0)


def test_a_job_that_crashes_again_and_again_fails_as_poison(
    database: Database, workers: Workers
) -> None:
    start(workers, "-c", "2")

    job = enqueue(database, "die", "kill")
    database.wait_for(job, "failed")

    row = database.job(job)
    assert (row["crashes"], row["failures"]) == (3, 0)
    assert row["error_class"] == "PoisonJob"
    assert row["error_message"] == "the isolated process died of SIGKILL"
    assert row["expires_at"] is not None
    assert attempts_of(database, job) == [("crash", "WorkerDied")] * 3
    events = database.session.execute(
        "SELECT event FROM relay_history WHERE job_id = %s ORDER BY id", (job,)
    ).fetchall()
    assert events == [("crash",)] * 3


@pytest.mark.parametrize("task", ["grow", "agrow"])
def test_a_job_over_its_memory_limit_fails_and_its_neighbours_live(
    task: str, database: Database, workers: Workers, tmp_path: Path
) -> None:
    start(workers, "-c", "3")
    neighbour = enqueue(database, "gate", str(tmp_path / "open"))
    database.wait_for_start(neighbour)

    within = enqueue(database, task, 40)
    database.wait_for(within)
    beyond = enqueue(database, task, 80, max_retries=0)
    database.wait_for(beyond, "failed")
    (tmp_path / "open").touch()
    database.wait_for(neighbour)

    row = database.job(beyond)
    assert (row["error_class"], row["crashes"]) == ("MemoryLimit", 0)
    assert "67,108,864 bytes" in row["error_message"]


def test_a_process_whose_handlers_leave_memory_behind_is_replaced(
    database: Database, workers: Workers
) -> None:
    start(workers, "-c", "1")

    jobs = [enqueue(database, "leak", 20) for _ in range(6)]
    for job in jobs:
        database.wait_for(job)

    database.assert_nothing_charged()
    assert len({database.effects_of(job, "start")[0].pid for job in jobs}) == 3


def test_a_process_runs_so_many_jobs_and_is_replaced(
    database: Database, workers: Workers
) -> None:
    worker = start(workers, "-c", "1")

    jobs = [enqueue(database, "three_each") for _ in range(7)]
    for job in jobs:
        database.wait_for(job)

    pids = [database.effects_of(job, "start")[0].pid for job in jobs]
    assert sorted(pids.count(pid) for pid in set(pids)) == [1, 3, 3]
    wait_for_no_zombies(worker)


def test_no_more_processes_than_slots_are_kept(
    database: Database, workers: Workers
) -> None:
    worker = start(workers, "-c", "2")
    before = len(worker.tree())

    for _ in range(3):
        for task in ("quick", "aquick", "three_each", "use_orm"):
            database.wait_for(enqueue(database, task))

    until(lambda: len(worker.tree()) <= before + 2, what="two processes at most")


@pytest.mark.parametrize("notify", [True, False], ids=["notify", "poll"])
@pytest.mark.parametrize(
    ("task", "args"),
    [
        ("nap", [600]),
        ("anap", [600]),
        ("hold_interpreter", []),
        ("never_stop", []),
        ("run_program", []),
    ],
)
def test_a_running_job_is_cancelled_within_two_seconds(
    task: str,
    args: list[object],
    notify: bool,
    database: Database,
    workers: Workers,
    tmp_path: Path,
) -> None:
    worker = start(workers, "-c", "2", NOTIFY=notify, LEASE=30)
    neighbour = enqueue(database, "gate", str(tmp_path / "open"))
    job = enqueue(database, task, *args)
    for each in (job, neighbour):
        database.wait_for_start(each)

    control.cancel(job, actor="ada", using="default")
    database.wait_for(job, "cancelled", seconds=WITHIN_SECONDS)
    (tmp_path / "open").touch()
    database.wait_for(neighbour)

    row = database.job(job)
    assert (row["attempt"], row["failures"], row["crashes"]) == (1, 0, 0)
    assert row["expires_at"] is not None
    assert attempts_of(database, job) == [("cancel", "Cancelled")]
    effect = database.effects_of(job, "start")[0]
    for pid in [effect.pid, effect.said]:
        until(lambda pid=pid: not is_running(pid), what=f"{pid} gone")
    database.wait_for(enqueue(database, "quick"))
    assert worker.stop() == 0


@pytest.mark.parametrize("grace", [0, 5], ids=["no grace", "grace"])
@pytest.mark.parametrize(
    ("task", "is_cleaned"),
    [
        ("hold_interpreter_for_too_long", False),
        ("sleep_for_too_long", True),
        ("asleep_for_too_long", True),
    ],
)
def test_a_job_past_its_timeout_is_ended_within_a_second_and_costs_no_child(
    task: str,
    is_cleaned: bool,
    grace: int,
    database: Database,
    workers: Workers,
    tmp_path: Path,
) -> None:
    worker = start(
        workers,
        "-c",
        "2",
        environment=PATIENT if is_cleaned else {},
        TIMEOUT_GRACE=grace,
        CANCEL_GRACE=grace,
    )
    children = worker.child_pids()
    neighbour = enqueue(database, "gate", str(tmp_path / "open"))
    database.wait_for_start(neighbour)

    job = enqueue(database, task, timeout_ms=1_500, max_retries=0)
    started = database.wait_for_start(job)
    database.wait_for(job, "failed")
    (tmp_path / "open").touch()
    database.wait_for(neighbour)

    row = database.job(job)
    assert (row["error_class"], row["failures"], row["crashes"]) == ("JobTimeout", 1, 0)
    assert bool(database.effects_of(job, "cleaned")) is is_cleaned
    if not is_cleaned:
        until(lambda: not is_running(started.pid))
    assert worker.child_pids() == children
    assert database.job(neighbour)["attempt"] == 1


def test_a_soft_timeout_reaches_a_handler_that_sleeps(
    database: Database, workers: Workers
) -> None:
    start(workers, "-c", "1")

    job = enqueue(database, "stop_softly", timeout_ms=60_000)
    database.wait_for(job)

    assert database.job(job)["result"] == "in time"


def test_a_job_is_cancelled_while_its_worker_drains(
    database: Database, workers: Workers
) -> None:
    worker = start(workers, "-c", "2", "--grace", "60", LEASE=30)
    job = enqueue(database, "hold_interpreter")
    database.wait_for_start(job)
    worker.send(signal.SIGTERM)
    until(lambda: "draining" in worker.text())

    control.cancel(job, actor="ada", using="default")
    database.wait_for(job, "cancelled", seconds=WITHIN_SECONDS)

    assert worker.wait() == 0


def test_a_drain_lets_isolated_jobs_finish(
    database: Database, workers: Workers, tmp_path: Path
) -> None:
    worker = start(workers, "-c", "2")
    job = enqueue(database, "gate", str(tmp_path / "open"))
    apart = pid_of(database, job)

    # As an init system does that signals every process of a service.
    for process in worker.tree():
        os.kill(process.pid, signal.SIGTERM)
    worker.send(signal.SIGTERM)
    until(lambda: "draining" in worker.text())
    (tmp_path / "open").touch()

    assert worker.wait() == 0
    assert database.job(job)["state"] == "completed"
    assert not is_running(apart)
    database.assert_nothing_charged()


def test_what_outlives_the_grace_is_killed_and_released_uncharged(
    database: Database, workers: Workers
) -> None:
    worker = start(workers, "-c", "3", "--grace", "0.5", LEASE=30)
    jobs = [
        enqueue(database, "run_program"),
        enqueue(database, "hold_interpreter"),
        enqueue(database, "anap", 600),
    ]
    started = [database.wait_for_start(job) for job in jobs]

    assert worker.stop() == 0

    for job in jobs:
        row = database.job(job)
        assert (row["state"], row["attempt"], row["started_at"]) == ("queued", 1, None)
    database.assert_nothing_charged()
    for pid in [*(effect.pid for effect in started), started[0].said]:
        until(lambda pid=pid: not is_running(pid), what=f"{pid} gone")


@pytest.mark.parametrize("victim", ["child", "worker"])
def test_what_kills_a_child_takes_its_isolated_processes_along(
    victim: str, database: Database, workers: Workers
) -> None:
    worker = start(workers, "-c", "2")
    jobs = [enqueue(database, "run_program"), enqueue(database, "hold_interpreter")]
    started = [database.wait_for_start(job) for job in jobs]
    tree = worker.tree()

    os.kill(
        worker.pid if victim == "worker" else worker.child_pids()[0], signal.SIGKILL
    )

    for pid in [*(effect.pid for effect in started), started[0].said]:
        until(lambda pid=pid: not is_running(pid), what=f"{pid} gone")
    if victim == "worker":
        until(lambda: not any(proc.is_same(process) for process in tree))
    else:
        again = [database.wait_for_start(job, count=2) for job in jobs]
        assert [database.job(job)["crashes"] for job in jobs] == [1, 1]
        assert all(effect.pid not in {s.pid for s in started} for effect in again)


def test_a_job_whose_isolated_process_is_killed_runs_again(
    database: Database, workers: Workers, tmp_path: Path
) -> None:
    worker = start(workers, "-c", "2")
    job = enqueue(database, "gate", str(tmp_path / "open"))

    os.kill(pid_of(database, job), signal.SIGKILL)
    database.wait_for_start(job, count=2)
    (tmp_path / "open").touch()
    database.wait_for(job)

    assert attempts_of(database, job) == [("crash", "WorkerDied")]
    wait_for_no_zombies(worker)


def test_an_idle_process_that_was_killed_costs_no_job_anything(
    database: Database, workers: Workers
) -> None:
    start(workers, "-c", "1")
    first = enqueue(database, "quick")
    database.wait_for(first)
    idle = pid_of(database, first)

    os.kill(idle, signal.SIGKILL)
    until(lambda: not is_running(idle))
    second = enqueue(database, "quick")
    database.wait_for(second)

    assert pid_of(database, second) != idle
    database.assert_nothing_charged()


def test_without_its_nursery_a_child_is_replaced(
    database: Database, workers: Workers, tmp_path: Path
) -> None:
    worker = start(workers, "-c", "3")
    child = worker.child_pids()[0]
    neighbour = database.enqueue_one("gate", str(tmp_path / "open"))
    running = enqueue(database, "run_program")
    database.wait_for_start(neighbour)
    started = database.wait_for_start(running)

    killing = enqueue(database, "kill_the_nursery")
    for pid in [started.pid, started.said]:
        until(lambda pid=pid: not is_running(pid), what=f"{pid} gone")
    (tmp_path / "open").touch()
    database.wait_for(killing)
    database.wait_for(neighbour)

    assert database.job(killing)["crashes"] == 1
    assert database.job(neighbour)["attempt"] == 1
    until(lambda: worker.child_pids() not in ([], [child]), what="a new child")


def test_a_worker_that_cannot_renew_kills_isolated_jobs_before_others_start_them(
    database: Database, workers: Workers
) -> None:
    worker = start(workers, "-c", "1", LEASE=SHORT_LEASE)
    job = enqueue(database, "beat", 2_000, 0.02)
    first = database.wait_for_start(job)

    os.kill(worker.keeper_pid(), signal.SIGSTOP)
    start(workers, "-c", "1", LEASE=SHORT_LEASE)
    second = database.wait_for_start(job, count=2)

    until(lambda: not is_running(first.pid))
    beats = database.effects_of(job, "beat")
    assert max(beat.at for beat in beats if beat.pid == first.pid) < second.at
    database.assert_nothing_charged()


def test_nothing_leaks_as_processes_crash_are_killed_and_replaced(
    database: Database, workers: Workers
) -> None:
    worker = start(workers, "-c", "2", CRASH_LIMIT=2)
    child = worker.child_pids()[0]

    def files() -> tuple[int, list[int]]:
        nursery = [
            open_files(process.pid)
            for process in worker.tree()
            if process.parent == child
        ]
        return open_files(child), nursery

    def go_round() -> None:
        jobs = [enqueue(database, "die", "kill", 1) for _ in range(4)]
        jobs += [enqueue(database, "three_each") for _ in range(7)]
        for job in jobs:
            database.wait_for(job)
        napping = [enqueue(database, "never_stop") for _ in range(2)]
        for job in napping:
            database.wait_for_start(job)
            control.cancel(job, actor="ada", using="default")
            database.wait_for(job, "cancelled")
        database.wait_for(enqueue(database, "quick"))
        database.wait_for(enqueue(database, "quick"))
        wait_for_no_zombies(worker)

    go_round()
    go_round()
    before = files()
    go_round()

    # What is made or ended at this moment has a file more or less.
    until(lambda: files() == before, what=f"{before} files, as before")


def test_connections_are_kept_and_clean_and_never_shared(
    database: Database, workers: Workers
) -> None:
    start(workers, "-c", "1")
    jobs = [
        enqueue(database, task)
        for task in ("use_orm", "use_orm", "leave_a_transaction_open")
    ]
    plain = database.enqueue_one("use_orm")

    for job in (*jobs, plain):
        database.wait_for(job)

    backends = [database.effects_of(job, "start")[0].said for job in (*jobs, plain)]
    assert backends[0] == backends[1]
    assert len(set(backends)) == 3
    left = "SELECT count(*) FROM pg_stat_activity WHERE state LIKE 'idle in%%' "
    pids = [pid for pid in backends if isinstance(pid, int)]
    until(
        lambda: database.ask(f"{left} AND pid = ANY(%s)", pids) == 0,
        what="no transaction left open",
    )


def test_a_result_of_five_megabytes_comes_back(
    database: Database, workers: Workers
) -> None:
    size = 5_000_000
    start(workers, "-c", "1", MAX_RESULT_BYTES=2 * size, MAX_ARGUMENT_BYTES=2 * size)

    back = enqueue(database, "return_much", size)
    there = enqueue(database, "quick", "x" * size)
    for job in (back, there):
        database.wait_for(job)
        assert database.job(job)["result"] == "x" * size


def test_an_exception_that_cannot_be_pickled_is_told_as_any_other(
    database: Database, workers: Workers
) -> None:
    start(workers, "-c", "1")

    job = enqueue(database, "raise_unpicklable", max_retries=0)
    database.wait_for(job, "failed")

    row = database.job(job)
    assert (row["error_class"], row["error_message"]) == (
        "Unpicklable",
        "cannot be pickled",
    )
    traceback = database.ask(
        "SELECT traceback FROM relay_attempt WHERE job_id = %s", job
    )
    assert "in raise_unpicklable" in traceback
    assert "relay/worker" not in traceback


def test_what_a_handler_forks_does_not_answer_for_it(
    database: Database, workers: Workers
) -> None:
    start(workers, "-c", "1")

    jobs = [enqueue(database, "fork_and_go_on") for _ in range(5)]
    ended = enqueue(database, "fork_and_terminate")
    for job in (*jobs, ended):
        database.wait_for(job)

    assert database.job(ended)["result"] == -signal.SIGTERM
    assert {database.job(job)["attempt"] for job in jobs} == {1}
    database.assert_nothing_charged()


def test_sensitive_arguments_are_read_in_the_process_apart(
    database: Database, workers: Workers
) -> None:
    with override_settings(RELAY={"ENCRYPTION_KEYS": KEYS}):
        handle = tasks.pay.enqueue("4111-1111-1111-1234")
    start(workers, "-c", "1")

    database.wait_for(handle.id)

    assert database.job(handle.id)["result"] == "1234"


def test_a_transactional_task_finishes_its_job_in_the_process_apart(
    database: Database, workers: Workers
) -> None:
    start(workers, "-c", "1")

    job = enqueue(database, "count_in_its_transaction")
    database.wait_for(job)

    assert database.job(job)["result"] > 0
    assert database.job(job)["worker_id"] is not None


def test_progress_logs_and_steps_are_those_of_any_task(
    database: Database, workers: Workers, tmp_path: Path
) -> None:
    start(workers, "-c", "1")

    job = enqueue(database, "tell", str(tmp_path / "open"))
    until(lambda: (database.job(job)["progress"] or {}).get("percent") == 50)
    (tmp_path / "open").touch()
    database.wait_for(job)

    row = database.job(job)
    assert (row["result"], row["progress"]["percent"]) == (7, 100)
    text = database.ask("SELECT text FROM relay_output WHERE job_id = %s", job)
    assert "half way" in text
    assert database.ask("SELECT name FROM relay_step WHERE job_id = %s", job) == "count"


def test_a_worker_without_isolated_tasks_has_no_nursery(workers: Workers) -> None:
    worker = workers.start("-c", "1")

    assert len(worker.tree()) == 2
