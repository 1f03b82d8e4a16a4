"""What the database campaign asks beyond the checker: of producers and of recovery."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Final

from tests.chaos.checker import Violation
from tests.chaos.histories import Fault, Histories
from tests.chaos.repeating import DOUBT
from tests.chaos.segments import LOAD, Segment

__all__ = ["Recovery", "check_charges", "check_doubts", "doubts_of", "recoveries_of"]

# Charged by the workload itself.
_PLANNED: Final = frozenset({"PlannedFailure", "SkipRetry"})
# It alone uses the database.
_USES_DATABASE: Final = "chaos:transact"


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovery:
    """How long after a fault a worker claimed, or a producer enqueued, for once.

    Attributes:
        seconds: up to the next fault if it did not before that.
        is_over: whether it did.
    """

    kind: str
    who: str
    seconds: float
    is_over: bool


def doubts_of(folder: Path) -> int:
    """Return how many calls of the producers ended without an answer."""
    return sum(
        line.startswith(f"{DOUBT} ")
        for path in folder.glob("ledger-*.txt")
        for line in path.read_text(encoding="ascii").splitlines()
    )


def check_doubts(doubts: int, faults: int) -> list[Violation]:
    """A fault cuts each producer's connection once at most."""
    if doubts <= LOAD.producers * faults:
        return []
    return [
        Violation(
            rule="UNKNOWN",
            text=f"{doubts} calls without an answer by {LOAD.producers} connections "
            f"in {faults} faults",
        )
    ]


def check_charges(histories: Histories, segment: Segment) -> list[Violation]:
    """No failure is charged to a job for what the database did."""
    tasks = {job.id: job.task for job in histories.jobs}
    return [
        Violation(
            rule="F8",
            job=transition.job,
            text=f"charged to a job of {tasks.get(transition.job)}: {transition.error}",
        )
        for transition in histories.transitions
        if transition.charge == "failure"
        and transition.error not in _PLANNED
        and not (
            tasks.get(transition.job) == _USES_DATABASE
            and transition.error in segment.charged
        )
    ]


def recoveries_of(parts: Sequence[Histories], folder: Path) -> list[Recovery]:
    """Return when everybody worked again after each fault.

    Args:
        parts: as histories.read_parts() gives them.
    """
    moments = {**_claims(parts), **_enqueues(folder)}
    faults = sorted(parts[0].faults, key=lambda fault: fault.began)
    found = []
    for fault, following in zip(faults, [*faults[1:], None], strict=True):
        for who, times in moments.items():
            found += _recovery(fault, following, who, times)
    return found


def _recovery(
    fault: Fault, following: Fault | None, who: str, times: list[float]
) -> list[Recovery]:
    index = bisect_right(times, fault.ended)
    next_at = times[index] if index < len(times) else None
    if next_at is None and following is None:
        return []  # there was nothing left to do
    limit = following.began if following is not None else float("inf")
    is_over = next_at is not None and next_at < limit
    end = next_at if next_at is not None and is_over else limit
    return [
        Recovery(kind=fault.kind, who=who, seconds=end - fault.ended, is_over=is_over)
    ]


def _claims(parts: Sequence[Histories]) -> dict[str, list[float]]:
    """Return when each worker, with whichever child, claimed."""
    owners = {
        event.pid: event.name for event in parts[0].processes if event.event == "seen"
    }
    names = {worker.id: owners.get(worker.pid) for worker in parts[0].workers}
    found: dict[str, list[float]] = defaultdict(list)
    for transition in chain.from_iterable(part.transitions for part in parts):
        if transition.new == "running" and transition.old == "queued":
            name = names.get(transition.worker or "")
            if name is not None:
                found[name].append(transition.at)
    return {name: sorted(times) for name, times in found.items()}


def _enqueues(folder: Path) -> dict[str, list[float]]:
    """Return when each producer knew that a job was committed."""
    found: dict[str, list[float]] = {}
    for path in folder.glob("ledger-*.txt"):
        lines = (line.split() for line in path.read_text(encoding="ascii").splitlines())
        found[path.stem] = sorted(float(at) for word, _, at in lines if word == "ok")
    return found
