"""Where an embedded worker starts, and with what."""

from __future__ import annotations

import sys
import threading
from datetime import timedelta
from typing import Any

import pytest
from django.test import override_settings
from django.test import utils as test_utils

from relay import RelayError
from relay.exceptions import UnknownQueue
from relay.worker.embedded import process, start
from relay.worker.embedded.where import HELPER_MARK, why_not

COMMANDS = ("runserver",)


@pytest.fixture
def outside_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(test_utils._TestState, "saved_data", raising=False)


@pytest.fixture
def in_a_server(outside_tests: None, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """A server's process, in which workers are made but not started."""
    made: list[Any] = []

    class Made:
        has_ended = False

        def __init__(self, options: Any, **others: Any) -> None:
            self.arguments = (options, others)
            made.append(self)

        def is_like(self, options: Any, **others: Any) -> bool:
            return self.arguments == (options, others)

        def start(self) -> None:
            pass

    monkeypatch.setattr(sys, "argv", ["/bin/gunicorn", "project.wsgi"])
    monkeypatch.setattr(process, "EmbeddedWorker", Made)
    monkeypatch.setattr(process, "_state", process._State())
    monkeypatch.setattr(process, "_register_exit", lambda: None)
    return made


def test_nothing_starts_while_tests_run() -> None:
    assert start() is None
    assert why_not(COMMANDS) == "tests run here"


@pytest.mark.usefixtures("outside_tests")
@pytest.mark.parametrize(
    "arguments",
    [
        ["manage.py", "migrate"],
        ["manage.py", "test"],
        ["manage.py", "testserver"],
        ["manage.py", "relay_worker"],
        ["/venv/bin/django-admin", "shell"],
    ],
)
def test_nothing_starts_in_a_management_command(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", arguments)

    assert why_not(COMMANDS) == f"manage.py {arguments[1]} is no web server"
    assert why_not([arguments[1]]) is None


@pytest.mark.usefixtures("outside_tests")
@pytest.mark.parametrize(
    ("arguments", "run_main", "starts"),
    [
        (["manage.py", "runserver"], None, False),
        (["manage.py", "runserver"], "true", True),
        (["manage.py", "runserver", "--noreload"], None, True),
        (["/bin/gunicorn", "project.wsgi"], None, True),
        (["server.py"], None, True),
    ],
)
def test_a_worker_starts_where_the_web_is_served(
    arguments: list[str],
    run_main: str | None,
    starts: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "argv", arguments)
    if run_main is None:
        monkeypatch.delenv("RUN_MAIN", raising=False)
    else:
        monkeypatch.setenv("RUN_MAIN", run_main)

    assert (why_not(COMMANDS) is None) is starts


@pytest.mark.usefixtures("in_a_server")
def test_nothing_starts_in_the_helper(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(HELPER_MARK, "1")

    assert start() is None


def test_a_second_start_returns_the_worker_or_says_what_differs(
    in_a_server: list[Any],
) -> None:
    first = start(concurrency=3)

    assert start(concurrency=3) is first
    with pytest.raises(RelayError, match="with other arguments"):
        start(concurrency=4)
    assert len(in_a_server) == 1


@override_settings(RELAY={"QUEUES": ["default", "mail"], "CONCURRENCY": 7})
def test_without_arguments_every_queue_that_the_code_names_is_served(
    in_a_server: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "check_process", lambda: None)

    start()

    options, others = in_a_server[0].arguments
    assert {"default", "mail"} <= set(options.queues)
    assert options.concurrency == 7
    assert others == {"grace": timedelta(seconds=10), "name": None}


@pytest.mark.usefixtures("in_a_server")
@pytest.mark.parametrize(
    ("arguments", "error", "said"),
    [
        ({"queues": ["nowhere"]}, UnknownQueue, "unknown queue 'nowhere'"),
        ({"queues": []}, ValueError, "queues is empty"),
        ({"queues": "default"}, ValueError, "give a list of names"),
        ({"queues": ["no good"]}, ValueError, "cannot name a queue"),
        ({"queues": {"default": 0}}, ValueError, "weight 0"),
        ({"concurrency": 0}, ValueError, "concurrency is 0"),
        ({"concurrency": True}, ValueError, "concurrency is True"),
        ({"grace": 10}, ValueError, "grace is 10"),
        ({"grace": timedelta(days=2)}, ValueError, "from 0 to one day"),
    ],
)
def test_arguments_out_of_range_are_refused(
    arguments: dict[str, Any], error: type[Exception], said: str
) -> None:
    with pytest.raises(error, match=said):
        start(**arguments)


@pytest.mark.usefixtures("in_a_server")
@override_settings(USE_TZ=True)
def test_settings_without_a_module_are_refused() -> None:
    # What override_settings makes is what settings.configure() makes.
    with pytest.raises(RelayError, match="DJANGO_SETTINGS_MODULE"):
        start()


@pytest.mark.usefixtures("in_a_server")
def test_patched_threads_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threading, "get_ident", lambda: 1)

    with pytest.raises(RelayError, match="gevent or eventlet"):
        start()


@pytest.mark.usefixtures("in_a_server")
def test_windows_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "win32")

    with pytest.raises(RelayError, match="Linux or macOS"):
        start()
