"""python -m relay.worker.embedded.helper: the keeper of an embedded worker.

It is a child of the web process, and outlives it by the moment that it takes to hand
the jobs back.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import time
from typing import Any, Final, NoReturn
from uuid import UUID

import django

from relay.worker.embedded.handle import Order
from relay.worker.keeper import GAVE_UP, STOP_SECONDS, Keeper, KeeperOptions
from relay.worker.loop import CAPACITY
from relay.worker.messages import Channel
from relay.worker.shared import SharedState
from relay.worker.stuck import in_hand

__all__ = ["EmbeddedKeeper", "main"]

# Between the end of a process's pipes and the end of the process.
LAST_MOMENT_SECONDS: Final = 2.0
LOOK_SECONDS: Final = 0.01


class EmbeddedKeeper(Keeper):
    """A keeper that hands the jobs back itself when the web process is gone.

    Args:
        web_pid: the web process, whose child this process is.
    """

    def __init__(self, *args: Any, web_pid: int) -> None:
        super().__init__(*args)
        self._web_pid = web_pid

    def _work(self) -> None:
        # A process forked from the web process may keep the pipe open.
        if os.getppid() != self._web_pid:
            self._end_orphaned()
        super()._work()

    def _end_orphaned(self) -> NoReturn:
        """Settle what the web process held, as no thread of it runs any more.

        What it had started is charged as a crash, unless it was draining.
        """
        self._wait_for_its_end()
        for message in self._parent.receive():
            self._take_in(message)
        table = self._shared.tables[0]
        if table.is_registered:
            self._take_in(
                {
                    "kind": "dead",
                    "worker": str(table.worker_id),
                    **in_hand(table),
                    "is_charged": not self._is_draining,
                    "reason": "the web process of its worker ended",
                }
            )
        self._children.clear()
        self._stop_by = time.monotonic() + STOP_SECONDS
        while self._dead and time.monotonic() < self._stop_by:
            super()._work()
            time.sleep(LOOK_SECONDS)
        os._exit(GAVE_UP if self._dead else 0)

    def _wait_for_its_end(self) -> None:
        """Wait until the process is gone: it closes its files a moment before."""
        deadline = time.monotonic() + LAST_MOMENT_SECONDS
        while os.getppid() == self._web_pid:
            if time.monotonic() > deadline:
                # It lives on and closed its files: another helper, or the lease.
                os._exit(1)
            time.sleep(LOOK_SECONDS)


def main() -> int:
    """Run until the web process says stop, or is gone."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    order = Order(**json.loads(sys.argv[1]))
    django.setup()
    keeper = EmbeddedKeeper(
        KeeperOptions(
            name=order.name,
            supervisor=UUID(order.supervisor),
            queues=order.queues,
            concurrency=order.concurrency,
            version=order.version,
            kind="embedded",
        ),
        SharedState(1, CAPACITY, file=order.memory),
        Channel(socket.socket(fileno=order.channel)),
        [socket.socket(fileno=order.waker)],
        order.alive,
        web_pid=order.web_pid,
    )
    return keeper.run()


if __name__ == "__main__":
    sys.exit(main())
