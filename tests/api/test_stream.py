"""News as server-sent events, over a real ASGI server."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta
from typing import Any

import pytest
import uvicorn
from django.contrib.auth.models import User
from django.core.asgi import get_asgi_application
from django.core.signals import request_finished
from django.db import connection, connections
from django.test import Client
from django.utils import timezone

from relay import enqueue
from relay.api import stream
from relay.api.stream import StreamView
from relay.conf import get_settings
from relay.engine import listening
from relay.exceptions import SettingsError
from relay.models import ApiToken, Job
from relay.operations import PERMISSIONS
from tests.api.factory import api, make_token
from tests.operations.factory import make_job
from tests.security.surfaces import browser_of
from tests.waiting import until

ON = {"API": {"STREAM": True}}
ECHO = "testproject.tasks.echo"


class Server(uvicorn.Server):
    """Serves the project from a thread, on any free port."""

    def __init__(self) -> None:
        super().__init__(
            uvicorn.Config(
                get_asgi_application(),
                port=0,
                lifespan="off",
                log_config=None,
                timeout_graceful_shutdown=1,
            )
        )
        self.thread = threading.Thread(target=self.run)

    def __enter__(self) -> Server:
        self.thread.start()
        until(lambda: self.started)
        return self

    def __exit__(self, *_: object) -> None:
        self.should_exit = True
        self.thread.join()

    @property
    def port(self) -> int:
        return int(self.servers[0].sockets[0].getsockname()[1])


class Listening:
    """One client of the stream, and what it has been told."""

    def __init__(
        self, server: Server, query: str = "", *, method: str = "GET", **headers: str
    ) -> None:
        self.connection = http.client.HTTPConnection(
            "127.0.0.1", server.port, timeout=90
        )
        self.connection.request(method, f"/v1/stream{query}", headers=headers)
        self.response = self.connection.getresponse()

    def events(self) -> Iterator[tuple[str, Any]]:
        """Yield the name and the document of each event; ends with the stream."""
        assert self.response.status == 200, self.response.read()
        name = ""
        for line in self.response:
            key, _, value = line.decode().rstrip("\n").partition(": ")
            if key == "event":
                name = value
            elif key == "data":
                yield name, json.loads(value)

    def close(self) -> None:
        self.response.close()
        self.connection.close()


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    request_finished.connect(_close)
    with Server() as made:
        yield made
    request_finished.disconnect(_close)


def _close(**_: Any) -> None:
    """Close what a request of the server's used.

    Django's own receiver does so, but for as long as a test's client asks.
    """
    if threading.current_thread() is not threading.main_thread():
        connections.close_all()


@pytest.fixture(autouse=True)
def _leave_nothing(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(listening, "TURN_SECONDS", 0.05)
    yield
    until(lambda: not StreamView._open)
    threads = listening._listeners.values
    until(lambda: all(each._thread is None for each in threads()))


@pytest.fixture
def _on(settings: Any) -> None:
    settings.RELAY = ON


def hear(events: Iterator[tuple[str, Any]], queue: str) -> None:
    """Wait until a job of the queue is ready.

    Other tests' queues may be told of as well: a wake-up of theirs may still be owed.
    """
    assert any(name == "ready" and queue in told["queues"] for name, told in events)


def bearer(secret: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {secret}"}


def backends(name: str) -> int:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE application_name = %s", [name]
        )
        return int(cursor.fetchone()[0])


def others() -> int:
    """Return how many connections there are besides the test's own."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() "
            "AND pid <> pg_backend_pid() AND backend_type = 'client backend' "
            "AND application_name NOT LIKE 'relay %%'"
        )
        return int(cursor.fetchone()[0])


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("_on")
def test_clients_hear_of_ready_jobs_over_one_connection(server: Server) -> None:
    secret = make_token("read")
    before = others()
    with (
        closing(Listening(server, **bearer(secret))) as everything,
        closing(Listening(server, "?queue=mail,x", **bearer(secret))) as mail,
    ):
        assert everything.response.getheader("Content-Type") == "text/event-stream"
        assert everything.response.getheader("Cache-Control") == "no-store"
        all_events, mail_events = everything.events(), mail.events()
        assert next(all_events) == next(mail_events) == ("listening", {})

        enqueue(ECHO, 1)
        hear(all_events, "default")
        enqueue(ECHO, 1, queue="mail")
        assert next(mail_events) == ("ready", {"queues": ["mail"]})
        hear(all_events, "mail")

        until(lambda: others() <= before, what="no session beyond the one that listens")
        assert backends("relay stream") == 1
    until(lambda: backends("relay stream") == 0)


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("_on")
def test_the_end_of_a_job_is_told_and_ends_the_stream(server: Server) -> None:
    job = make_job("queued")
    path = f"?queue=none&job={job.pk}"
    with closing(Listening(server, path, **bearer(make_token("read")))) as client:
        events = client.events()
        assert next(events) == ("listening", {})

        Job.objects.update(state="failed", finished_at=timezone.now())

        assert list(events) == [("ended", {"job": str(job.pk), "state": "failed"})]


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("_on")
@pytest.mark.parametrize("how", ["revoked", "narrowed", "logged out", "disabled"])
def test_a_stream_ends_with_the_right_to_it(
    how: str, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "BEAT_SECONDS", 0.05)
    headers = bearer(make_token("read"))
    if how in ("logged out", "disabled"):
        browser = browser_of(*PERMISSIONS)
        headers = {"Cookie": f"sessionid={browser.cookies['sessionid'].value}"}
    with closing(Listening(server, **headers)) as client:
        events = client.events()
        assert next(events) == ("listening", {})

        if how == "revoked":
            ApiToken.objects.update(revoked_at=timezone.now() - timedelta(seconds=1))
        elif how == "narrowed":
            ApiToken.objects.update(queues=["mail"])
        elif how == "disabled":
            User.objects.update(is_active=False)
        else:
            browser.logout()

        assert list(events) == []


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("_on")
def test_a_token_for_some_queues_hears_of_no_other(server: Server) -> None:
    headers = bearer(make_token("read", queues=["mail"]))
    job = make_job("queued", queue="secret")
    refused = [
        Listening(server, "?queue=secret", **headers),
        Listening(server, f"?job={job.pk}", **headers),
        Listening(server, "?job=x", **headers),
        Listening(server),
        Listening(server, **bearer(make_token("submit"))),
    ]
    with closing(Listening(server, **headers)) as client:
        events = client.events()
        assert next(events) == ("listening", {})

        enqueue(ECHO, 1, queue="secret")
        enqueue(ECHO, 1, queue="mail")

        assert next(events) == ("ready", {"queues": ["mail"]})
    statuses = []
    for each in refused:
        statuses.append(each.response.status)
        each.close()
    assert statuses == [403, 404, 404, 401, 403]


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("_on")
def test_a_process_has_so_many_clients_and_no_more(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "MOST_CLIENTS", 1)
    headers = bearer(make_token("read"))
    with closing(Listening(server, **headers)) as first:
        assert next(first.events()) == ("listening", {})

        with closing(Listening(server, **headers)) as second:
            assert second.response.status == 429
            assert second.response.getheader("Retry-After") == "10"


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("_on")
def test_one_caller_leaves_places_to_the_others(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "MOST_OF_ONE", 1)
    greedy, other = (bearer(make_token("read", name=name)) for name in "ab")
    with closing(Listening(server, **greedy)) as first:
        assert next(first.events()) == ("listening", {})

        with closing(Listening(server, **greedy)) as second:
            assert second.response.status == 429
            assert b"listens to it 1 times" in second.response.read()
        with closing(Listening(server, **other)) as third:
            assert next(third.events()) == ("listening", {})


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("_on")
def test_of_those_that_come_at_the_same_time_no_more_are_let_in(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "MOST_OF_ONE", 1)
    headers = bearer(make_token("read"))
    answers = iter([None])  # to the first question of the second: as if it were alone
    full = StreamView._full

    def asked(view: StreamView) -> str | None:
        return next(answers, full(view)) if StreamView._open else full(view)

    monkeypatch.setattr(StreamView, "_full", asked)
    with closing(Listening(server, **headers)) as first:
        assert next(first.events()) == ("listening", {})

        with closing(Listening(server, **headers)) as second:
            assert second.response.status == 200
            assert list(second.events()) == []


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("_on")
def test_who_asks_for_the_headers_alone_gets_no_stream(server: Server) -> None:
    headers = bearer(make_token("read"))
    with closing(Listening(server, method="HEAD", **headers)) as client:
        assert client.response.status == 200
        assert client.response.read() == b""


# --- where there is none -------------------------------------------------------------


@pytest.mark.django_db
def test_there_is_no_stream_without_asgi(settings: Any) -> None:
    settings.RELAY = ON
    assert api("read").get("/v1/stream").status_code == 404
    assert Client().get("/v1/stream").status_code == 401


@pytest.mark.django_db(transaction=True)
def test_there_is_none_unless_it_is_switched_on(server: Server) -> None:
    with closing(Listening(server, **bearer(make_token("read")))) as client:
        assert client.response.status == 404
        assert b"RELAY['API']['STREAM'] is off" in client.response.read()


@pytest.mark.parametrize("other", [{"NOTIFY": False}, {"TRANSACTION_POOLER": True}])
def test_it_needs_what_it_listens_to(other: dict[str, bool], settings: Any) -> None:
    settings.RELAY = {**ON, **other}
    with pytest.raises(SettingsError, match="needs NOTIFY"):
        get_settings()
