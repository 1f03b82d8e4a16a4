"""Judges the histories of a run. Reads nothing else and imports no relay.

The rules carry the names of the invariants in docs/reliability.md.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from tests.chaos.histories import Effect, Fault, Histories, Job, Transition
from tests.chaos.profiles import ENDINGS

__all__ = ["FenceWatch", "Findings", "Violation", "check", "percentile"]

TRANSACTIONAL_TASK: Final = "chaos:transact"
FINAL: Final = frozenset({"completed", "failed", "cancelled"})
# A process that was asked to stop has its grace and this long besides. Source: W1.
STOP_SECONDS: Final = 5.0
# What a run shows as its own: the first violations, each with the job's history.
SHOWN: Final = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """A broken promise. `job` is None where no single job is concerned."""

    rule: str
    text: str
    job: str | None = None

    def __str__(self) -> str:
        return f"{self.rule}: {self.text}" + (f" (job {self.job})" if self.job else "")


class FenceWatch:
    """J4, J5 and J6 over transitions in their order; may be fed as they come."""

    def __init__(self) -> None:
        # The token of each job's latest claim.
        self._claims: dict[str, tuple[int | None, str | None]] = {}

    def feed(self, transition: Transition) -> Iterator[Violation]:
        job = transition.job
        if transition.old is None:
            return
        if transition.old in FINAL:
            yield Violation(
                rule="J6",
                job=job,
                text=f"a {transition.old} row was changed to {transition.new}",
            )
        if transition.new is None:
            yield Violation(rule="J1", job=job, text="the row was deleted")
            return
        claimed = transition.new == "running" and transition.old != "running"
        rise = (transition.attempt or 0) - (transition.old_attempt or 0)
        if rise != (1 if claimed else 0):
            yield Violation(
                rule="J4",
                job=job,
                text=f"attempt rose by {rise} from {transition.old} to "
                f"{transition.new}",
            )
        if transition.new == "running" and transition.old not in ("queued", "running"):
            yield Violation(
                rule="J4", job=job, text=f"claimed while it was {transition.old}"
            )
        if transition.old == transition.new == "running" and (
            transition.worker != transition.old_worker
        ):
            yield Violation(rule="J4", job=job, text="a running job changed hands")
        if claimed:
            self._claims[job] = (transition.attempt, transition.worker)
        yield from self._stale(transition)

    def _stale(self, transition: Transition) -> Iterator[Violation]:
        if transition.new == "completed" and transition.token is None:
            yield Violation(
                rule="J5", job=transition.job, text="completed, but by nobody's result"
            )
        if transition.new == "completed" or transition.token is not None:
            attempt, worker = self._claims.get(transition.job, (None, None))
            if transition.token not in (None, f"{attempt} {worker}"):
                yield Violation(
                    rule="J5",
                    job=transition.job,
                    text=f"{transition.old} to {transition.new} by the stale token "
                    f"{transition.token}; the latest claim is {attempt} {worker}",
                )
            elif transition.old != "running" and transition.old not in FINAL:
                yield Violation(
                    rule="J5",
                    job=transition.job,
                    text=f"{transition.old} to {transition.new} although nobody "
                    "held the job",
                )


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


@dataclass(slots=True, kw_only=True)
class Findings:
    """What the checker made of a run."""

    violations: list[Violation] = field(default_factory=list)
    # Jobs by what their producers know: ok, fail, unknown.
    ledger: Counter[str] = field(default_factory=Counter)
    occurrences: int = 0
    executions: int = 0
    # Executions beyond the first of each job, and the attempts that allow them: those
    # that failed and those that were cut short, started or not.
    extra: int = 0
    budget: int = 0
    # Seconds that jobs waited in their worker's hands, from claim to start.
    in_hand: list[float] = field(default_factory=list)
    # Attempts that ran to their end after their job had been taken from them.
    late: int = 0
    overlaps: int = 0
    # Attempts cut short by no fault that is known of: loss, release.
    unprovoked: Counter[str] = field(default_factory=Counter)
    # Rows that transactional jobs wrote.
    written: int = 0
    # Seconds from the strike until a job in flight there was ready again, by fault.
    ready_again: dict[str, list[float]] = field(default_factory=dict)

    def rules(self) -> Counter[str]:
        return Counter(violation.rule for violation in self.violations)


def percentile(values: Iterable[float], share: float) -> float:
    """Return the smallest value that `share` of the values do not exceed."""
    ordered = sorted(values)
    if not ordered:
        return 0.0
    return ordered[max(0, min(len(ordered) - 1, int(share * len(ordered) - 1e-9)))]


def check(histories: Histories) -> Findings:
    """Judge a run."""
    findings = Findings()
    violations = findings.violations
    watch = FenceWatch()
    for transition in histories.transitions:
        violations += watch.feed(transition)
    violations += _check_ledger(histories, findings)
    violations += _check_endings(histories)
    violations += _check_transition_ends(histories)
    violations += _check_written(histories, findings)
    executions = _executions(histories)
    findings.executions = len(executions)
    violations += _check_executions(histories, executions, findings)
    violations += _check_overlaps(histories, executions, findings)
    violations += _check_budget(histories, executions, findings)
    violations += _check_occurrences(histories, findings)
    violations += _check_processes(histories)
    violations += _check_logs(histories)
    return findings


def _check_ledger(histories: Histories, findings: Findings) -> Iterator[Violation]:
    """J1 and J2 and J3: the producers' ledger against the rows that are there."""
    rows: dict[str, list[Job]] = defaultdict(list)
    for job in histories.jobs:
        if job.key is not None:
            rows[job.key].append(job)
        elif job.schedule is None:
            yield Violation(rule="J2", job=job.id, text="nobody enqueued this job")
    tried = set()
    for entry in histories.ledger:
        tried.add(entry.key)
        findings.ledger[entry.word] += 1
        count = len(rows[entry.key])
        if entry.word == "ok" and count == 0:
            yield Violation(rule="J1", text=f"lost: {entry.key} was committed")
        if entry.word == "fail" and count:
            yield Violation(
                rule="J3",
                job=rows[entry.key][0].id,
                text=f"{entry.key} was rolled back and has a row",
            )
        if count > 1:
            yield Violation(
                rule="J2",
                job=rows[entry.key][0].id,
                text=f"{entry.key} was enqueued once and has {count} rows",
            )
    for key in rows.keys() - tried:
        if rows[key]:
            yield Violation(
                rule="J2", job=rows[key][0].id, text=f"nobody tried to enqueue {key}"
            )


