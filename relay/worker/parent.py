"""The parent: forks, reaps, restarts, forwards signals. No thread, no connection."""

from __future__ import annotations

import gc
import logging
import os
import signal
import socket
import time
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from types import FrameType
from typing import Any, Final
from uuid import UUID

from relay import counts
from relay.conf import get_settings
from relay.ids import uuid7
from relay.worker.bell import Bell
from relay.worker.brood import Brood
from relay.worker.fence import fence_margin, stall_limit
from relay.worker.fork import end_of, fork, warn_of_threads
from relay.worker.inherited import Inherited
from relay.worker.keeper import GAVE_UP
from relay.worker.memory import resident_bytes
from relay.worker.options import LoopOptions
from relay.worker.places import Place, Process
from relay.worker.sessions import close_for_forks
from relay.worker.stuck import KILLED_FOR, Stuck, in_hand
from relay.worker.terminal import outlive_terminal

__all__ = ["Parent"]

logger = logging.getLogger("relay.worker")

LOOK_SECONDS: Final = 0.25
# A child whose loop has not gone round for this long, while it runs no job, is stuck.
STALL_SECONDS: Final = 30.0
# After the last child is gone, for the keeper to hand back jobs and end: with the
# grace it stays below the 5 s that W1 promises on top of it.
STOP_SECONDS: Final = 4.5


