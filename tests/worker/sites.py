"""Web processes with a worker inside, and what a test asks of them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.chaos import proc
from tests.waiting import WAIT_SECONDS
from tests.worker.harness import ROOT, Database, Workers, until

__all__ = ["Site", "Sites"]


class Site:
    """One web server, with its worker's helper."""

    def __init__(
        self, process: subprocess.Popen[bytes], log: Path, port: Path, of: Database
    ) -> None:
        self.process = process
        self.log = log
        self.database = of
        self._port = port
        self._seen: dict[int, proc.Process] = {}

    @property
    def pid(self) -> int:
        return self.process.pid

    def text(self) -> str:
        return self.log.read_text(errors="replace")

    def workers(self, *states: str) -> list[dict[str, Any]]:
        """Return the rows of embedded workers that these processes run."""
        pids = [self.pid, *(each.pid for each in self._tree())]
        cursor = self.database.session.execute(
            "SELECT id, name, pid, state FROM relay_worker WHERE kind = 'embedded' "
            "AND pid = ANY(%s) AND state = ANY(%s)",
            (pids, list(states or ("running", "draining"))),
        )
        return [
            dict(zip(("id", "name", "pid", "state"), row, strict=True))
            for row in cursor.fetchall()
        ]

    def wait_until_ready(self) -> None:
        until(
            lambda: self.process.poll() is None and len(self.workers()) == 1,
            what=f"a worker in the web process\n{self.text()}",
        )

    def helper_pid(self) -> int:
        def found() -> list[int]:
            return [each.pid for each in self._tree() if _is_helper(each.pid)]

        until(lambda: len(found()) == 1, what="one helper")
        return found()[0]

    def ask(self, path: str) -> Any:
        until(self._port.exists, what=f"a port\n{self.text()}")
        url = f"http://127.0.0.1:{self._port.read_text()}{path}"
        try:
            with urllib.request.urlopen(url, timeout=60) as answer:
                return json.loads(answer.read())
        except urllib.error.HTTPError as error:
            with error:
                text = error.read().decode(errors="replace")
            raise AssertionError(f"{path}: {error.code} {text}") from None

    def stop(self, seconds: float = WAIT_SECONDS) -> int:
        os.kill(self.pid, signal.SIGTERM)
        return self.wait(seconds)

    def wait(self, seconds: float = WAIT_SECONDS) -> int:
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"the server goes on\n{self.text()}") from None

    def wait_until_all_is_gone(self) -> None:
        """Wait until neither the server nor any process of its lives."""
        self._tree()
        until(
            lambda: not any(proc.is_same(each) for each in self._seen.values()),
            what="the end of all of its processes",
        )

    def end(self) -> None:
        """Kill all of it, whatever state it is in."""
        self._tree()
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        for each in self._seen.values():
            if proc.is_same(each):
                with suppress(ProcessLookupError):
                    os.kill(each.pid, signal.SIGKILL)
        self.wait_until_all_is_gone()

    def _tree(self) -> list[proc.Process]:
        found = proc.descendants_of(self.pid, proc.scan())
        self._seen.update({each.pid: each for each in found})
        return found


class Sites:
    """Starts web servers on a database, and ends them all."""

    def __init__(self, database: Database, workers: Workers, folder: Path) -> None:
        self._database = database
        self._workers = workers
        self._folder = folder
        self._all: list[Site] = []

    def start(
        self,
        *arguments: str,
        options: Mapping[str, Any] | None = None,
        environment: Mapping[str, str] | None = None,
        is_awaited: bool = True,
        cwd: Path = ROOT,
        **relay: Any,
    ) -> Site:
        """Start a server; keywords in capitals are of settings.RELAY, in seconds.

        Args:
            arguments: of Python; the tests' own server unless given.
            options: of relay.worker.embedded.start().
        """
        log = self._folder / f"site{len(self._all) + 1}.log"
        port = log.with_suffix(".port")
        more = {
            "WORKER_TESTS_EMBEDDED": json.dumps(options or {}),
            "PYTHONPATH": os.pathsep.join([str(cwd), str(ROOT)]),
            **(environment or {}),
        }
        command = arguments or ("-m", "tests.worker.web.server", str(port))
        # A helper takes a moment to load the project: the leases are longer than it.
        relay = {"LEASE": 10, **relay}
        with log.open("ab") as output:
            process = subprocess.Popen(
                [sys.executable, *command],
                cwd=cwd,
                env=self._workers.environment(relay, more),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        site = Site(process, log, port, self._database)
        self._all.append(site)
        if is_awaited:
            site.wait_until_ready()
        return site

    def end(self) -> None:
        for site in self._all:
            site.end()
            sys.stderr.write(f"--- {site.log.name}\n{site.text()}")  # if a test fails


def _is_helper(pid: int) -> bool:
    with suppress(OSError):
        return b"relay.worker.embedded.helper" in Path(
            f"/proc/{pid}/cmdline"
        ).read_bytes().split(b"\0")
    return False
