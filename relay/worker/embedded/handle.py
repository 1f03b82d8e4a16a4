"""The helper process of an embedded worker, as the web process sees it."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from multiprocessing.spawn import get_executable
from typing import Final

from django.conf import settings

from relay.conf import get_settings
from relay.worker.embedded.where import HELPER_MARK
from relay.worker.fence import stall_limit
from relay.worker.shared import SharedState

__all__ = ["Helper", "Order"]

logger = logging.getLogger("relay.worker")

# For a helper to load the project, before anybody calls it stuck.
FIRST_TICK_SECONDS: Final = 60.0
SHORT_LIFE_SECONDS: Final = 5.0
FIRST_RESTART_SECONDS: Final = 0.1
LONGEST_RESTART_SECONDS: Final = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What the helper is told at its start; the last four are inherited descriptors."""

    name: str
    supervisor: str
    queues: list[str]
    concurrency: int
    version: str
    web_pid: int
    memory: int
    channel: int
    waker: int
    alive: int


class Helper:
    """Starts the helper, and another where it dies or stands still.

    It is spawned, not forked, as a web process has threads, and loads the project's
    settings by their module's name.
    """

    def __init__(self, order: Order, shared: SharedState) -> None:
        self._order = order
        self._shared = shared
        self._stall_seconds = stall_limit(get_settings().lease).total_seconds()
        self._process: subprocess.Popen[bytes] | None = None
        self._started_at = 0.0
        self._start_at = 0.0
        self._backoff_seconds = FIRST_RESTART_SECONDS

    def see_to(self) -> bool:
        """See that it runs; True if a new one was started, which knows nothing yet."""
        now = time.monotonic()
        if self._process is not None:
            self._kill_stalled(now)
            if not self.has_ended():
                return False
            self._note_end(now, self._process.returncode)
            self._process = None
        if now < self._start_at:
            return False
        self._start(now)
        return True

    def has_ended(self) -> bool:
        """Tell whether there is none that runs."""
        return self._process is None or self._process.poll() is not None

    def kill(self) -> None:
        """End it, if it runs."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def _kill_stalled(self, now: float) -> None:
        ticked_at = self._shared.keeper_ticked_at
        if ticked_at == 0.0:
            is_stalled = now - self._started_at > FIRST_TICK_SECONDS
        else:
            is_stalled = now - ticked_at > self._stall_seconds
        if is_stalled and self._process is not None:
            logger.error(
                "the helper process stands still: it is replaced",
                extra={"event": "worker.keeper_stalled", "pid": self._process.pid},
            )
            self.kill()

    def _note_end(self, now: float, code: int) -> None:
        logger.error(
            "the helper process of the embedded worker died"
            if self._shared.keeper_ticked_at
            else "the helper process of the embedded worker could not begin: see above",
            extra={"event": "worker.keeper_died", "code": code},
        )
        if now - self._started_at >= SHORT_LIFE_SECONDS:
            self._backoff_seconds = FIRST_RESTART_SECONDS
            return
        self._start_at = now + self._backoff_seconds
        self._backoff_seconds = min(2 * self._backoff_seconds, LONGEST_RESTART_SECONDS)

    def _start(self, now: float) -> None:
        order = self._order
        self._shared.keeper_ticked_at = 0.0
        self._started_at = now
        self._process = subprocess.Popen(  # noqa: S603 - this very Python, and no shell
            [
                # Where it is embedded in a server, multiprocessing.set_executable()
                # says which Python it is.
                os.fsdecode(get_executable()),
                "-P",
                "-m",
                "relay.worker.embedded.helper",
                json.dumps(asdict(order)),
            ],
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path),
                "DJANGO_SETTINGS_MODULE": settings.SETTINGS_MODULE,
                HELPER_MARK: "1",
            },
            stdin=subprocess.DEVNULL,
            pass_fds=(order.memory, order.channel, order.waker, order.alive),
            # Signals for the web server's group are the server's to take.
            start_new_session=True,
        )
