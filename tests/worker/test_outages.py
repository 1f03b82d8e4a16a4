"""The database goes away, comes back, and lies in between."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from relay import enqueue
from relay.standalone.postgres import EmbeddedPostgres
from relay.worker.fence import LONGEST_WAIT
from tests.scale import scaled
from tests.worker.harness import SHORT_LEASE, Database, Worker, Workers, until
from tests.worker.proxy import Proxy
from tests.worker.tasks import silent
from tests.worker.test_probes import ask, free_port

pytestmark = pytest.mark.slow

# For a machine at its slowest; a lease is longer than any wait but this.
BACK_SECONDS = 60


@pytest.fixture
def server(cluster: EmbeddedPostgres, private: Database) -> EmbeddedPostgres:
    return cluster


def end_all_sessions(database: Database) -> None:
    database.session.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
        "WHERE datname = current_database() AND pid <> pg_backend_pid()"
    )


@pytest.mark.parametrize("fault", ["fast", "immediate", "kill -9", "all sessions"])
def test_b11_workers_resume_by_themselves_and_charge_nothing(
    server: EmbeddedPostgres, private: Database, private_workers: Workers, fault: str
) -> None:
    workers = [private_workers.start("-c", "4", LEASE=60) for _ in range(2)]
    before = [worker.child_pids() for worker in workers]
    jobs = private.enqueue("use_orm_for", 0.3, count=60)
    private.enqueue("quick", count=40)
    private.enqueue("use_orm_from_coroutine", count=20)
    private.wait_for_start(jobs[5])

    if fault == "all sessions":
        end_all_sessions(private)
    elif fault == "kill -9":
        server.kill()
        server.start(stop_at_exit=False)
    else:
        server.restart("fast" if fault == "fast" else "immediate")
    private.close()  # the test's own session may be gone too
    marker = private.enqueue_one("quick", priority=100)
    private.wait_for(marker, seconds=BACK_SECONDS)
    private.wait_for_all(121)

    private.assert_nothing_charged()
    assert private.ask("SELECT max(losses) FROM relay_job") == 0
    assert [worker.child_pids() for worker in workers] == before
    for worker in workers:
        assert worker.text().count("Traceback") == 0
        assert worker.stop() == 0


def test_failure_060_a_read_only_spell_fails_no_job(
    private: Database, private_workers: Workers
) -> None:
    worker = private_workers.start("-c", "5", LEASE=30)
    jobs = private.enqueue("use_orm_for", 1.5, count=5)
    for job in jobs:
        private.wait_for_start(job)

    with read_only(private):
        until(lambda: spell_is_seen(worker))
    private.wait_for_all(5, seconds=BACK_SECONDS)

    private.assert_nothing_charged()
    assert worker.stop() == 0


def spell_is_seen(worker: Worker) -> bool:
    return "database trouble" in worker.text()


@contextmanager
def read_only(database: Database) -> Iterator[None]:
    database.session.execute("ALTER SYSTEM SET default_transaction_read_only = on")
    database.session.execute("SELECT pg_reload_conf()")
    end_all_sessions(database)
    try:
        yield
    finally:
        database.session.execute("SET default_transaction_read_only = off")
        database.session.execute("ALTER SYSTEM RESET default_transaction_read_only")
        database.session.execute("SELECT pg_reload_conf()")


@contextmanager
def a_timeout_of_the_child(
    server: EmbeddedPostgres, private: Database
) -> Iterator[None]:
    """Hold what is locked in here until the one child's own statement has timed out."""
    session = until(
        lambda: private.ask(
            "SELECT pid FROM pg_stat_activity WHERE application_name = 'relay worker' "
            "ORDER BY backend_start DESC"
        )
    )
    said = f"[{session}] ERROR:  canceling statement due to "
    before = server.log.read_text().count(said)
    with private.session.transaction():
        yield
        until(lambda: server.log.read_text().count(said) > before, what=said)


def test_failure_082_timeouts_of_statements_and_locks_are_waited_out(
    server: EmbeddedPostgres, private: Database, private_workers: Workers
) -> None:
    worker = private_workers.start("-c", "2", LEASE=12)
    before = worker.child_pids()
    jobs = private.enqueue("nap", 0.1, count=10)
    private.wait_for_start(jobs[0])

    for _ in range(2):
        with a_timeout_of_the_child(server, private):
            private.session.execute("LOCK TABLE relay_job IN ACCESS EXCLUSIVE MODE")
        private.wait_for(private.enqueue_one("quick"))
    private.wait_for_all(12)

    assert worker.child_pids() == before
    private.assert_nothing_started_twice()
    private.assert_nothing_charged()


