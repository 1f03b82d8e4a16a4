"""Strikes by a seeded plan, and writes down what it struck and when."""

from __future__ import annotations

import heapq
import itertools
import signal
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import psycopg

from tests.chaos import proc
from tests.chaos.histories import Fault
from tests.chaos.profiles import HEAD_START_SECONDS, LEASE_SECONDS, Planned
from tests.chaos.supervisor import Owned, Supervisor, send

__all__ = ["Nemesis"]

HARNESS = "chaos harness"

_ALIVE = "SELECT pid FROM relay_worker WHERE state = 'running'"
_SESSIONS = """
SELECT pid, application_name FROM pg_stat_activity
WHERE datname = current_database() AND backend_type = 'client backend'
  AND application_name <> %(harness)s
ORDER BY pid
"""


class Nemesis:
    """Driven by tick(); a fault whose victim is not there yet waits for one.

    Args:
        clock: what the plan's times are held against; the seconds from now on unless
            given.
    """

    def __init__(
        self,
        supervisor: Supervisor,
        connection: psycopg.Connection[Any],
        workers: Sequence[Owned],
        schedulers: Sequence[Owned],
        stream: Sequence[Planned],
        *,
        clock: Callable[[], float] | None = None,
    ) -> None:
        self._supervisor = supervisor
        self._connection = connection
        self._workers = workers
        self._schedulers = schedulers
        self._waiting = list(stream)
        self._later: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()
        began_at = time.monotonic()
        self._clock = clock or (lambda: time.monotonic() - began_at)
        self.faults: list[Fault] = []

    @property
    def is_over(self) -> bool:
        return not self._waiting and not self._later

    def counts(self) -> Counter[str]:
        return Counter(fault.kind for fault in self.faults)

    def tick(self) -> None:
        """Strike what is due, and end what has lasted long enough."""
        now = time.monotonic()
        while self._later and self._later[0][0] <= now:
            heapq.heappop(self._later)[2]()
        waiting = []
        for planned in self._waiting:
            is_due = self._clock() >= planned.at_seconds
            if not (is_due and self._strike(planned)):
                waiting.append(planned)
        self._waiting = waiting

    def end(self) -> int:
        """Strike no more, let go of everybody; return how many never struck."""
        missed = len(self._waiting)
        self._waiting = []
        while self._later:
            time.sleep(max(0.0, self._later[0][0] - time.monotonic()))
            self.tick()
            self._supervisor.tick()
        return missed

    def _strike(self, planned: Planned) -> bool:
        strike: Callable[[Planned], bool] = getattr(self, f"_strike_{planned.kind}")
        return strike(planned)

    def _after(self, seconds: float, act: Callable[[], None]) -> None:
        heapq.heappush(
            self._later, (time.monotonic() + seconds, next(self._order), act)
        )

    def _victim(self, planned: Planned) -> tuple[Owned, list[int], list[int]] | None:
        """Return a worker in full health, its children and what else it forked."""
        self._supervisor.scan()
        alive = {row[0] for row in self._connection.execute(_ALIVE)}
        count = len(self._workers)
        for turn in range(count):
            worker = self._workers[(planned.slot + turn) % count]
            if worker.is_busy or not worker.is_up:
                continue
            direct = [each.pid for each in worker.tree if each.parent == worker.pid]
            children = sorted(pid for pid in direct if pid in alive)
            keepers = [pid for pid in direct if pid not in alive]
            if len(children) == worker.children and len(keepers) == 1:
                return worker, children, keepers
        return None

    def _note(
        self,
        kind: str,
        victim: str,
        pids: Sequence[int],
        began: tuple[float, float],
        leases: float = 0.0,
    ) -> None:
        self.faults.append(
            Fault(
                kind=kind,
                victim=victim,
                pids=tuple(pids),
                began=began[0],
                ended=time.time(),
                mono_began=began[1],
                mono_ended=time.monotonic(),
                leases=leases,
            )
        )

    def _strike_parent(self, planned: Planned) -> bool:
        """F1: kill -9 of a worker's parent."""
        found = self._victim(planned)
        if found is None:
            return False
        worker, children, _ = found
        began = _now()
        self._supervisor.signal(worker, signal.SIGKILL)
        self._note("parent", worker.name, children, began)
        return True

    def _strike_child(self, planned: Planned) -> bool:
        """F2: kill -9 of one child."""
        found = self._victim(planned)
        if found is None:
            return False
        worker, children, _ = found
        pid = children[int(planned.dice * len(children))]
        began = _now()
        send(pid, signal.SIGKILL)
        self._note("child", worker.name, [pid], began)
        return True

    def _strike_keeper(self, planned: Planned) -> bool:
        """F2: kill -9 of a keeper."""
        found = self._victim(planned)
        if found is None:
            return False
        worker, children, keepers = found
        began = _now()
        send(keepers[0], signal.SIGKILL)
        self._note("keeper", worker.name, children, began)
        return True

    def _strike_scheduler(self, planned: Planned) -> bool:
        """F3: kill -9 of all schedulers, or of one of them."""
        up = [each for each in self._schedulers if each.is_up]
        if len(up) < len(self._schedulers):
            return False
        struck = up if planned.dice < 0.5 else up[:1]
        began = _now()
        for scheduler in struck:
            self._supervisor.signal(scheduler, signal.SIGKILL)
        self._note("scheduler", " ".join(each.name for each in struck), [], began)
        return True

    def _strike_stop(self, planned: Planned) -> bool:
        """F4: SIGSTOP of a whole worker; its children go on before the others."""
        found = self._victim(planned)
        if found is None:
            return False
        worker, children, keepers = found
        worker.is_busy = True
        seconds = planned.leases * LEASE_SECONDS
        tree = {each.pid: each for each in worker.tree}
        began = _now()
        # The parent first: it must not see the others stop.
        for pid in (worker.pid, *keepers, *children):
            send(pid, signal.SIGSTOP)

        def go_on(pids: Sequence[int]) -> None:
            for pid in pids:
                if pid == worker.pid or proc.is_same(tree[pid]):
                    send(pid, signal.SIGCONT)

        def finish() -> None:
            go_on([*keepers, worker.pid])
            worker.is_busy = False
            self._note("stop", worker.name, children, began, planned.leases)

        self._after(max(0.0, seconds - HEAD_START_SECONDS), lambda: go_on(children))
        self._after(seconds, finish)
        return True

    def _strike_term(self, planned: Planned) -> bool:
        """F5: SIGTERM, for some followed by a second one."""
        found = self._victim(planned)
        if found is None:
            return False
        worker, children, _ = found
        began = _now()
        process = worker.process
        self._supervisor.signal(worker, signal.SIGTERM)

        def again() -> None:
            # Its exit is already asked for: only a process that still runs hears it.
            if worker.process is process and worker.is_up:
                send(worker.pid, signal.SIGTERM)

        if planned.dice < 0.3:
            self._after(0.3, again)
        self._note("term", worker.name, children, began)
        return True

    def _strike_backend(self, planned: Planned) -> bool:
        """F6: pg_terminate_backend of any session but the harness's own."""
        sessions = self._connection.execute(_SESSIONS, {"harness": HARNESS}).fetchall()
        if not sessions:
            return False
        pid, name = sessions[int(planned.dice * len(sessions))]
        began = _now()
        self._connection.execute("SELECT pg_terminate_backend(%s)", (pid,))
        self._note("backend", f"{name or 'a producer'} {pid}", [], began)
        return True


def _now() -> tuple[float, float]:
    return time.time(), time.monotonic()
