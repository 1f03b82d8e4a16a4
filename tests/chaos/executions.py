"""Judges what ran: how often, under which claims, and what cut it short."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from tests.chaos.findings import FINAL, Findings, Violation
from tests.chaos.histories import Fault, Histories, Transition

__all__ = ["check_executions"]

# How soon after a lease has run out its jobs must be ready again. Source: F1.
READY_SECONDS: Final = 2.0
# Within this a worker that was struck has a keeper with a connection again.
RESTART_SECONDS: Final = 1.0
# One whose parent was killed starts anew, and has one when its children are registered:
# several at once take longer on two cores. What takes longer than this is no excuse.
START_SECONDS: Final = 10.0


@dataclass(slots=True, kw_only=True)
class Execution:
    """One run of a task's code; mono_ended of a killed one: last seen alive."""

    job: str
    attempt: int
    worker: str
    pid: int
    began_at: float
    mono_began: float
    mono_ended: float | None = None
    # By the wall clock, of one that ran to its end.
    finished_at: float | None = None


def check_executions(histories: Histories, findings: Findings) -> Iterator[Violation]:
    """Judge all that ran."""
    executions = _executions(histories)
    findings.executions += len(executions)
    yield from _check_claims(histories, executions, findings)
    yield from _check_overlaps(histories, executions, findings)
    yield from _check_budget(histories, executions, findings)


def _executions(histories: Histories) -> list[Execution]:
    seen = {
        event.pid: event.mono for event in histories.processes if event.event == "seen"
    }
    found: list[Execution] = []
    running: dict[tuple[str, int, str], Execution] = {}
    for effect in sorted(histories.effects, key=lambda effect: effect.mono):
        key = (effect.job, effect.attempt, effect.worker)
        if effect.phase == "start":
            execution = Execution(
                job=effect.job,
                attempt=effect.attempt,
                worker=effect.worker,
                pid=effect.pid,
                began_at=effect.at,
                mono_began=effect.mono,
                mono_ended=seen.get(effect.pid),
            )
            found.append(execution)
            running[key] = execution
        elif key in running:
            execution = running.pop(key)
            execution.mono_ended = effect.mono
            execution.finished_at = effect.at
    return found


def _check_claims(
    histories: Histories, executions: list[Execution], findings: Findings
) -> Iterator[Violation]:
    """J10: an attempt runs at most once, and only under the token of a claim."""
    claims = {
        (transition.job, transition.attempt, transition.worker): transition.at
        for transition in histories.transitions
        if transition.new == "running"
    }
    runs = Counter((run.job, run.attempt) for run in executions)
    for (job, attempt), count in runs.items():
        if count > 1:
            yield Violation(
                rule="J10", job=job, text=f"attempt {attempt} started {count} times"
            )
    for run in executions:
        claimed_at = claims.get((run.job, run.attempt, run.worker))
        if claimed_at is not None:
            findings.in_hand.append(run.began_at - claimed_at)
        else:
            yield Violation(
                rule="J4",
                job=run.job,
                text=f"attempt {run.attempt} ran without a claim by {run.worker}",
            )


def _check_overlaps(
    histories: Histories, executions: list[Execution], findings: Findings
) -> Iterator[Violation]:
    """J8 and J9: two executions at once need a stopped process, nothing less."""
    stops: dict[int, list[Fault]] = defaultdict(list)
    for fault in histories.faults:
        if fault.kind == "stop":
            for pid in fault.pids:
                stops[pid].append(fault)
    by_job: dict[str, list[Execution]] = defaultdict(list)
    for run in executions:
        by_job[run.job].append(run)
    for job, runs in by_job.items():
        for index, first in enumerate(runs):
            for second in runs[index + 1 :]:
                if first.mono_ended is None or second.mono_began >= first.mono_ended:
                    continue
                findings.overlaps += 1
                # A process that goes on may even start what it no longer holds: the
                # stale one is not always the first.
                stale, other = sorted((first, second), key=lambda run: run.attempt)
                covered = any(
                    fault.mono_began <= other.mono_began
                    and second.mono_began <= fault.mono_ended + histories.lease_seconds
                    for fault in stops[stale.pid]
                )
                if not covered:
                    yield Violation(
                        rule="J8/J9",
                        job=job,
                        text=f"attempts {first.attempt} and {second.attempt} overlap "
                        f"by {first.mono_ended - second.mono_began:.3f} s and no "
                        "stop covers it",
                    )


def _is_own_failure(transition: Transition) -> bool:
    return transition.charge == "failure"


