"""The address in settings, and what starts the server."""

from __future__ import annotations

from pathlib import Path

import pytest

from relay.standalone.postgres import EmbeddedPostgres, database_settings, serve
from testproject.__main__ import needs_database
from tests.standalone.processes import command


def test_settings_start_nothing_and_touch_no_file(folder: Path) -> None:
    settings = database_settings(folder / "postgres")

    assert settings == {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": "postgres",
        "USER": "relay",
        "HOST": str(folder / "postgres"),
    }
    assert list(folder.iterdir()) == []


def test_database_url_wins_and_nothing_is_started(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DATABASE_URL", "postgresql://me@db:6543/jobs")

    assert serve(folder / "postgres") is None
    assert database_settings(folder / "postgres")["HOST"] == "db"
    assert list(folder.iterdir()) == []
    code, _, error = command("start", "--root", folder / "postgres")
    assert code == 1
    assert "DATABASE_URL is set" in error


def test_the_address_is_a_database_url_too(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    running = EmbeddedPostgres(root)
    monkeypatch.setenv("DATABASE_URL", running.dsn("jobs"))

    settings = database_settings(root)

    expected = running.django_settings("jobs")
    assert {key: settings[key] for key in expected} == expected


@pytest.mark.parametrize(
    ("line", "needed"),
    [
        ("", False),
        ("help", False),
        ("--version", False),
        ("migrate --help", False),
        ("makemigrations --check", False),
        ("collectstatic --noinput", False),
        ("makemigrations", True),
        ("migrate", True),
        ("relay_worker -c 2", True),
        ("runserver", True),
    ],
)
def test_only_commands_that_ask_the_database_start_it(line: str, needed: bool) -> None:
    assert needs_database(line.split()) is needed
