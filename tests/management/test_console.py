"""What the commands say for a mistake, and where nobody set up logging."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import psycopg
import pytest
from django.core.management import CommandError
from django.db import DatabaseError, OperationalError, ProgrammingError

from relay.management.database import explained
from tests.worker.harness import ROOT

SETTINGS = """
import sys
from django.conf import settings
settings.configure(
    INSTALLED_APPS=["relay"],
    DATABASES={"default": {"ENGINE": "django.db.backends." + sys.argv[1], "NAME": "x"}},
    **{"RELAY": {"DATABASE": "default"}, **eval(sys.argv[2])},
)
import django
django.setup()
"""


def run(code: str, vendor: str = "postgresql", **settings: Any) -> str:
    done = subprocess.run(
        [sys.executable, "-c", SETTINGS + code, vendor, repr(settings)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout + done.stderr


def raised(error: DatabaseError, cause: BaseException) -> DatabaseError:
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    "command", [("relay_worker",), ("relay_scheduler",), ("relay_scheduler", "--sync")]
)
def test_another_database_is_refused_where_the_checks_are_skipped(
    command: tuple[str, ...],
) -> None:
    said = run(
        "from django.core.management import ManagementUtility\n"
        f"ManagementUtility(['manage.py', *{command!r}, '--skip-checks'])"
        ".execute()",
        "sqlite3",
    )

    assert "DATABASES['default'] is sqlite: relay keeps its jobs in PostgreSQL" in said
    assert "Traceback" not in said


@pytest.mark.parametrize(
    "line",
    [
        ("relay_worker",),
        ("relay_worker", "--reload"),
        ("relay_scheduler",),
        ("relay_scheduler", "--sync"),
    ],
)
@pytest.mark.parametrize(
    ("relay", "remedy"),
    [
        ({"LEASE": 5}, "RELAY['LEASE'] is 5: give a timedelta"),
        ({"LEESE": 5}, "RELAY has an unknown key 'LEESE': did you mean 'LEASE'?"),
    ],
)
def test_a_mistake_in_the_settings_is_one_line_with_the_remedy(
    line: tuple[str, ...], relay: dict[str, Any], remedy: str
) -> None:
    said = run(
        "from django.core.management import ManagementUtility\n"
        "try:\n"
        f"    ManagementUtility(['manage.py', *{line!r}]).execute()\n"
        "except SystemExit as end:\n"
        "    print('code', end.code)\n",
        RELAY=relay,
    )

    assert f"CommandError: {remedy}" in said
    assert len(said.splitlines()) == 2
    assert "code 1" in said


def test_help_is_given_whatever_the_settings_hold() -> None:
    said = run(
        "from django.core.management import ManagementUtility\n"
        "ManagementUtility(['manage.py', 'relay_worker', '--help']).execute()\n",
        RELAY={"LEASE": 5},
    )

    assert "--concurrency" in said
    assert "Traceback" not in said


def test_missing_tables_are_named_with_the_remedy() -> None:
    cause = psycopg.errors.UndefinedTable('relation "relay_queue" does not exist')

    with (
        pytest.raises(CommandError, match=r"run manage.py migrate .*relay_queue"),
        explained("default"),
    ):
        raise raised(ProgrammingError(str(cause)), cause)


def test_a_database_that_is_away_is_named_with_the_reason() -> None:
    cause = psycopg.OperationalError("connection refused")

    with (
        pytest.raises(CommandError, match=r"'default'.* cannot be used: connection"),
        explained("default"),
    ):
        raise raised(OperationalError(str(cause)), cause)


def test_a_mistake_in_a_statement_stays_what_it_is() -> None:
    cause = psycopg.errors.SyntaxError("syntax error")

    with pytest.raises(ProgrammingError), explained("default"):
        raise raised(ProgrammingError(str(cause)), cause)


SPEAK = """
import logging
from relay.management.console import show_logs
show_logs({verbosity})
log = logging.getLogger("relay.worker")
log.info("job completed", extra={{"task": "shop.tasks.resize"}})
log.warning("job failed", extra={{"task": "shop.tasks.charge"}})
"""


def test_without_logging_warnings_carry_their_values() -> None:
    said = run(SPEAK.format(verbosity=1))

    assert "WARNING job failed task=shop.tasks.charge" in said
    assert "completed" not in said


def test_without_logging_more_verbosity_shows_every_job() -> None:
    said = run(SPEAK.format(verbosity=2))

    assert "INFO job completed task=shop.tasks.resize" in said


@pytest.mark.parametrize("logger", ["root", "relay", "relay.worker"])
def test_a_project_that_handles_the_log_is_left_as_it_is(logger: str) -> None:
    handled = {"handlers": ["own"]}
    logging: dict[str, Any] = {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {"own": {"format": "own: %(message)s"}},
        "handlers": {"own": {"class": "logging.StreamHandler", "formatter": "own"}},
    }
    if logger == "root":
        logging["root"] = handled
    else:
        logging["loggers"] = {logger: handled}

    said = run(SPEAK.format(verbosity=2), LOGGING=logging)

    assert said.splitlines()[-1] == "own: job failed"
    assert "task=" not in said