def _check_budget(
    histories: Histories, executions: list[Execution], findings: Findings
) -> Iterator[Violation]:
    """J10: repeats have a cause; and how soon jobs came back after a strike."""
    runs = Counter(run.job for run in executions)
    findings.extra += sum(count - 1 for count in runs.values())
    by_job: dict[str, list[Transition]] = defaultdict(list)
    for transition in histories.transitions:
        by_job[transition.job].append(transition)
    strikes = _Strikes(histories)
    for job, transitions in by_job.items():
        # Attempts of its own that failed, and those that were cut short.
        failed = cut = 0
        claim: Transition | None = None
        for transition in transitions:
            if transition.new == "running":
                claim = transition
            elif transition.old == "running":
                findings.in_flight += strikes.count(claim, transition)
                if transition.new in FINAL:
                    continue
                if _is_own_failure(transition):
                    failed += 1
                else:
                    cut += 1
                    yield from _check_cut(strikes, claim, transition, findings)
        findings.budget += failed + cut
        findings.duplicates += max(0, runs[job] - 1 - failed)
        if runs[job] > 1 + failed + cut:
            yield Violation(
                rule="J10",
                job=job,
                text=f"ran {runs[job]} times with {failed} failed and {cut} cut "
                "attempts",
            )
    findings.late += _late(histories, executions)


def _check_cut(
    strikes: _Strikes,
    claim: Transition | None,
    transition: Transition,
    findings: Findings,
) -> Iterator[Violation]:
    """J11: only a killed child costs a crash. Note how soon the job was ready."""
    causes = strikes.causes(claim, transition)
    # Another may have struck between the kill and its settlement.
    if transition.charge == "crash" and not any(
        cause.kind == "child" for cause in causes
    ):
        yield Violation(
            rule="J11",
            job=transition.job,
            text="charged with a crash although nobody had killed its child process",
        )
    if not causes or claim is None:
        findings.unprovoked[transition.charge or "release"] += 1
        return
    fault = causes[0]
    # A worker may go on to claim after it was struck, and lose that to the strike too.
    struck_at = max(fault.began, claim.at)
    seconds = transition.at - struck_at
    findings.ready_again.setdefault(fault.kind, []).append(seconds)
    if transition.at > strikes.due_at(struck_at):
        findings.overdue.append(
            Violation(
                rule="READY",
                job=transition.job,
                text=f"ready again {seconds:.2f} s after a strike at {fault.kind}",
            )
        )


def _late(histories: Histories, executions: list[Execution]) -> int:
    """Count the attempts that ran to their end after their job had been taken."""
    taken = {
        (transition.job, transition.old_attempt): transition.at
        for transition in histories.transitions
        if transition.old == "running"
        and transition.new not in FINAL
        and not _is_own_failure(transition)
    }
    return sum(
        run.finished_at is not None
        and run.finished_at > taken.get((run.job, run.attempt), math.inf)
        for run in executions
    )


class _Strikes:
    """The faults that struck each worker, by its id and by its name."""

    def __init__(self, histories: Histories) -> None:
        self.lease_seconds = histories.lease_seconds
        # For a keeper that is let alone, from a strike on.
        self.limit = self.lease_seconds + READY_SECONDS
        by_pid: dict[int, list[str]] = defaultdict(list)
        for worker in histories.workers:
            by_pid[worker.pid].append(worker.id)
        names = {
            event.pid: event.name
            for event in histories.processes
            if event.event == "seen"
        }
        self._registered: dict[str, list[float]] = defaultdict(list)
        for worker in sorted(histories.workers, key=lambda worker: worker.began):
            if worker.pid in names:
                self._registered[names[worker.pid]].append(worker.began)
        self._at_worker: dict[str, list[Fault]] = defaultdict(list)
        self._at_keeper: dict[str, list[Fault]] = {
            event.name: []
            for event in histories.processes
            if event.event == "seen" and event.name.startswith("worker")
        }
        for fault in sorted(histories.faults, key=lambda fault: fault.began):
            if fault.kind != "child" and fault.victim in self._at_keeper:
                self._at_keeper[fault.victim].append(fault)
            for pid in fault.pids:
                for worker_id in by_pid[pid]:
                    self._at_worker[worker_id].append(fault)

    def count(self, claim: Transition | None, end: Transition) -> int:
        """Return how many faults struck the holder while it held the job."""
        if claim is None or claim.worker is None:
            return 0
        faults = self._at_worker.get(claim.worker, ())
        return sum(
            fault.began <= end.at and claim.at <= fault.ended for fault in faults
        )

    def causes(self, claim: Transition | None, end: Transition) -> list[Fault]:
        """Return the faults that struck the holder before it lost the job, last first.

        A claim after the strike is cut by it only while its effects last.
        """
        if claim is None or claim.worker is None:
            return []
        return [
            fault
            for fault in reversed(self._at_worker.get(claim.worker, ()))
            if fault.began < end.at and claim.at <= fault.ended + self.lease_seconds
        ]

    def due_at(self, struck_at: float) -> float:
        """Return by when a job is ready again: a keeper was let alone for so long."""
        found = []
        for faults in self._at_keeper.values():
            since = struck_at
            for fault in faults:
                if since + self.limit <= fault.began:
                    break
                since = max(since, self._back_at(fault))
            found.append(since + self.limit)
        return min(found, default=struck_at + self.limit)

    def _back_at(self, fault: Fault) -> float:
        """Return when the fault's victim had a keeper with a connection again."""
        if fault.kind == "parent":
            began = self._registered[fault.victim]
            index = bisect_right(began, fault.ended)
            if index < len(began):
                return min(began[index], fault.ended + START_SECONDS)
        return fault.ended + RESTART_SECONDS
