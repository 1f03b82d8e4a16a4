"""The keeper: leases, LISTEN and duties of one worker. It runs no user code.

So neither a handler that holds the interpreter's lock nor a frozen event loop can
cost a lease.
"""

from __future__ import annotations

import logging
import os
import socket
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, Literal, NoReturn
from uuid import UUID

import psycopg

from relay import counts
from relay.conf import OWN_QUEUE, get_settings
from relay.engine import holdings, lease, workers
from relay.engine.connection import EngineConnection
from relay.scheduler.duty import ScheduleDuty
from relay.worker.bell import readable
from relay.worker.cancels import write_cancels
from relay.worker.dead import hand_back, read_dead
from relay.worker.duties import (
    Duty,
    Expire,
    Heed,
    Promote,
    Prune,
    PruneRecords,
    Reap,
    wake,
)
from relay.worker.health import View
from relay.worker.link import Link
from relay.worker.listener import Listener
from relay.worker.messages import Channel
from relay.worker.rollup import RollUp
from relay.worker.rota import Rota
from relay.worker.shared import SharedState

__all__ = ["GAVE_UP", "Keeper", "KeeperOptions"]

logger = logging.getLogger("relay.worker")

# Of the lease, so that two missed renewals survive. Source: docs/explanation/leases.md.
RENEW_FRACTION: Final = 1 / 3
LONGEST_BACKOFF_SECONDS: Final = 1.0
# Between two looks whether a job of the children's is to stop, if no wake-up comes.
CANCEL_POLL_SECONDS: Final = 1.0
# How long the keeper goes on trying to hand jobs back once everybody else is gone.
STOP_SECONDS: Final = 4.0
# Exit code: jobs were left to their leases. No other end of a process has it.
GAVE_UP: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class KeeperOptions:
    """What the keeper says of its children in their rows."""

    name: str
    supervisor: UUID
    queues: Sequence[str]
    concurrency: int
    version: str
    kind: Literal["process", "embedded"] = "process"


@dataclass(slots=True)
class _Child:
    worker_id: UUID
    pid: int
    is_registered: bool = False


