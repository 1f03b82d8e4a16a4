"""Callers and rows for the tests of the API."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

from django.http import HttpResponse
from django.test import Client

from relay.models import Schedule, Worker
from relay.operations import Actor, create_token

__all__ = ["ROOT", "Api", "api", "make_schedule", "make_token", "make_worker"]

ROOT = Actor(name="root", source="cli")
LATER = datetime(2999, 1, 1, tzinfo=UTC)
EVERYTHING = ("admin",)


def make_token(*scopes: str, **values: Any) -> str:
    """Return the secret of a new token."""
    values.setdefault("name", "tests")
    name = values.pop("name")
    made = create_token(ROOT, name, scopes=scopes or EVERYTHING, **values)
    return made.secret


class Api:
    """A client that sends a token and JSON."""

    def __init__(self, secret: str | None, client: Client | None = None) -> None:
        self.client = client or Client()
        self.headers = {} if secret is None else {"Authorization": f"Bearer {secret}"}

    def send(
        self, method: str, path: str, body: Any = None, **headers: str
    ) -> HttpResponse:
        """Send a request; names of headers are written with underscores."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        data = b"" if body is None else body
        if not isinstance(data, bytes):
            data = json.dumps(data).encode()
        response = self.client.generic(
            method,
            path,
            data,
            content_type="application/json",
            headers={**self.headers, **named},
        )
        return response  # type: ignore[return-value] # one of the test client's

    def get(self, path: str, **headers: str) -> HttpResponse:
        return self.send("GET", path, **headers)

    def post(self, path: str, body: Any = None, **headers: str) -> HttpResponse:
        return self.send("POST", path, body, **headers)

    def patch(self, path: str, body: Any = None, **headers: str) -> HttpResponse:
        return self.send("PATCH", path, body, **headers)

    def delete(self, path: str, **headers: str) -> HttpResponse:
        return self.send("DELETE", path, **headers)


def api(*scopes: str, **values: Any) -> Api:
    """Return a client with a new token."""
    return Api(make_token(*scopes, **values))


def make_worker(**values: Any) -> Worker:
    defaults: dict[str, Any] = {
        "name": "host-1",
        "host": "host",
        "pid": 1,
        "queues": ["default"],
        "concurrency": 1,
        "version": "0",
        "lease_expires_at": LATER,
    }
    return Worker.objects.create(**{**defaults, **values})


def make_schedule(**values: Any) -> Schedule:
    defaults: dict[str, Any] = {
        "name": "nightly",
        "task": "testproject.tasks.echo",
        "cron": "0 3 * * *",
        "args": {"args": ["hello"], "kwargs": {}},
    }
    return Schedule.objects.create(**{**defaults, **values})
