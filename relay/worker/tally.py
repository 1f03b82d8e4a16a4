"""What a child has done, in plain numbers, told to its keeper a few times a second.

Nothing here is done for a job but adding to numbers: the rest is done for many.
"""

from __future__ import annotations

import json
import socket
import threading
import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from math import inf
from typing import Any, Final

from relay.buckets import FINE
from relay.engine.claim import ClaimedJob
from relay.engine.finish import Outcome, Settled, Written
from relay.worker.pool import NOT_STARTED, Ended
from relay.worker.verdict import reason_of

__all__ = ["Cell", "Forwarded", "Key", "Tally", "Told", "read_told"]

TELL_SECONDS: Final = 0.25
# In one datagram, of cells and of each kind of counts, and its bytes: what is beyond
# goes with the next ones. The system takes no datagram above some 200 KB, now or ever.
CELLS_AT_ONCE: Final = 40
COUNTS_AT_ONCE: Final = 200
LARGEST_BYTES: Final = 100_000
_COUNTS: Final = ("errors", "claimed", "empty", "sums")

# Queue, task, and what became of the job: a final state, retried, snoozed, or the verb
# that handed it back.
Key = tuple[str, str, str]
_SHORTEST: Final = FINE[0]
_EDGES: Final = (-inf, *FINE, inf)
_OUTCOMES: Final = {"retry": "retried", "snooze": "snoozed"}


class Cell:
    """The attempts that ended one way: how many, how long they ran and had waited.

    Attributes:
        run, wait: counts by buckets.FINE, of those that had started.
        unstarted: how many had not.
    """

    __slots__ = ("run", "run_seconds", "unstarted", "wait", "wait_seconds")

    def __init__(self) -> None:
        self.unstarted = 0
        self.run_seconds = 0.0
        self.wait_seconds = 0.0
        self.run = [0] * (len(FINE) + 1)
        self.wait = [0] * (len(FINE) + 1)

    @property
    def count(self) -> int:
        """How many there are."""
        return self.unstarted + sum(self.run)

    def add(self, other: Cell) -> None:
        """Add what another has counted."""
        self.unstarted += other.unstarted
        self.run_seconds += other.run_seconds
        self.wait_seconds += other.wait_seconds
        self.run = [a + b for a, b in zip(self.run, other.run, strict=True)]
        self.wait = [a + b for a, b in zip(self.wait, other.wait, strict=True)]

    def document(self) -> list[Any]:
        """Return it as JSON has it."""
        return [
            self.unstarted,
            self.run_seconds,
            self.wait_seconds,
            _sparse(self.run),
            _sparse(self.wait),
        ]

    @classmethod
    def read(cls, document: Sequence[Any]) -> Cell:
        """Return what document() wrote."""
        cell = cls()
        cell.unstarted, cell.run_seconds, cell.wait_seconds, run, wait = document
        for counts, items in ((cell.run, run), (cell.wait, wait)):
            for place, count in items:
                counts[place] = count
        return cell


def _sparse(counts: Sequence[int]) -> list[tuple[int, int]]:
    return [(place, count) for place, count in enumerate(counts) if count]


class Told:
    """What a child tells: all of it since it last did, but for running.

    Attributes:
        cells: of attempts that have ended.
        errors: by queue, task and reason of relay_job_errors_total.
        claimed, empty: jobs claimed, and claims that found none, by queue.
        claims: how long claims took: counts by buckets.FINE, and the seconds.
        lost: results dropped, as another worker held the job.
        running: jobs that the child holds now, by queue.
        goes_on: whether these are more of them than the datagram before had room for.
        sums: what else it has counted, by name and labels.
    """

    def __init__(self) -> None:
        self.cells: dict[Key, Cell] = {}
        self.errors: Counter[Key] = Counter()
        self.claimed: Counter[str] = Counter()
        self.empty: Counter[str] = Counter()
        self.claims = [0] * (len(FINE) + 1)
        self.claim_seconds = 0.0
        self.lost = 0
        self.running: Counter[str] = Counter()
        self.goes_on = False
        self.sums: Counter[tuple[str, ...]] = Counter()

    @property
    def is_over(self) -> bool:
        """Whether nothing is left of what may take several datagrams."""
        return not (self.cells or any(vars(self)[name] for name in _COUNTS))

    def document(self) -> bytes:
        """Return it as a datagram."""
        return json.dumps(
            {
                "cells": [[*key, *cell.document()] for key, cell in self.cells.items()],
                "errors": [[*key, count] for key, count in self.errors.items()],
                "claimed": self.claimed,
                "empty": self.empty,
                "claims": _sparse(self.claims),
                "claim_seconds": self.claim_seconds,
                "lost": self.lost,
                "running": self.running,
                "goes_on": self.goes_on,
                "sums": [[*key, amount] for key, amount in self.sums.items()],
            },
            ensure_ascii=False,
        ).encode("utf-8", "surrogatepass")