def test_a_lock_that_outlasts_every_timeout_is_waited_out_too(
    private: Database, private_workers: Workers
) -> None:
    worker = private_workers.start("-c", "2", LEASE=10)
    before = worker.child_pids()
    jobs = private.enqueue("nap", 0.1, count=10)
    private.wait_for_start(jobs[0])

    with private.session.transaction():
        private.session.execute("LOCK TABLE relay_job IN ACCESS EXCLUSIVE MODE")
        private.session.execute("SELECT pg_sleep(12)")  # longer than the lease
    private.wait_for_all(10)

    assert worker.child_pids() == before
    private.assert_nothing_charged()
    assert private.ask("SELECT max(losses) FROM relay_job") == 0


def test_failure_025_a_lost_listen_session_is_replaced_and_polled_once(
    private: Database, private_workers: Workers
) -> None:
    worker = private_workers.start("-c", "1", LEASE=30, POLL_INTERVAL=60)
    listeners = (
        "SELECT pid FROM pg_stat_activity WHERE application_name = 'relay listen'"
    )
    private.wait_for(private.enqueue_one("quick"))
    until(lambda: private.ask(listeners))

    before = cpu_seconds(worker)
    began_at = time.monotonic()
    private.session.execute(
        "SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity "
        "WHERE application_name = 'relay listen'"
    )
    in_the_gap = private.enqueue_one("quick")
    private.wait_for(in_the_gap, seconds=40)
    until(lambda: private.ask(listeners))
    afterwards = private.enqueue_one("quick")
    private.wait_for(afterwards, seconds=40)

    assert worker.text().count("LISTEN lost") == 1
    assert worker.text().count("listening again") == 1
    until(lambda: time.monotonic() - began_at > 3)
    # Nothing turns round and round: a process that does takes a whole processor.
    assert cpu_seconds(worker) - before < 1 + 0.3 * (time.monotonic() - began_at)


def cpu_seconds(worker: Worker) -> float:
    total = 0
    for each in worker.tree():
        fields = Path(f"/proc/{each.pid}/stat").read_text().rpartition(")")[2].split()
        total += int(fields[11]) + int(fields[12])
    return total / os.sysconf("SC_CLK_TCK")


def test_an_idle_worker_takes_next_to_no_time_of_the_machine(
    database: Database, workers: Workers
) -> None:
    worker = workers.start("-c", "2", processes=2, POLL_INTERVAL=1, LEASE=30)
    for job in database.enqueue("quick", count=10):
        database.wait_for(job)

    before, began_at = cpu_seconds(worker), time.monotonic()
    until(lambda: time.monotonic() - began_at > 3)

    assert cpu_seconds(worker) - before < 0.4 * (time.monotonic() - began_at)


def test_failure_117_a_worker_ends_while_the_server_stands_still(
    server: EmbeddedPostgres, private: Database, private_workers: Workers
) -> None:
    worker = private_workers.start("-c", "1", "--grace", "1", LEASE=30)
    job = private.enqueue_one("nap", 600)
    private.wait_for_start(job)

    with stopped(server):
        code = worker.stop()

    assert code == 1
    assert private.job(job)["state"] == "running"  # left to its lease


def test_a_worker_lives_without_the_database_and_not_with_a_loop_that_stands(
    server: EmbeddedPostgres, private: Database, private_workers: Workers
) -> None:
    port = free_port()
    worker = private_workers.start(
        *("-c", "1", "--probe-port", f"127.0.0.1:{port}"), LEASE=SHORT_LEASE
    )
    until(lambda: ask(port, "/readyz")[0] == 200)
    private.close()
    server.stop("fast")
    over_at = time.monotonic() + LONGEST_WAIT.total_seconds() + 1

    def has_lived() -> bool:
        assert ask(port, "/livez") == (200, "ok\n")
        return time.monotonic() > over_at

    until(has_lived)
    assert ask(port, "/readyz")[0] == 503

    server.start(stop_at_exit=False)
    until(lambda: ask(port, "/readyz")[0] == 200)
    worker.send(signal.SIGSTOP)
    said = until(lambda: ask(port, "/livez")[0] == 503 and ask(port, "/livez")[1])
    assert said.startswith("the parent's loop has not gone round for ")

    worker.send(signal.SIGCONT)
    until(lambda: ask(port, "/livez")[0] == 200)
    assert worker.stop() == 0


