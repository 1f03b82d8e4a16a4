"""The database, the size of the tests, and what is left out for want of a program."""

from __future__ import annotations

import os
import shutil
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

import psycopg
import pytest
from django.conf import settings
from django.db import connection

from relay import counts
from relay.exceptions import StandaloneError
from relay.standalone.postgres import EmbeddedPostgres
from tests import emptying
from tests.meters import Sums
from tests.scale import scale
from tests.waiting import WAIT_SECONDS


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """A program that a marker asks for, and where Debian has it."""

    program: str
    package: str

    def is_met(self) -> bool:
        path = os.environ.get("PATH", os.defpath)
        return shutil.which(self.program, path=f"{path}:/usr/sbin:/sbin") is not None


# Marker -> what it needs. Each marker stands in pyproject.toml too.
NEEDS = {
    "faketime": Need(program="faketime", package="faketime"),
    "pgbouncer": Need(program="pgbouncer", package="pgbouncer"),
    "promtool": Need(program="promtool", package="prometheus"),
    "browser": Need(program="chromium", package="chromium"),
}

left_out_key = pytest.StashKey[Counter[str]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--full",
        action="store_true",
        help="run at full size: the same as RELAY_TEST_SCALE=1",
    )


def pytest_configure(config: pytest.Config) -> None:
    config.stash[left_out_key] = Counter()
    _let_hypothesis_take_its_time()
    emptying.use()
    if config.getoption("full"):
        os.environ["RELAY_TEST_SCALE"] = "1"
    try:
        scale()
    except ValueError as error:
        raise pytest.UsageError(str(error)) from error


def _let_hypothesis_take_its_time() -> None:
    """Judge what examples do and not how long they take, which a machine decides."""
    with suppress(ModuleNotFoundError):  # the group docs has none
        from hypothesis import HealthCheck, settings

        settings.register_profile(
            "relay", deadline=None, suppress_health_check=[HealthCheck.too_slow]
        )
        settings.load_profile("relay")


def pytest_report_header() -> list[str]:
    if os.environ.get("DATABASE_URL"):
        database = "the server of DATABASE_URL"
    else:
        try:
            database = EmbeddedPostgres(settings.POSTGRES_ROOT).describe()
        except StandaloneError as error:
            database = f"none: {error}"
    return [f"database: {database}", f"RELAY_TEST_SCALE: {scale()}"]


def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> None:
    missing = {marker for marker, need in NEEDS.items() if not need.is_met()}
    left_out: list[pytest.Item] = []
    kept: list[pytest.Item] = []
    for item in items:
        wanting = missing & {mark.name for mark in item.iter_markers()}
        config.stash[left_out_key].update(wanting)
        (left_out if wanting else kept).append(item)
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = kept


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Fail where everything was to run and something was left out."""
    if _requires_all() and session.config.stash[left_out_key] and not exitstatus:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    for marker, count in sorted(config.stash[left_out_key].items()):
        tests = "1 test needs" if count == 1 else f"{count} tests need"
        need = NEEDS[marker]
        terminalreporter.write_line(
            f"left out: {tests} {need.program} (apt-get install {need.package})",
            yellow=not _requires_all(),
            red=_requires_all(),
        )
        if _requires_all():
            terminalreporter.write_line(
                "RELAY_REQUIRE_ALL is set: the run fails", red=True
            )


def _requires_all() -> bool:
    return os.environ.get("RELAY_REQUIRE_ALL", "") not in ("", "0")


@pytest.fixture(scope="session")
def postgres() -> EmbeddedPostgres | None:
    """Return the server the tests run on, started; None for that of DATABASE_URL.

    It does not wait for the disk, as no test of it outlives the machine; those that
    strike a server have their own.
    """
    if os.environ.get("DATABASE_URL"):
        return None
    return EmbeddedPostgres(settings.POSTGRES_ROOT, options={"fsync": "off"}).start()


@pytest.fixture(scope="session")
def django_db_modify_db_settings(
    django_db_modify_db_settings_parallel_suffix: None,
    postgres: EmbeddedPostgres | None,
) -> Iterator[None]:
    """Start the database for the first test that asks for one, and keep others out.

    Two runs that share a database empty each other's tables.
    """
    own = connection.settings_dict
    # The engine's own three seconds are for workers, which try again.
    own["OPTIONS"] = {**own["OPTIONS"], "connect_timeout": 60}
    name = own["TEST"]["NAME"] or own["NAME"]
    parameters = connection.get_connection_params() | {"dbname": "postgres"}
    with psycopg.connect(**parameters, autocommit=True) as session:
        lock = session.execute(
            "SELECT pg_try_advisory_lock(hashtext('relay tests'), hashtext(%s))",
            (name,),
        )
        if lock.fetchone() != (True,):
            pytest.exit(
                f"other tests run on the database {name!r} of this server: wait for "
                "them, or give these a server of their own with RELAY_TEST_ROOT=FOLDER",
                returncode=pytest.ExitCode.USAGE_ERROR,
            )
        yield


@pytest.fixture(scope="session", autouse=True)
def patient_reads() -> Iterator[None]:
    """Have pages and lists answer whatever a machine is busy with, not a 503."""
    # Here, as models are loaded only once the settings are.
    from relay.operations import bulk_jobs
    from relay.queries import reading

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reading, "LOOK_SECONDS", WAIT_SECONDS)
        patch.setattr(bulk_jobs, "COUNT_SECONDS", WAIT_SECONDS)
        yield


@pytest.fixture
def sums() -> Iterator[Sums]:
    """Count, in this process, with a meter that begins at 0."""
    made, before = Sums(), counts._meter
    counts.take_ended()  # what earlier tests have left
    counts.install(made)
    yield made
    counts.install(before)
