from __future__ import annotations

import pytest

from relay.exceptions import StandaloneError
from relay.standalone.postgres import parse_database_url


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        (
            "postgresql://me:s%40cret@db.example:6543/jobs",
            {
                "NAME": "jobs",
                "USER": "me",
                "PASSWORD": "s@cret",
                "HOST": "db.example",
                "PORT": "6543",
            },
        ),
        ("postgres:///jobs", {"NAME": "jobs", "USER": "", "HOST": "", "PORT": ""}),
        ("postgresql://[::1]:5432/jobs", {"HOST": "::1", "PORT": "5432"}),
        ("postgresql://me@%2Fvar%2FRun/jobs", {"HOST": "/var/Run"}),
        ("postgresql://me@/jobs?host=%2Fvar%2FRun&port=1", {"HOST": "/var/Run"}),
        (
            "postgresql://db/jobs?sslmode=require&application_name=relay",
            {"OPTIONS": {"sslmode": "require", "application_name": "relay"}},
        ),
    ],
)
def test_an_address_becomes_djangos_settings(
    url: str, expected: dict[str, object]
) -> None:
    settings = parse_database_url(url)

    assert settings["ENGINE"] == "django.db.backends.postgresql"
    assert {key: settings[key] for key in expected} == expected


@pytest.mark.parametrize(
    "url",
    [
        "sqlite:///secret",
        "mysql://me:secret@db/jobs",
        "postgresql://me:secret@db",
        "postgresql://me:secret@db/",
        "postgresql://me:secret@db:port/jobs",
        "postgresql://me:secret@db/jobs?sslmode",
        "secret",
    ],
)
def test_what_names_no_postgresql_database_is_refused_without_its_password(
    url: str,
) -> None:
    with pytest.raises(StandaloneError, match="DATABASE_URL") as caught:
        parse_database_url(url)

    assert "secret" not in str(caught.value)
