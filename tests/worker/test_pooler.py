"""Behind pgbouncer in transaction mode: all that works there."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from django.db import connections, transaction
from django.test import override_settings
from psycopg.conninfo import conninfo_to_dict

from relay import Unique, enqueue_many
from relay.models import Schedule
from tests.aliases import alias
from tests.waiting import WAIT_SECONDS
from tests.worker import tasks
from tests.worker.harness import Database, Worker, Workers, until

pytestmark = [
    pytest.mark.slow,
    pytest.mark.pgbouncer,
    pytest.mark.timeout(600),
]


def answers(address: str) -> bool:
    try:
        psycopg.connect(address).close()
    except psycopg.OperationalError:
        return False
    return True


@pytest.fixture
def pooler(database: Database, tmp_path: Path) -> Iterator[str]:
    """Start pgbouncer in transaction mode; return its address."""
    server = conninfo_to_dict(database.dsn)
    folder = Path(tempfile.mkdtemp(prefix="relay-"))  # short: a socket stands in it
    configuration = folder / "pgbouncer.ini"
    configuration.write_text(
        "[databases]\n"
        f"* = host={server['host']} port={server.get('port', 5432)} "
        f"user={server['user']}\n"
        "[pgbouncer]\n"
        f"unix_socket_dir = {folder}\n"
        "listen_addr =\n"
        "listen_port = 6432\n"
        "auth_type = any\n"
        "pool_mode = transaction\n"
        "max_client_conn = 200\n"
        "default_pool_size = 8\n"
        "ignore_startup_parameters = extra_float_digits,options\n"
        f"logfile = {folder}/log\n"
    )
    command = ["pgbouncer", str(configuration)]
    if os.geteuid() == 0:
        # It refuses to be root, and only root may reach the server's socket.
        command = ["unshare", "--user", "--map-user=1000", *command]
    log = (folder / "output").open("wb")
    process = subprocess.Popen(
        command,
        env={**os.environ, "PATH": f"{os.environ['PATH']}:/usr/sbin"},
        stdout=log,
        stderr=log,
    )
    address = f"postgresql://relay@/{server['dbname']}?host={folder}&port=6432"
    try:
        until(lambda: answers(address), what="pgbouncer answers")
        yield address
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(60)
        log.close()
        shutil.rmtree(folder)


def test_failure_027_a_pooler_in_transaction_mode_drains_a_thousand_jobs(
    database: Database, workers: Workers, pooler: str
) -> None:
    started: list[Worker] = [
        workers.start(
            "-c",
            "4",
            environment={"DATABASE_URL": pooler},
            TRANSACTION_POOLER=True,
            LEASE=10,
        )
        for _ in range(2)
    ]

    database.enqueue("silent", count=700)
    database.enqueue("use_orm", count=300)
    database.wait_for_all(1_000)

    for worker in started:
        assert "prepared statement" not in worker.text()
        assert "Traceback" not in worker.text()
        assert worker.stop() == 0
    database.assert_nothing_charged()
    database.assert_nothing_started_twice()


@pytest.fixture
def pooled(pooler: str) -> Iterator[str]:
    """Have this process reach the jobs through the pooler too."""
    address = conninfo_to_dict(pooler)
    with alias(
        "pooled", HOST=address["host"], PORT=address["port"], USER=address["user"]
    ) as name:
        # By hand: of an alias that it does not know the test framework opens none.
        connections[name].connect()
        with override_settings(RELAY={"DATABASE": name, "TRANSACTION_POOLER": True}):
            yield name


@pytest.fixture
def worker(database: Database, workers: Workers, pooler: str) -> Worker:
    database.session.execute(
        "CREATE TABLE tests_effect (job uuid NOT NULL, attempt int NOT NULL)"
    )
    return workers.start(
        "-c",
        "4",
        environment={"DATABASE_URL": pooler},
        TRANSACTION_POOLER=True,
        LEASE=10,
    )


@pytest.fixture
def effects(database: Database) -> Iterator[None]:
    """Drop the table that tests.worker.tasks.transact writes to."""
    yield
    database.session.execute("DROP TABLE IF EXISTS tests_effect")


@pytest.fixture
def ordered(effects: None, workers: Workers, pooler: str) -> Iterator[None]:
    """End the workers before the pooler and the table go."""
    yield
    workers.end()


def test_failure_027_results_cancels_keys_schedules_and_transactions_work_there(
    ordered: None, pooled: str, worker: Worker, database: Database
) -> None:
    assert tasks.quick.enqueue("one").result(timeout=WAIT_SECONDS) == "one"
    many = enqueue_many([tasks.quick.job(number) for number in range(20)])
    assert [job.result(timeout=WAIT_SECONDS) for job in many] == list(range(20))

    once = tasks.quick.using(unique=Unique(key="once"), priority=-1)
    first = once.using(unique=Unique(key="once", until="forever")).enqueue(1)
    assert first.result(timeout=WAIT_SECONDS) == 1
    assert once.enqueue(2).id == first.id

    endless = tasks.beat.enqueue(10_000, 0.01)
    database.wait_for_start(endless.id)
    assert endless.cancel() is False
    assert endless.wait(timeout=WAIT_SECONDS) == "cancelled"

    with transaction.atomic(using=pooled):
        gone = tasks.quick.enqueue()
        transaction.set_rollback(True, using=pooled)
    assert database.ask("SELECT count(*) FROM relay_job WHERE id = %s", gone.id) == 0

    both = tasks.transact.enqueue(0.0)
    assert both.result(timeout=WAIT_SECONDS) == 1
    assert database.ask("SELECT job FROM tests_effect") == both.id

    Schedule(
        name="each second", task=tasks.silent.name, cron="* * * * * *", seconds=True
    ).save(using=pooled)
    until(
        lambda: database.ask("SELECT job_id FROM relay_occurrence"),
        what="an occurrence",
    )

    assert "Traceback" not in worker.text()
    assert worker.stop() == 0
    assert "prepared statement" not in worker.text()


def test_failure_027_no_setting_of_relays_reaches_another_client_of_the_pooler(
    ordered: None, pooled: str, worker: Worker, database: Database
) -> None:
    for job in enqueue_many([tasks.transact.job(0.0) for _ in range(40)]):
        assert job.result(timeout=WAIT_SECONDS) == 1

    with connections[pooled].cursor() as cursor:
        for _ in range(50):
            cursor.execute(
                "SELECT name FROM pg_settings WHERE source = 'session' AND name IN "
                "('statement_timeout', 'lock_timeout', 'enable_seqscan', 'jit', "
                "'idle_in_transaction_session_timeout', 'plan_cache_mode')"
            )
            assert cursor.fetchall() == []
