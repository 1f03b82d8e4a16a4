"""What the processes of a worker inherit from its parent, and what they run with it."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Callable
from importlib import metadata
from uuid import UUID

from relay.ids import uuid7
from relay.probes import run_beside, serve
from relay.worker.brood import Brood
from relay.worker.child import ChildLoop
from relay.worker.health import WorkerHealth
from relay.worker.keeper import Keeper, KeeperOptions
from relay.worker.loop import CAPACITY
from relay.worker.messages import Channel, datagrams
from relay.worker.options import LoopOptions
from relay.worker.sessions import keep_connections
from relay.worker.shared import SharedState

__all__ = ["Inherited"]


class Inherited:
    """Memory, sockets and pipes. The parent makes them before it forks.

    Both ends of everything stay open there: a new keeper or child inherits them, with
    what its predecessor had not read.

    Args:
        options: what each child runs.
        processes: how many children.
        name: a label for the workers' rows; host-pid unless given.
        probes: a socket that listens, for each keeper to answer on the same port.
        probe_file: the path of a file for it to keep up to date.

    Attributes:
        channel: the parent's end of what it tells the keeper and is told.
    """

    def __init__(
        self,
        options: LoopOptions,
        processes: int,
        *,
        name: str | None,
        probes: socket.socket | None,
        probe_file: str | None,
    ) -> None:
        self._options = options
        self._probes = probes
        self._probe_file = probe_file
        self.shared = SharedState(processes, CAPACITY)
        self._pairs = [datagrams() for _ in range(processes)]
        near, self._far = datagrams()
        self.channel = Channel(near)
        self._alive_reader, self._alive_writer = os.pipe()
        self.keeper_options = KeeperOptions(
            name=name or f"{socket.gethostname()}-{os.getpid()}",
            supervisor=uuid7(),
            queues=list(options.queues),
            concurrency=options.concurrency,
            version=metadata.version("django-relay"),
        )

    def run_keeper(self, look: Callable[[], object] | None) -> int:
        """Be the keeper; return its exit code.

        Args:
            look: what it does in a thread of its own, beside its work.
        """
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        os.close(self._alive_writer)
        keeper = Keeper(
            self.keeper_options,
            self.shared,
            Channel(self._far),
            [near for near, _ in self._pairs],
            self._alive_reader,
        )
        health = WorkerHealth(self.shared, keeper.view)
        serve(health, self._probes, self._probe_file)
        if look is not None:
            run_beside("relay-checks", look)
        return keeper.run()

    def run_child(self, index: int, worker_id: UUID, brood: Brood | None) -> int:
        """Be the child at this place, under this id; return its exit code."""
        os.close(self._alive_writer)
        if self._probes is not None:
            self._probes.close()
        keep_connections()
        nursery = brood.start_nursery(self._options.concurrency) if brood else None
        loop = ChildLoop(
            worker_id,
            self._options,
            self.shared.tables[index],
            self._pairs[index][1],
            self._alive_reader,
            nursery,
        )
        loop.run()
        return 0
