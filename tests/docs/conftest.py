"""A database for the project of one page."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from django.db import connection

from tests.docs.project import parameters


@pytest.fixture
def database(django_db_setup: None) -> Iterator[dict[str, Any]]:
    settings = {
        key: connection.settings_dict[key]
        for key in ("ENGINE", "NAME", "USER", "PASSWORD", "HOST", "PORT")
    }
    name = f"snippets_{os.getpid()}"
    server = parameters(settings, dbname="postgres")
    with psycopg.connect(**server, autocommit=True) as own:
        own.execute(f'CREATE DATABASE "{name}"'.encode())
    yield settings | {"NAME": name}
    with psycopg.connect(**server, autocommit=True) as own:
        own.execute(f'DROP DATABASE "{name}" WITH (FORCE)'.encode())