class Keeper:
    """Keeps a worker's children registered and alive in the database's eyes.

    Args:
        shared: memory shared with parent and children; survives this process.
        parent: messages to and from the parent.
        children: one datagram socket a child, to wake it.
        parent_pipe: a pipe that ends when the parent dies.
    """

    def __init__(
        self,
        options: KeeperOptions,
        shared: SharedState,
        parent: Channel,
        children: Sequence[socket.socket],
        parent_pipe: int,
    ) -> None:
        self._options = options
        self._settings = get_settings()
        self._lease = self._settings.lease
        self._shared = shared
        self._parent = parent
        self._sockets = children
        self._parent_pipe = parent_pipe
        self._children: dict[int, _Child] = {}
        self._dead: dict[UUID, holdings.DeadChild] = {}
        self._link = Link(
            role="duty",
            name="keeper",
            trouble="database trouble: leases cannot be renewed now",
            event="worker.heartbeat_failed",
            longest_seconds=LONGEST_BACKOFF_SECONDS,
        )
        self._sound_since = 0.0
        self._worked_at = time.monotonic()
        self._listener = Listener(children, on_cancel=self._look_for_cancels)
        self._renew_at = 0.0
        self._cancel_at = 0.0
        self._is_draining = False
        self._is_drain_told = False
        self._stop_by: float | None = None
        # An embedded worker's metrics are kept in its web process.
        self._roll_up = RollUp(children, is_metered=options.kind == "process")
        self._rota = Rota(self._duties())

    def _duties(self) -> list[Duty]:
        duties: list[Duty] = [
            Promote(),
            Expire(),
            Reap(self._is_sound),
            Heed(self._options.supervisor, self._heed),
            Prune(),
            PruneRecords(),
            self._roll_up,
        ]
        if self._settings.schedule_in_workers:
            duties.append(ScheduleDuty())
        return duties

    def _heed(self, request: workers.Request) -> None:
        """Do what an operator has asked of the whole worker."""
        if request == "stop":
            # Of no child: there may be none now, as while they die one after another.
            self._parent.send(kind="shutdown", worker=str(self._options.supervisor))
            return
        self._shared.is_quiet = request == "quiet"
        self._listener.nudge(b"")

    def _is_sound(self) -> bool:
        return (
            self._link.connection is not None
            and time.monotonic() - self._sound_since >= self._lease.total_seconds()
        )

    def view(self) -> View:
        """Return what only this process knows, for those who watch it; any thread."""
        options = self._options
        return View(
            name=options.name,
            queues=list(options.queues),
            concurrency=options.concurrency,
            children={
                index: (child.worker_id, child.pid, child.is_registered)
                for index, child in list(self._children.items())
            },
            is_connected=self._link.connection is not None,
            is_draining=self._is_draining,
            claimed_at=self._roll_up.claimed_at,
        )

    # --- the loop --------------------------------------------------------------------

    def run(self) -> int:
        """Run until the parent says stop; return the exit code.

        GAVE_UP says that jobs were left to their leases: the database was away.
        """
        while True:
            self._work()
            if self._stop_by is not None:
                if not self._dead:
                    return 0
                if time.monotonic() > self._stop_by:
                    return GAVE_UP
            self._wait()

    def _work(self) -> None:
        now = time.monotonic()
        if now - self._worked_at > self._lease.total_seconds() / 2:
            # This process was stopped, and with it perhaps the whole machine: then
            # the leases of its neighbours ran out through no fault of theirs.
            self._sound_since = now
        self._worked_at = now
        self._shared.keeper_ticked_at = now
        if now < self._link.retry_at:
            return
        try:
            connection = self._connected()
            # Renewals first: nothing that fails again and again may cost a lease.
            self._renew(connection)
            self._register(connection)
            self._settle(connection)
            self._tell_drain(connection)
            self._tell_cancels(connection, now)
            if self._stop_by is None:
                # A duty may take its time: renewals come first.
                self._rota.turn(connection, until=self._renew_at)
            else:
                self._roll_up.tick(connection)
        except psycopg.Error as error:
            self._link.lose(error)

    def _wait(self) -> None:
        now = time.monotonic()
        until = [self._renew_at, self._cancel_at, self._rota.due_at]
        if self._stop_by is not None:
            until.append(self._stop_by)
        first = max(min(until), self._link.retry_at)
        # It may wait for the server as long as the round before did.
        self._shared.keeper_ticked_at = now
        self._listener.listen(now)
        readers: list[Any] = [self._parent, self._parent_pipe, *self._sockets]
        if self._listener.connection is not None:
            readers.append(self._listener.connection)
        elif self._listener.due_at is not None:
            first = min(first, self._listener.due_at)
        ready = readable(readers, min(1.0, max(0.0, first - now)))
        if self._parent_pipe in ready:
            self._end_orphaned()
        if self._parent in ready:
            for message in self._parent.receive():
                self._take_in(message)
        self._parent.flush()
        for child in self._sockets:
            if child in ready:
                self._roll_up.read(child)
        if self._listener.connection in ready:
            self._listener.read()

    def _end_orphaned(self) -> NoReturn:
        os._exit(1)  # the parent is gone, and with it the children

    # --- the parent's messages -------------------------------------------------------

    def _take_in(self, message: dict[str, Any]) -> None:
        kind = message["kind"]
        if kind == "child":
            worker_id = UUID(message["worker"])
            index = message["index"]
            known = self._children.get(index)
            if known is None or known.worker_id != worker_id:
                self._children[index] = _Child(worker_id, message["pid"])
        elif kind == "dead":
            dead = read_dead(message)
            for index, child in list(self._children.items()):
                if child.worker_id == dead.worker_id:
                    del self._children[index]
                    self._roll_up.forget(index)
            self._dead[dead.worker_id] = dead
        elif kind == "drain":
            self._is_draining = True
        elif kind == "stop":
            self._stop_by = time.monotonic() + STOP_SECONDS

    # --- what the keeper is for ------------------------------------------------------

    def _settle(self, connection: EngineConnection) -> None:
        """Give back what dead children held, without waiting for their leases."""
        for worker_id, child in list(self._dead.items()):
            wake(connection, hand_back(connection, child))
            del self._dead[worker_id]
            self._parent.send(kind="settled", worker=str(worker_id))

    def _register(self, connection: EngineConnection) -> None:
        """Write the rows of new children; only then do they claim.

        A child that an earlier keeper registered has a row, with a lease that is as
        old as its last renewal: it is renewed before anything else.
        """
        for index, child in self._children.items():
            if child.is_registered:
                continue
            table = self._shared.tables[index]
            if table.worker_id != child.worker_id:
                continue  # it is dead already; the parent's message is on its way
            if table.is_registered:
                child.is_registered = True
                self._renew_at = 0.0
                continue
            sent_at = time.monotonic()
            lease.register(connection, self._row(index, child), lease=self._lease)
            if not self._has_leases():
                self._shared.lease_safe_until = sent_at + self._lease.total_seconds()
                self._renew_at = sent_at + self._renew_seconds()
            child.is_registered = True
            table.mark_registered()
            logger.info(
                "ready",
                extra={"event": "worker.ready", "worker_id": str(child.worker_id)},
            )
            self._link.is_sound()
            self._listener.nudge(b"")

    def _row(self, index: int, child: _Child) -> lease.WorkerRow:
        options = self._options
        return lease.WorkerRow(
            id=child.worker_id,
            name=f"{options.name}-{index + 1}",
            supervisor=options.supervisor,
            host=socket.gethostname(),
            pid=child.pid,
            queues=options.queues,
            concurrency=options.concurrency,
            version=options.version,
            kind=options.kind,
            state="quiet" if self._shared.is_quiet else "running",
        )

    def _has_leases(self) -> bool:
        """Tell whether a child has a lease already, be it from an earlier keeper."""
        tables = self._shared.tables
        return any(
            tables[index].is_registered and tables[index].worker_id == child.worker_id
            for index, child in self._children.items()
        )

    def _renew_seconds(self) -> float:
        return self._lease.total_seconds() * RENEW_FRACTION

    def _renew(self, connection: EngineConnection) -> None:
        """Renew all leases in one statement; report those that are lost."""
        sent_at = time.monotonic()
        if sent_at < self._renew_at:
            return
        registered = {
            child.worker_id: index
            for index, child in self._children.items()
            if child.is_registered
        }
        if registered:
            alive = lease.renew(connection, registered, lease=self._lease)
            counts.add("relay_leases_renewed_total", amount=len(alive))
            for worker_id, index in registered.items():
                if worker_id not in alive:
                    del self._children[index]
                    self._parent.send(kind="lost", worker=str(worker_id))
            self._shared.lease_safe_until = sent_at + self._lease.total_seconds()
            # Only a write shows that the server takes writes.
            self._link.is_sound()
        self._renew_at = sent_at + self._renew_seconds()

    def _tell_drain(self, connection: EngineConnection) -> None:
        if self._is_draining and not self._is_drain_told:
            lease.set_state(
                connection,
                [child.worker_id for child in self._children.values()],
                "draining",
            )
            self._is_drain_told = True

    def _look_for_cancels(self) -> None:
        self._cancel_at = 0.0

    def _tell_cancels(self, connection: EngineConnection, now: float) -> None:
        """Tell each child which of its jobs are to stop, again until they have.

        A datagram that a full socket does not take is sent with the next look.
        """
        if now < self._cancel_at:
            return
        is_poll, self._cancel_at = self._cancel_at > 0, now + CANCEL_POLL_SECONDS
        if is_poll and all(table.is_empty for table in self._shared.tables):
            return  # nobody runs anything that could stop
        indexes = {
            child.worker_id: index
            for index, child in self._children.items()
            if child.is_registered
        }
        if not indexes:
            return
        jobs: dict[int, list[tuple[UUID, int]]] = {}
        for worker_id, job_id, attempt in holdings.cancel_requested(
            connection, indexes, [OWN_QUEUE, *self._options.queues]
        ):
            jobs.setdefault(indexes[worker_id], []).append((job_id, attempt))
        for index, of_child in jobs.items():
            self._parent.send(
                kind="asked",
                worker=str(self._children[index].worker_id),
                jobs=[(str(job_id), attempt) for job_id, attempt in of_child],
            )
            for datagram in write_cancels(of_child):
                with suppress(OSError):  # it has unread ones, or it is gone
                    self._sockets[index].send(datagram)

    def _connected(self) -> EngineConnection:
        if self._link.connection is None:
            connection = self._link.connected()
            self._sound_since = time.monotonic()
            return connection
        return self._link.connected()
