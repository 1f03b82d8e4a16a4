"""The WSGI application of the tests' web servers: a project's wsgi.py."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import Any

from django.core.wsgi import get_wsgi_application

from relay.worker.embedded import process, start

__all__ = ["application", "start_worker"]

django_application = get_wsgi_application()


def start_worker() -> Any:
    options = json.loads(os.environ.get("WORKER_TESTS_EMBEDDED", "{}"))
    if "grace" in options:
        options["grace"] = timedelta(seconds=options["grace"])
    return start(**{"concurrency": 2, **options})


start_worker()


def application(
    environ: dict[str, Any], start_response: Callable[..., Any]
) -> Iterable[bytes]:
    """Do what a test asks of the process, by the path."""
    act = _ACTS[environ["PATH_INFO"]]
    start_response("200 OK", [("Content-Type", "application/json")])
    return [json.dumps(act()).encode()]


def start_again() -> object:
    return start_worker() is start_worker()


def stop_worker() -> object:
    return process.stop()


def report() -> dict[str, Any]:
    """Return what there is of relay in this process."""
    files = []
    for name in os.listdir("/proc/self/fd"):
        try:
            files.append(os.readlink(f"/proc/self/fd/{name}"))
        except FileNotFoundError:
            continue  # of the listing itself
    threads = [thread.name for thread in threading.enumerate()]
    return {
        "threads": sorted(name for name in threads if name.startswith("relay-")),
        "files": files,
    }


def files_of_relay() -> list[str]:
    """Return what only this process may use: its pipes, sockets and session."""
    worker = process._state.worker
    assert worker is not None
    loop = worker._loop
    assert loop is not None
    assert loop._link.connection is not None
    ends = (worker._control, worker._waker, worker._near, worker._far)
    numbers = [
        *(end.fileno() for end in ends),
        worker._alive_reader,
        worker._alive_writer,
        loop._link.connection.pgconn.socket,
        *(bell._reader for bell in (worker._bell, loop._bell)),
        *(bell._writer for bell in (worker._bell, loop._bell)),
    ]
    return [os.readlink(f"/proc/self/fd/{number}") for number in numbers]


def fork() -> dict[str, Any]:
    """Fork without exec, as a preloading server does; return what the child sees."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        before = report()
        started = start_worker() is not None
        after = report()
        answer = {"before": before, "started": started, "after": after}
        os.write(writer, json.dumps(answer).encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as file:
        answer = json.loads(file.read())
    os.waitpid(pid, 0)
    return answer


_ACTS: dict[str, Callable[[], Any]] = {
    "/start": start_again,
    "/stop": stop_worker,
    "/report": report,
    "/relay": files_of_relay,
    "/fork": fork,
}