def read_told(datagram: bytes) -> Told:
    """Return what a child has told."""
    values = json.loads(datagram)
    told = Told()
    for queue, task, outcome, *cell in values["cells"]:
        told.cells[queue, task, outcome] = Cell.read(cell)
    for queue, task, reason, count in values["errors"]:
        told.errors[queue, task, reason] = count
    told.claimed.update(values["claimed"])
    told.empty.update(values["empty"])
    for place, count in values["claims"]:
        told.claims[place] = count
    told.claim_seconds = values["claim_seconds"]
    told.lost = values["lost"]
    told.running.update(values["running"])
    told.goes_on = values["goes_on"]
    for *key, amount in values["sums"]:
        told.sums[tuple(key)] = amount
    return told


class Forwarded:
    """A meter that keeps what is added, from any thread, for Tally to tell."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sums: Counter[tuple[str, ...]] = Counter()

    def add(self, name: str, labels: Sequence[str], amount: float) -> None:
        """Add to a counter."""
        with self._lock:
            self._sums[name, *labels] += amount  # type: ignore[assignment] # a float too

    def add_times(
        self, name: str, labels: Sequence[str], counts: Sequence[int], seconds: float
    ) -> None:
        """Do nothing: the tally itself has all that a child measures."""

    def put(self, name: str, labels: Sequence[str], value: float) -> None:
        """Do nothing, as above."""

    def forget_process(self, pid: int) -> None:
        """Do nothing: the parent sees to it."""

    def take(self) -> Counter[tuple[str, ...]]:
        """Return the sums since the last time, by name and labels."""
        with self._lock:
            taken, self._sums = self._sums, Counter()
        return taken


class Tally:
    """What one child has done since it last told.

    Attributes:
        due_at: when to call tell(), by the monotonic clock.
        on_told: is given what was told; set where the same process keeps metrics.
        forwarded: what the child has counted elsewhere; set where it keeps none.
    """

    def __init__(self) -> None:
        self.due_at = 0.0
        self.on_told: Callable[[Told], None] | None = None
        self.forwarded: Forwarded | None = None
        self._new = Told()
        self._running: Counter[str] = Counter()  # as told, or being told:
        self._rest: Counter[str] | None = None  # of it, if not all has been,
        self._goes_on = False  # and whether some has

    # --- for every job ---------------------------------------------------------------

    def note_ends(self, batch: Iterable[Ended], states: Mapping[Any, str]) -> None:
        """Take in ends that were written, with the states of their jobs.

        Most of a batch are of one task, short, and have waited about as long.
        Source: docs/explanation/speed.md, "What counting costs".
        """
        task = queue = ""
        cell = Cell()
        ran = had_waited = 0.0
        low, high, place = inf, -inf, 0
        for job, outcome, entry, seconds in batch:
            if states.get(job.id) != "completed":
                self._note_other(job, outcome, entry, seconds, states.get(job.id))
                continue
            if job.task != task or job.queue != queue:
                cell.run_seconds += ran
                cell.wait_seconds += had_waited
                ran = had_waited = 0.0
                task, queue = job.task, job.queue
                cell = self._cell((queue, task, "completed"))
            ran += seconds
            cell.run[0 if seconds <= _SHORTEST else bisect_left(FINE, seconds)] += 1
            waited = job.wait_s
            had_waited += waited
            if not low < waited <= high:
                place = bisect_left(FINE, waited)
                low, high = _EDGES[place], _EDGES[place + 1]
            cell.wait[place] += 1
        cell.run_seconds += ran
        cell.wait_seconds += had_waited

    # --- now and then ----------------------------------------------------------------

    def _cell(self, key: Key) -> Cell:
        cell = self._new.cells.get(key)
        if cell is None:
            cell = self._new.cells[key] = Cell()
        return cell

    def _note_other(
        self,
        job: ClaimedJob,
        outcome: Outcome,
        entry: int,
        seconds: float,
        state: str | None,
    ) -> None:
        """Take in the end of a job that is not known to have completed."""
        if isinstance(outcome, Written) and outcome.result is not None:
            end = "completed"
        elif state is None or not isinstance(outcome, Settled):
            return  # another worker holds it; note_lost() counts it
        elif state in ("failed", "cancelled"):
            end = state
        else:
            end = _OUTCOMES.get(outcome.verb, outcome.verb)
        if isinstance(outcome, Settled):
            reason = _reason(outcome, end)
            if reason is not None:
                self._new.errors[job.queue, job.task, reason] += 1
        cell = self._cell((job.queue, job.task, end))
        if entry == NOT_STARTED:
            cell.unstarted += 1
            return
        cell.run_seconds += seconds
        cell.wait_seconds += job.wait_s
        cell.run[bisect_left(FINE, seconds)] += 1
        cell.wait[bisect_left(FINE, job.wait_s)] += 1

    def note_lost(self) -> None:
        """Take in a result that was dropped."""
        self._new.lost += 1

    def note_claim(
        self, queues: Sequence[str], claimed: Sequence[ClaimedJob], seconds: float
    ) -> None:
        """Take in a claim over these queues."""
        new = self._new
        new.claim_seconds += seconds
        new.claims[bisect_left(FINE, seconds)] += 1
        if not claimed:
            new.empty.update(queues)
        elif len(queues) == 1:
            new.claimed[queues[0]] += len(claimed)
        else:
            new.claimed.update(job.queue for job in claimed)

    def tell(self, keeper: socket.socket, held: Iterable[ClaimedJob]) -> None:
        """Tell the keeper, if there is news; what it has no room for waits."""
        self.due_at = time.monotonic() + TELL_SECONDS
        running = Counter([job.queue for job in held])
        new = self._new
        if self.forwarded is not None:
            new.sums += self.forwarded.take()
        has_news = not new.is_over or any(new.claims) or new.lost
        if self._rest is None and not has_news and running == self._running:
            return
        if self._rest is None or not self._goes_on:
            self._running = self._rest = running
            self._goes_on = False
        with suppress(OSError):
            while True:
                told, document = self._next_part()
                keeper.send(document)
                self._forget(told)
                if self.on_told is not None:
                    self.on_told(told)
                if self._new.is_over and self._rest is None:
                    return

    def _next_part(self) -> tuple[Told, bytes]:
        """Return what goes with the next datagram, and that."""
        parts = 1
        while True:
            part = self._part(parts)
            document = part.document()
            if len(document) <= LARGEST_BYTES or parts >= COUNTS_AT_ONCE:
                return part, document
            parts *= 2

    def _part(self, parts: int) -> Told:
        """Return as much as goes at once, or a part of that."""
        new, part = self._new, Told()
        vars(part).update(vars(new))
        part.running, part.goes_on = self._rest or Counter(), self._goes_on
        part.cells = dict(islice(new.cells.items(), max(1, CELLS_AT_ONCE // parts)))
        at_once = max(1, COUNTS_AT_ONCE // parts)
        for name in ("running", *_COUNTS):
            counts: Counter[Any] = getattr(part, name)
            if len(counts) > at_once:
                setattr(part, name, Counter(dict(islice(counts.items(), at_once))))
        return part

    def _forget(self, told: Told) -> None:
        before, self._new = vars(self._new), Told()
        for name in ("cells", *_COUNTS):
            vars(self._new)[name].update(_without(before[name], vars(told)[name]))
        self._rest = Counter(_without(self._rest or {}, told.running)) or None
        self._goes_on = True


def _without(counts: Mapping[Any, Any], gone: Mapping[Any, Any]) -> dict[Any, Any]:
    return {key: counts[key] for key in counts.keys() - gone.keys()}


def _reason(outcome: Settled, end: str) -> str | None:
    """Return why an attempt is an error: of relay_job_errors_total; None if it is none.

    A job that was put off is not, nor one whose end is that somebody cancelled it.
    """
    if outcome.verb == "crash":
        return "killed"
    if end not in ("failed", "retried"):
        return None
    return reason_of(outcome) or "exception"
