"""Jobs in a database, or a schema, of their own; and how many sessions that takes."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import uuid4

import psycopg
import pytest

from relay.standalone.postgres import EmbeddedPostgres
from tests.scale import scaled
from tests.worker.harness import LONG_LEASE, ROOT, Database, Workers, until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

TABLES = """
SELECT schemaname, count(*) FROM pg_tables
WHERE tablename LIKE 'relay\\_%' GROUP BY 1
"""
SESSIONS = """
SELECT pid FROM pg_stat_activity
WHERE datname = current_database() AND backend_type = 'client backend'
"""
EFFECTS = "CREATE TABLE tests_effect (job uuid NOT NULL, attempt int NOT NULL)"


@pytest.fixture
def new_database(cluster: EmbeddedPostgres) -> Callable[[], str]:
    """Make an empty database; return its address."""
    cluster.start(stop_at_exit=False)

    def make() -> str:
        name = f"made_{uuid4().hex}"
        cluster.create_database(name)
        return cluster.dsn(name)

    return make


@pytest.fixture
def on(tmp_path: Path) -> Iterator[Callable[[str], Workers]]:
    """Return what starts workers on a database; ends them all."""
    made: list[Workers] = []

    def workers_on(dsn: str) -> Workers:
        made.append(Workers(Database(dsn, tmp_path), tmp_path))
        return made[-1]

    yield workers_on
    for workers in made:
        workers.end()
        workers.database.close()


def manage(environment: dict[str, str], *arguments: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "testproject", *arguments],
        cwd=ROOT,
        env={**Workers.base_environment(), **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def tables(dsn: str) -> dict[str, int]:
    """Return how many tables of relay's are in each schema."""
    with psycopg.connect(dsn) as session:
        return dict(session.execute(TABLES).fetchall())


def test_jobs_in_a_database_of_their_own(
    new_database: Callable[[], str], on: Callable[[str], Workers]
) -> None:
    main, jobs = new_database(), new_database()
    environment = {"DATABASE_URL": main, "WORKER_TESTS_JOBS": jobs}
    setting = {"WORKER_TESTS_RELAY": json.dumps({"DATABASE": "jobs"})}
    manage({**environment, **setting}, "migrate", "-v0")
    manage({**environment, **setting}, "migrate", "-v0", "--database", "jobs")
    check = ("check", "--fail-level", "WARNING", "--database", "jobs")
    manage({**environment, **setting}, *check)
    workers = on(jobs)
    database = workers.database
    database.session.execute(EFFECTS)

    worker = workers.start("-c", "4", environment=environment, DATABASE="jobs")
    database.enqueue("use_orm", count=20)  # of the other database
    together = database.enqueue("transact", 0.0, count=20)
    database.wait_for_all(40)

    assert tables(main) == {}
    assert tables(jobs) == {"public": tables(jobs)["public"]}
    effects = database.session.execute("SELECT job FROM tests_effect").fetchall()
    assert sorted(job for (job,) in effects) == sorted(together)
    database.assert_nothing_charged()
    assert worker.stop() == 0
    assert "Traceback" not in worker.text()


def test_two_schemas_of_one_database_hold_jobs_apart(
    new_database: Callable[[], str], on: Callable[[str], Workers]
) -> None:
    dsn = new_database()
    served, other = (f"{dsn}&options=-csearch_path%3D{name}" for name in ("a", "b"))
    with psycopg.connect(dsn, autocommit=True) as session:
        session.execute("CREATE SCHEMA a")
        session.execute("CREATE SCHEMA b")
    for address in (served, other):
        manage({"DATABASE_URL": address}, "migrate", "-v0")
        check = ("check", "--fail-level", "WARNING", "--database", "default")
        manage({"DATABASE_URL": address}, *check)
    left, workers = on(other).database, on(served)
    database = workers.database
    database.session.execute(EFFECTS)

    worker = workers.start("-c", "4", LEASE=LONG_LEASE)
    left.enqueue("quick", count=5)
    database.enqueue("quick", count=40)
    database.enqueue("transact", 0.0, count=5)
    retried = database.enqueue_one("fail", max_retries=1)
    later = database.enqueue_one("quick", state="scheduled")
    database.wait_for_all(46)
    database.wait_for(retried, "failed")

    assert database.job(later)["state"] == "completed"
    assert database.job(retried)["failures"] == 2
    assert left.states() == {"queued": 5}
    assert tables(dsn).keys() == {"a", "b"}
    assert worker.stop() == 0
    # Only what the failing handler raised, twice.
    assert worker.text().count("Traceback") == 2


@pytest.mark.parametrize("pool", [False, True], ids=["CONN_MAX_AGE=0", "pool"])
def test_many_jobs_leave_no_session_beyond_one_for_each_slot(
    database: Database, workers: Workers, pool: bool
) -> None:
    if pool:
        pytest.importorskip("psycopg_pool", reason="Django's pool needs it")
    slots, processes, jobs = 4, 2, scaled(10_000, least=1_000)
    ours = [pid for (pid,) in database.session.execute(SESSIONS)]
    worker = workers.start(
        "-c",
        str(slots),
        processes=processes,
        environment={"WORKER_TESTS_POOL": "1" if pool else ""},
    )
    most = 0

    def theirs() -> int:
        pids = [pid for (pid,) in database.session.execute(SESSIONS)]
        return len(set(pids) - set(ours))

    def is_done() -> bool:
        nonlocal most
        most = max(most, theirs())
        return database.states().get("completed", 0) == jobs

    database.enqueue("use_orm", count=jobs)
    until(is_done, seconds=300, what="all jobs completed")

    # Two of the keeper's, one of each child's, and one for each slot.
    assert most <= 2 + processes + processes * slots
    assert worker.stop() == 0
    until(lambda: theirs() == 0, what="all sessions ended")
    assert "Traceback" not in worker.text()
    database.assert_nothing_charged()