class Parent:
    """A worker: one keeper and some children.

    Args:
        options: what each child runs.
        processes: how many children.
        grace: how long running jobs may go on after the first signal.
        name: a label for the workers' rows; host-pid unless given.
        probes: a socket that listens, for the keeper to answer probes.
        probe_file: the path of a file for it to keep up to date.
        look: what the first keeper does in a thread of its own, beside its work.
    """

    def __init__(
        self,
        options: LoopOptions,
        *,
        processes: int,
        grace: timedelta,
        name: str | None = None,
        probes: socket.socket | None = None,
        probe_file: str | None = None,
        look: Callable[[], object] | None = None,
    ) -> None:
        self._options = options
        self._look_at_start = look
        self._grace = grace
        lease = get_settings().lease
        self._margin = fence_margin(lease).total_seconds()
        self._keeper_stall = stall_limit(lease).total_seconds()
        self._inherited = Inherited(
            options, processes, name=name, probes=probes, probe_file=probe_file
        )
        self._shared = self._inherited.shared
        self._places = [Place() for _ in range(processes)]
        self._keeper = Place()
        self._channel = self._inherited.channel
        self._bell = Bell()
        self._stuck = Stuck()
        self._unsettled: dict[UUID, dict[str, Any]] = {}
        self._signals = 0
        self._drain_by: float | None = None
        self._is_stopping = False
        self._has_given_up = False

    # --- the loop --------------------------------------------------------------------

    def run(self) -> int:
        """Run until a signal; return the exit code.

        SIGTERM and SIGINT drain: no new claims, running jobs go on for the grace, the
        rest is handed back uncharged. A second one ends that at once. SIGHUP drains
        too, unless it is ignored. 0 says that all jobs were finished or handed back.
        """
        self._prepare()
        try:
            while not self._is_over():
                self._look()
                self._sleep()
            return self._stop_keeper()
        finally:
            self._kill_everybody()

    def _prepare(self) -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)
        if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:  # as nohup leaves it
            signal.signal(signal.SIGHUP, self._on_hangup)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self._bell.ring_on_signals()
        outlive_terminal()
        close_for_forks()
        warn_of_threads()
        self._warn_of_size()
        gc.collect()
        gc.freeze()
        options = self._inherited.keeper_options
        logger.info(
            "started",
            extra={
                "event": "worker.started",
                "worker": options.name,
                "queues": list(options.queues),
                "concurrency": options.concurrency,
            },
        )

    def _warn_of_size(self) -> None:
        """Say so where a child would be too large as soon as it is forked."""
        limit, size = self._options.max_memory_bytes, resident_bytes()
        if limit is not None and size > limit:
            logger.warning(
                "this worker is larger than --max-memory before it has run a job: each "
                "child is replaced after a few; give more",
                extra={
                    "event": "worker.too_large",
                    "size_bytes": size,
                    "limit_bytes": limit,
                },
            )

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self._signals += 1

    def _on_hangup(self, number: int, frame: FrameType | None) -> None:
        """Drain. The terminal and its shell both tell of its end: no hurry for that."""
        self._signals = self._signals or 1

    def _look(self) -> None:
        self._shared.parent_ticked_at = time.monotonic()
        self._reap()
        self._read_keeper()
        self._begin_or_hasten_drain()
        self._fence()
        self._kill_stalled()
        self._kill_stuck()
        self._kill_stalled_keeper()
        self._start_missing()
        self._channel.flush()

    def _sleep(self) -> None:
        self._bell.wait([self._channel], LOOK_SECONDS)

    def _is_over(self) -> bool:
        return self._drain_by is not None and not self._children()

    def _children(self) -> list[Process]:
        return [place.process for place in self._places if place.process is not None]

    # --- deaths ----------------------------------------------------------------------

    def _reap(self) -> None:
        """Collect what has ended, also orphans that a PID 1 inherits."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            self._note_end(pid, os.waitstatus_to_exitcode(status))

    def _note_end(self, pid: int, code: int) -> None:
        counts.forget_process(pid)
        if self._keeper.process is not None and self._keeper.process.pid == pid:
            self._keeper.ended(was_clean=False)
            self._has_given_up = code == GAVE_UP
            if self._drain_by is None or code not in (0, GAVE_UP):
                logger.error(
                    "keeper died", extra={"event": "worker.keeper_died", "code": code}
                )
            return
        for index, place in enumerate(self._places):
            if place.process is not None and place.process.pid == pid:
                self._note_child_end(index, place.process, code)
                place.ended(was_clean=code == 0)
                return

    def _note_child_end(self, index: int, process: Process, code: int) -> None:
        """Tell the keeper whose jobs to settle, before the table is used again."""
        if process.brood is not None:
            process.brood.wait_until_gone()
        reason = process.killed_for or end_of(code)
        table = self._shared.tables[index]
        message: dict[str, Any] = {
            "kind": "dead",
            "worker": str(process.worker_id),
            **in_hand(table),
            "is_charged": process.killed_for is None,
            "reason": reason,
        }
        if process.worker_id is not None:
            self._unsettled[process.worker_id] = message
            self._stuck.forget(process.worker_id)
        self._channel.send(**message)
        level = logging.INFO if code == 0 else logging.WARNING
        logger.log(
            level,
            "child ended",
            extra={
                "event": "worker.child_ended",
                "worker_id": str(process.worker_id),
                "code": code,
                "reason": reason,
                "started": len(message["started"]) + len(message["timed_out"]),
            },
        )

    def _read_keeper(self) -> None:
        for message in self._channel.receive():
            worker_id = UUID(message["worker"])
            if message["kind"] == "settled":
                self._unsettled.pop(worker_id, None)
            elif message["kind"] == "asked":
                if any(child.worker_id == worker_id for child in self._children()):
                    self._stuck.note_cancels(worker_id, message["jobs"])
            elif message["kind"] == "shutdown":
                self._signals = self._signals or 1  # once more would be in a hurry
            elif message["kind"] == "lost":
                for process in self._children():
                    if process.worker_id == worker_id:
                        self._kill(process, "its lease was lost")

    def _kill(self, process: Process, reason: str) -> None:
        process.killed_for = process.killed_for or reason
        os.kill(process.pid, signal.SIGKILL)

    # --- watching --------------------------------------------------------------------

    def _fence(self) -> None:
        """Kill the children before their leases may have run out, whoever is to blame.

        Nobody else holds their jobs yet, so a job never runs twice at once.
        """
        safe_until = self._shared.lease_safe_until
        if time.monotonic() < safe_until - self._margin:
            return
        for index, place in enumerate(self._places):
            if place.process is not None and self._shared.tables[index].is_registered:
                self._kill(place.process, "its lease could not be renewed")

    def _kill_stalled(self) -> None:
        """Kill a child whose loop stands still, unless it runs a job that may run."""
        now = time.monotonic()
        for index, place in enumerate(self._places):
            table = self._shared.tables[index]
            if place.process is None:
                continue
            # Before its first round: since it was forked.
            ticked_at = table.ticked_at or place.process.started_at
            if now - ticked_at > STALL_SECONDS and all(
                each.is_late(now) for each in table.entries()
            ):
                self._kill(place.process, "its loop stood still")

    def _kill_stuck(self) -> None:
        """Kill a child with a job that did not stop, once the others had their time."""
        for place, table in zip(self._places, self._shared.tables, strict=True):
            process = place.process
            if process is not None and self._stuck.must_kill(process.pid, table):
                self._kill(process, KILLED_FOR)

    def _kill_stalled_keeper(self) -> None:
        """Kill a keeper that stands still: its children's leases are long lost."""
        keeper = self._keeper.process
        silence = time.monotonic() - self._shared.keeper_ticked_at
        if keeper is not None and silence > self._keeper_stall:
            self._kill(keeper, "its loop stood still")

    # --- starting --------------------------------------------------------------------

    def _start_missing(self) -> None:
        now = time.monotonic()
        if self._keeper.process is None and now >= self._keeper.start_at:
            self._start(self._keeper, self._start_keeper)
        if self._drain_by is not None:
            return
        for index, place in enumerate(self._places):
            if place.process is None and now >= place.start_at:
                self._start(place, partial(self._start_child, index, place))

    def _start(self, place: Place, start: Callable[[], None]) -> None:
        """Start a process; where the machine has no room for one, try again later."""
        try:
            start()
        except OSError as error:
            place.put_off()
            logger.error(
                "no process could be started",
                extra={"event": "worker.start_failed", "error": str(error)},
            )

    def _start_keeper(self) -> None:
        self._shared.keeper_ticked_at = time.monotonic()
        pid = fork(partial(self._inherited.run_keeper, self._look_at_start))
        self._keeper.process = Process(pid, time.monotonic())
        self._look_at_start = None
        # What an earlier keeper knew, once more: all of it may be repeated.
        self._channel.forget()
        for index, place in enumerate(self._places):
            if place.process is not None:
                self._introduce(index, place.process)
        for message in self._unsettled.values():
            self._channel.send(**message)
        if self._drain_by is not None:
            self._channel.send(kind="drain")
        if self._is_stopping:
            self._channel.send(kind="stop")

    def _introduce(self, index: int, process: Process) -> None:
        self._channel.send(
            kind="child", index=index, worker=str(process.worker_id), pid=process.pid
        )

    def _start_child(self, index: int, place: Place) -> None:
        worker_id = uuid7()
        self._shared.tables[index].reset(worker_id)
        brood = Brood.expect()
        try:
            run = partial(self._inherited.run_child, index, worker_id, brood)
            pid = fork(run)
        finally:
            if brood is not None:
                brood.watch()
        place.process = Process(pid, time.monotonic(), worker_id, brood=brood)
        self._introduce(index, place.process)

    # --- ending ----------------------------------------------------------------------

    def _begin_or_hasten_drain(self) -> None:
        now = time.monotonic()
        if self._signals and self._drain_by is None:
            self._drain_by = now + self._grace.total_seconds()
            entries = [one for each in self._shared.tables for one in each.entries()]
            logger.info(
                "draining",
                extra={
                    "event": "worker.draining",
                    "worker": self._inherited.keeper_options.name,
                    "inflight": sum(not each.is_over for each in entries),
                },
            )
            self._channel.send(kind="drain")
            for process in self._children():
                os.kill(process.pid, signal.SIGTERM)
        if self._drain_by is None:
            return
        if self._signals > 1 or now >= self._drain_by:
            for process in self._children():
                self._kill(process, "the worker was stopped")

    def _stop_keeper(self) -> int:
        """Let the keeper hand back what is left; 1 if it could not."""
        self._is_stopping = True
        self._channel.send(kind="stop")
        deadline = time.monotonic() + STOP_SECONDS
        while time.monotonic() < deadline:
            self._reap()
            self._read_keeper()
            if self._has_given_up:
                break
            if self._keeper.process is None and not self._unsettled:
                break
            self._start_missing()
            self._channel.flush()
            self._sleep()
        if self._unsettled:
            logger.warning(
                "the database could not be told that this worker ended: its jobs come "
                "back when their leases run out",
                extra={"event": "worker.untold", "children": len(self._unsettled)},
            )
        logger.info(
            "stopped",
            extra={
                "event": "worker.stopped",
                "worker": self._inherited.keeper_options.name,
                "waited_s": self._drained_for(),
            },
        )
        return 0 if not self._unsettled else 1

    def _drained_for(self) -> float | None:
        if self._drain_by is None:
            return None
        began_at = self._drain_by - self._grace.total_seconds()
        return round(time.monotonic() - began_at, 6)

    def _kill_everybody(self) -> None:
        for place in (*self._places, self._keeper):
            if place.process is not None:
                os.kill(place.process.pid, signal.SIGKILL)
                os.waitpid(place.process.pid, 0)
                place.process = None