def _check_endings(histories: Histories) -> Iterator[Violation]:
    for job in histories.jobs:
        if job.state not in FINAL:
            yield Violation(
                rule="J1", job=job.id, text=f"never ended: it is still {job.state}"
            )
        elif job.state != ENDINGS.get(job.task, job.state):
            yield Violation(
                rule="J1",
                job=job.id,
                text=f"{job.task} ended {job.state}, not {ENDINGS[job.task]}",
            )
        if job.failures > job.max_retries + 1:
            yield Violation(
                rule="J11",
                job=job.id,
                text=f"{job.failures} failures with max_retries={job.max_retries}",
            )


def _check_transition_ends(histories: Histories) -> Iterator[Violation]:
    """J1: exactly one edge into a final state for each job."""
    ends = Counter(
        transition.job
        for transition in histories.transitions
        if transition.new in FINAL and transition.old not in FINAL
    )
    for job in histories.jobs:
        if job.state in FINAL and ends[job.id] != 1:
            yield Violation(rule="J1", job=job.id, text=f"ended {ends[job.id]} times")


def _check_written(histories: Histories, findings: Findings) -> Iterator[Violation]:
    """J12: a transactional job took effect once if it completed, and else never."""
    findings.written = len(histories.written)
    rows = Counter(row.job for row in histories.written)
    for job in histories.jobs:
        if job.task == TRANSACTIONAL_TASK:
            wanted = int(job.state == "completed")
            count = rows.pop(job.id, 0)
            if count != wanted:
                yield Violation(
                    rule="J12",
                    job=job.id,
                    text=f"{job.state}, and it took effect {count} times",
                )
    for row in rows:
        yield Violation(rule="J12", job=row, text="took effect and has no job")


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