def test_one_signal_while_the_database_is_down_says_once_what_becomes_of_the_jobs(
    server: EmbeddedPostgres, private: Database, private_workers: Workers
) -> None:
    worker = private_workers.start("-c", "1", "--grace", "1", LEASE=30)
    job = private.enqueue_one("nap", 600)
    private.wait_for_start(job)
    server.stop("immediate")
    until(lambda: spell_is_seen(worker))

    worker.send(signal.SIGINT)
    code = worker.wait()

    said = worker.text()
    assert code == 1
    assert said.count("the database could not be told that this worker ended") == 1
    assert "keeper died" not in said
    assert "error ignored" not in said
    assert "Traceback" not in said


@contextmanager
def stopped(server: EmbeddedPostgres) -> Iterator[None]:
    """Stop every process of a server; none is ended."""
    postmaster = server.postmaster_pid()
    assert postmaster is not None
    found = subprocess.run(
        ["ps", "--ppid", str(postmaster), "-o", "pid="], capture_output=True, text=True
    )
    pids = [postmaster, *map(int, found.stdout.split())]
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in reversed(pids):
            os.kill(pid, signal.SIGCONT)


def test_failure_059_handlers_end_before_their_leases_in_an_outage(
    server: EmbeddedPostgres, private: Database, private_workers: Workers
) -> None:
    workers = [private_workers.start("-c", "5", LEASE=SHORT_LEASE) for _ in range(2)]
    jobs = private.enqueue("beat", 400, 0.02, count=10)
    for job in jobs:
        private.wait_for_start(job)
    pids = {pid for worker in workers for pid in worker.child_pids()}

    with stopped(server):
        until(lambda: len(living(pids)) == 0, what="fenced")
        began_at = time.monotonic()
        until(lambda: time.monotonic() - began_at > 2)
    for job in jobs:
        private.wait_for(job)

    for job in jobs:
        attempts = [effect.attempt for effect in private.effects_of(job)]
        assert attempts == sorted(attempts)  # never two live runs
    assert private.ask("SELECT max(failures + crashes) FROM relay_job") == 0


def living(pids: set[int]) -> set[int]:
    return {pid for pid in pids if Path(f"/proc/{pid}").exists()}


def test_a_worker_starts_while_the_database_is_away(
    server: EmbeddedPostgres, private: Database, private_workers: Workers
) -> None:
    job = private.enqueue_one("quick")
    server.stop("fast")
    worker = private_workers.start("-c", "1", is_awaited=False)
    until(lambda: "waiting for it" in worker.text())

    server.start(stop_at_exit=False)
    private.close()
    private.wait_for(job, seconds=BACK_SECONDS)

    assert worker.stop() == 0


def test_failure_118_more_slots_than_sessions_is_said_and_survived(
    private: Database, private_workers: Workers
) -> None:
    worker = private_workers.start("-c", "64")
    jobs = private.enqueue("use_orm_for", 0.3, count=80)

    private.wait_for_all(len(jobs))

    assert "may need 67 database sessions and the server has 60" in worker.text()
    private.assert_nothing_charged()


def test_failure_007_a_job_whose_row_is_locked_for_long_is_still_finished_once(
    server: EmbeddedPostgres,
    private: Database,
    private_workers: Workers,
    tmp_path: Path,
) -> None:
    private_workers.start("-c", "2", LEASE=12)
    job = private.enqueue_one("gate", str(tmp_path / "open"))
    private.wait_for_start(job)

    # A claim passes over the row: it is the finish that waits for it.
    with a_timeout_of_the_child(server, private):
        private.session.execute(
            "SELECT FROM relay_job WHERE id = %s FOR UPDATE", (job,)
        )
        (tmp_path / "open").touch()
    private.wait_for(job)

    assert len(private.effects_of(job, "start")) == 1
    assert private.job(job)["attempt"] == 1


