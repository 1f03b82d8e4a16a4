"""Workers in processes of their own, on the tests' database or one of their own."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote, urlencode

import pytest
from django.db import connection

from relay.engine.connection import EngineConnection, connect
from relay.standalone.postgres import EmbeddedPostgres
from tests.worker.harness import ROOT, Database, Workers
from tests.worker.sites import Sites


@pytest.fixture
def duty(transactional_db: None) -> Iterator[EngineConnection]:
    made = connect("default", role="duty", name="tests")
    yield made
    made.close()


@pytest.fixture
def database(transactional_db: None, tmp_path: Path) -> Iterator[Database]:
    parameters = connection.get_connection_params()
    options = {
        key: parameters[key]
        for key in ("user", "password", "host", "port")
        if parameters.get(key)
    }
    made = Database(
        f"postgresql:///{quote(parameters['dbname'])}?{urlencode(options)}", tmp_path
    )
    yield made
    made.close()


@pytest.fixture
def workers(database: Database, tmp_path: Path) -> Iterator[Workers]:
    made = Workers(database, tmp_path)
    yield made
    made.end()


@pytest.fixture
def sites(database: Database, workers: Workers, tmp_path: Path) -> Iterator[Sites]:
    made = Sites(database, workers, tmp_path)
    yield made
    made.end()


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedPostgres]:
    """A server of these tests' own, to be ill-treated; started again if it is down."""
    folder = tmp_path_factory.mktemp("postgres")
    with EmbeddedPostgres(folder, options={"max_connections": 60}) as server:
        server.create_database("relay")
        subprocess.run(
            [sys.executable, "-m", "testproject", "migrate", "-v", "0"],
            cwd=ROOT,
            env={**Workers.base_environment(), "DATABASE_URL": server.dsn("relay")},
            check=True,
        )
        yield server


@pytest.fixture
def private(cluster: EmbeddedPostgres, tmp_path: Path) -> Iterator[Database]:
    """The private server's database, emptied."""
    cluster.start(stop_at_exit=False)
    made = Database(cluster.dsn("relay"), tmp_path)
    made.session.execute(
        "TRUNCATE relay_job, relay_worker, relay_attempt, relay_history, relay_queue, "
        "relay_schedule, relay_occurrence, relay_output, relay_step"
    )
    yield made
    made.close()


@pytest.fixture
def private_workers(private: Database, tmp_path: Path) -> Iterator[Workers]:
    made = Workers(private, tmp_path)
    yield made
    made.end()
