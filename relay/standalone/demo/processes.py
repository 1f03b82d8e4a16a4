"""The processes that the demo starts, each in a group of its own, ended by number."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from relay.exceptions import StandaloneError
from relay.standalone.demo.terminal import LOOK_SECONDS, Stop

__all__ = ["Process", "Processes"]

# The grace of the demo's settings, and what a worker needs to hand back the rest.
STOP_SECONDS: Final = 15.0
LOG_TAIL_BYTES: Final = 2_000


@dataclass(slots=True)
class Process:
    """One of them.

    Attributes:
        was_killed: on purpose, so its end is no surprise.
    """

    name: str
    popen: subprocess.Popen[bytes]
    log: Path
    was_killed: bool = False

    @property
    def is_running(self) -> bool:
        return self.popen.poll() is None

    def freeze(self) -> None:
        """Stop the whole group where it stands, until it goes on or is killed."""
        self._send(signal.SIGSTOP)

    def go_on(self) -> None:
        """Let the frozen group go on as if nothing had been."""
        self._send(signal.SIGCONT)

    def kill(self) -> None:
        """Kill the whole group at once, as a lost machine does, and collect it."""
        self.was_killed = True
        self._send(signal.SIGKILL)
        self.popen.wait()

    def _send(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.popen.pid, number)


class Processes:
    """Starts and stops them.

    Args:
        environment: besides this process's own.
    """

    def __init__(self, data: Path, environment: Mapping[str, str]) -> None:
        self._data = data
        self._environment = {**os.environ, **environment}
        self.all: list[Process] = []

    def start(self, name: str, *arguments: str) -> Process:
        """Start a command of the demo's manage.py; its output goes to a log."""
        log = self._data / f"{name}.log"
        environment = {**self._environment, "RELAY_DEMO_PARENT": str(os.getpid())}
        with log.open("wb") as output:
            popen = subprocess.Popen(  # noqa: S603 - relay's own command
                [sys.executable, "-m", "relay.standalone.demo.manage", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=environment,
                # Ctrl-C reaches the demo alone, which then stops the others in order.
                start_new_session=True,
            )
        process = Process(name, popen, log)
        self.all.append(process)
        return process

    def check(self) -> None:
        """Notice one that ended by itself.

        Raises:
            StandaloneError: with the end of what it wrote.
        """
        for process in self.all:
            if not process.was_killed and not process.is_running:
                process.was_killed = True  # told once
                text = process.log.read_bytes()[-LOG_TAIL_BYTES:].decode(
                    errors="replace"
                )
                raise StandaloneError(
                    f"{process.name} ended by itself with code "
                    f"{process.popen.returncode}; {process.log} ends with:\n"
                    f"{text.strip()}"
                )

    def stop(self, stop: Stop) -> list[Process]:
        """End all by SIGTERM; kill what stays, or all of it at one more signal.

        Returns:
            those that had to be killed.
        """
        running = [process for process in self.all if process.is_running]
        for process in running:
            process.popen.terminate()
        signals, ends_at = stop.count, time.monotonic() + STOP_SECONDS
        while any(process.is_running for process in running):
            if stop.count > signals or time.monotonic() > ends_at:
                break
            time.sleep(LOOK_SECONDS)
        left = [process for process in running if process.is_running]
        for process in left:
            process.kill()
        return left