@pytest.mark.timeout(600)  # at full size
def test_failure_081_finishes_renewals_sweeps_and_prunes_do_not_deadlock(
    server: EmbeddedPostgres, private: Database, private_workers: Workers
) -> None:
    private.session.execute("ALTER SYSTEM SET deadlock_timeout = '50ms'")
    private.session.execute("SELECT pg_reload_conf()")
    relay = {"LEASE": 2, "LOSS_LIMIT": 10_000, "RETENTION_COMPLETED": 0.2}
    for _ in range(2):
        private_workers.start("-c", "4", processes=2, **relay)

    count = scaled(5_000)
    private.enqueue("silent", count=count)
    doomed = private.enqueue("die", count=2)
    for job in doomed:
        private.wait_for(job, "failed")
    until(
        lambda: private.ask("SELECT count(*) FROM relay_job") == len(doomed),
    )

    assert "deadlock detected" not in server.log.read_text()
    private.session.execute("ALTER SYSTEM RESET deadlock_timeout")
    private.session.execute("SELECT pg_reload_conf()")


def test_failure_120_large_arguments_wake_a_worker_like_small_ones(
    database: Database, workers: Workers
) -> None:
    workers.start("-c", "2", POLL_INTERVAL=300, LEASE=30)
    handles = [
        enqueue("tests.worker.tasks.quick", "x" * 20_000),
        enqueue("tests.worker.tasks.quick", "\N{PARTY POPPER}" * 2_000),
        silent.enqueue(),
    ]

    for handle in handles:
        assert handle.wait(timeout=60) == "completed"


@pytest.fixture
def proxy(database: Database) -> Iterator[Proxy]:
    made = Proxy(database.dsn)
    yield made
    made.close()


def test_b12_every_loop_leaves_a_server_that_answers_nothing_and_comes_back(
    database: Database, workers: Workers, proxy: Proxy
) -> None:
    worker = workers.start(
        "-c", "1", environment={"DATABASE_URL": proxy.dsn}, LEASE=SHORT_LEASE
    )
    before = worker.child_pids()

    proxy.loses_answers.set()
    until(lambda: "leases cannot be renewed" in worker.text())
    until(lambda: "database trouble: reconnecting" in worker.text())
    # Before its lease ends, as nobody can know whether it was renewed.
    until(lambda: not living(set(before)))
    job = database.enqueue_one("quick")
    proxy.loses_answers.clear()  # what hangs by then goes on hanging
    database.wait_for(job)

    database.assert_nothing_charged()
    assert "Traceback" not in worker.text()


def test_a_keeper_that_waits_for_a_silent_server_is_not_killed_for_it(
    database: Database, workers: Workers, proxy: Proxy
) -> None:
    worker = workers.start("-c", "1", environment={"DATABASE_URL": proxy.dsn}, LEASE=1)
    worker.child_pids()

    proxy.loses_answers.set()
    # Child, keeper and its listener: a connect takes 3 s of silence, so three leases.
    tried = proxy.accepted + 6
    until(lambda: proxy.accepted >= tried)
    job = database.enqueue_one("quick")
    proxy.loses_answers.clear()
    database.wait_for(job)

    assert "keeper died" not in worker.text()


@pytest.mark.timeout(600)  # at full size
def test_failure_079_a_cut_in_or_after_a_commit_loses_and_repeats_no_job(
    database: Database, workers: Workers, proxy: Proxy
) -> None:
    rng = random.Random(79)
    started = [
        workers.start("-c", "4", environment={"DATABASE_URL": proxy.dsn}, LEASE=30)
        for _ in range(2)
    ]
    jobs = []
    for number in range(scaled(200)):
        jobs += database.enqueue("quick", count=10)
        moment = time.monotonic() + rng.random() * 0.1
        until(lambda moment=moment: time.monotonic() >= moment)  # type: ignore[misc]  # a default binds the loop's variable
        if number % 2:
            proxy.loses_answers.set()
            moment = time.monotonic() + 0.01
            until(lambda moment=moment: time.monotonic() >= moment)  # type: ignore[misc]  # a default binds the loop's variable
        proxy.cut()

    database.wait_for_all(len(jobs))

    starts = Counter(effect.job for effect in database.effects())
    assert starts == Counter(str(job) for job in jobs)
    database.assert_nothing_charged()
    assert database.ask("SELECT max(losses) FROM relay_job") == 0
    for worker in started:
        assert "Traceback" not in worker.text()