def _check_executions(
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
    findings.extra = sum(count - 1 for count in runs.values())
    by_job: dict[str, list[Transition]] = defaultdict(list)
    for transition in histories.transitions:
        by_job[transition.job].append(transition)
    # Of each job: attempts of its own that failed, and those that were cut short.
    struck = _struck(histories)
    for job, transitions in by_job.items():
        failed = cut = 0
        claim: Transition | None = None
        for transition in transitions:
            if transition.new == "running":
                claim = transition
                continue
            if transition.old == "running" and transition.new not in FINAL:
                if _is_own_failure(transition):
                    failed += 1
                    continue
                cut += 1
                causes = _causes(struck, claim, transition, histories.lease_seconds)
                fault = causes[0] if causes else None
                # Another may have struck between the kill and its settlement.
                if transition.charge == "crash" and not any(
                    cause.kind == "child" for cause in causes
                ):
                    yield Violation(
                        rule="J11",
                        job=job,
                        text="charged with a crash although nobody had killed its "
                        "child process",
                    )
                if fault is None:
                    findings.unprovoked[transition.charge or "release"] += 1
                else:
                    findings.ready_again.setdefault(fault.kind, []).append(
                        transition.at - fault.began
                    )
        findings.budget += failed + cut
        if runs[job] > 1 + failed + cut:
            yield Violation(
                rule="J10",
                job=job,
                text=f"ran {runs[job]} times with {failed} failed and {cut} cut "
                "attempts",
            )
    taken = {
        (transition.job, transition.old_attempt): transition.at
        for transition in histories.transitions
        if transition.old == "running"
        and transition.new not in FINAL
        and not _is_own_failure(transition)
    }
    findings.late = sum(
        run.finished_at is not None
        and run.finished_at > taken.get((run.job, run.attempt), math.inf)
        for run in executions
    )


def _struck(histories: Histories) -> dict[str, list[Fault]]:
    """Return the faults that struck each worker, by its id, in order of time."""
    by_pid: dict[int, list[str]] = defaultdict(list)
    for worker in histories.workers:
        by_pid[worker.pid].append(worker.id)
    struck: dict[str, list[Fault]] = defaultdict(list)
    for fault in sorted(histories.faults, key=lambda fault: fault.began):
        for pid in fault.pids:
            for worker_id in by_pid[pid]:
                struck[worker_id].append(fault)
    return struck


def _causes(
    struck: dict[str, list[Fault]],
    claim: Transition | None,
    transition: Transition,
    lease_seconds: float,
) -> list[Fault]:
    """Return the faults that struck the job's holder before it lost it, last first."""
    if claim is None or claim.worker is None:
        return []
    faults = struck.get(claim.worker, [])
    index = bisect_left([fault.began for fault in faults], transition.at)
    # A claim after the strike is cut by it only while its effects last.
    return [
        fault
        for fault in reversed(faults[:index])
        if claim.at <= fault.ended + lease_seconds
    ]


def _check_occurrences(histories: Histories, findings: Findings) -> Iterator[Violation]:
    """S1 and S2 for schedules of every second: count the seconds, ask no cron."""
    jobs: Counter[tuple[str, int]] = Counter()
    ids: dict[str, Job] = {}
    for job in histories.jobs:
        if job.schedule is not None and job.due_at is not None:
            jobs[job.schedule, round(job.due_at)] += 1
            ids[job.id] = job
    for (schedule, due), count in jobs.items():
        if count != 1:
            yield Violation(
                rule="S1", text=f"{count} jobs of schedule {schedule} for second {due}"
            )
    rows: dict[str, set[int]] = defaultdict(set)
    for occurrence in histories.occurrences:
        due = round(occurrence.due_at)
        findings.occurrences += 1
        if occurrence.due_at != due:
            yield Violation(rule="S1", text=f"due between seconds: {occurrence}")
        if due in rows[occurrence.schedule]:
            yield Violation(rule="S1", text=f"two rows for second {due}")
        rows[occurrence.schedule].add(due)
        if occurrence.state != "fired":
            yield Violation(
                rule="S2", text=f"not fired with catch_up=all: {occurrence}"
            )
        elif occurrence.job not in ids:
            yield Violation(rule="S1", text=f"second {due} has a row and no job")
    for schedule, due in jobs:
        if due not in rows[schedule]:
            yield Violation(rule="S1", text=f"second {due} has a job and no row")
    if histories.scheduled is None:
        return
    first, last = histories.scheduled
    if not rows:
        yield Violation(rule="S2", text="no schedule fired at all")
    for schedule, seconds in rows.items():
        missing = sorted(set(range(int(first) + 1, int(last) + 1)) - seconds)
        if missing:
            yield Violation(
                rule="S2",
                text=f"{len(missing)} seconds of schedule {schedule} never fired, "
                f"among them {missing[:5]}",
            )


def _check_processes(histories: Histories) -> Iterator[Violation]:
    """W1 and W2: how processes ended, and whether their children ended with them."""
    for event in histories.processes:
        if event.event == "orphan":
            yield Violation(
                rule="W2",
                text=f"process {event.pid} of {event.name} went on "
                f"{event.seconds:.1f} s after its parent's death",
            )
        elif event.event == "exit" and not event.expected:
            yield Violation(
                rule="W0",
                text=f"{event.name} ({event.pid}) ended by itself, code {event.code}",
            )
        elif event.event == "exit" and event.code not in (0, -9):
            yield Violation(
                rule="W1",
                text=f"{event.name} ({event.pid}) ended with {event.code} on SIGTERM",
            )
        elif event.event == "exit" and (
            event.seconds > histories.grace_seconds + STOP_SECONDS
        ):
            yield Violation(
                rule="W1",
                text=f"{event.name} ({event.pid}) took {event.seconds:.1f} s to stop",
            )


def _check_logs(histories: Histories) -> Iterator[Violation]:
    for complaint in histories.complaints:
        yield Violation(
            rule="LOG",
            text=f"{complaint.source}: {complaint.text} ({complaint.count} times)",
        )


def history_of(histories: Histories, job: str) -> list[str]:
    """Return everything known about one job, a line each, in order of time."""
    lines: list[tuple[float, str]] = []
    for row in histories.transitions:
        if row.job == job:
            lines.append(
                (
                    row.at,
                    f"row    {row.old} -> {row.new} attempt {row.old_attempt} -> "
                    f"{row.attempt} worker {row.old_worker} -> {row.worker} "
                    f"token {row.token} charge {row.charge} {row.error or ''} "
                    f"backend {row.backend}",
                )
            )
    holders = set()
    for effect in _of_job(histories.effects, job):
        holders.add(effect.pid)
        lines.append(
            (
                effect.at,
                f"effect {effect.phase} attempt {effect.attempt} worker "
                f"{effect.worker} pid {effect.pid}",
            )
        )
    if lines:
        first, last = min(lines)[0], max(lines)[0]
        lines += [
            (
                fault.began,
                f"fault  {fault.kind} of {fault.victim} pids {list(fault.pids)} for "
                f"{fault.ended - fault.began:.3f} s",
            )
            for fault in histories.faults
            if holders & set(fault.pids) and first - 1 <= fault.began <= last
        ]
    return [f"{at:.6f} {text}" for at, text in sorted(lines)]


def _of_job(effects: list[Effect], job: str) -> Iterator[Effect]:
    return (effect for effect in effects if effect.job == job)


def explain(histories: Histories, findings: Findings) -> Iterator[str]:
    """Yield the first violations with the histories of their jobs."""
    for violation in findings.violations[:SHOWN]:
        yield str(violation)
        if violation.job is not None:
            for line in history_of(histories, violation.job):
                yield f"    {line}"
    hidden = len(findings.violations) - SHOWN
    if hidden > 0:
        yield f"… and {hidden} more"
