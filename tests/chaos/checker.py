"""Judges the histories of a run. Reads nothing else and imports no relay.

The rules carry the names of the invariants in docs/reliability.md.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from typing import Final

from tests.chaos.executions import check_executions
from tests.chaos.findings import FINAL, SHOWN, Findings, Violation, percentile
from tests.chaos.histories import Effect, Histories, Job, Transition
from tests.chaos.profiles import ENDINGS

__all__ = [
    "FenceWatch",
    "Findings",
    "Violation",
    "check",
    "check_parts",
    "explain",
    "percentile",
]

TRANSACTIONAL_TASK: Final = "chaos:transact"
# A process that was asked to stop has its grace and this long besides. Source: W1.
STOP_SECONDS: Final = 5.0


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


def check(histories: Histories) -> Findings:
    """Judge a run that is given whole."""
    return check_parts([histories])


def check_parts(parts: Iterable[Histories]) -> Findings:
    """Judge a run whose jobs are spread over parts, so that not all are in memory.

    Args:
        parts: each has all that is known of its own jobs, and all of what concerns
            no single job; at least one.
    """
    findings = Findings()
    violations = findings.violations
    keys = _Keys()
    scheduled: list[Job] = []
    for part in parts:
        findings.jobs += len(part.jobs)
        watch = FenceWatch()
        for transition in part.transitions:
            violations += watch.feed(transition)
        violations += keys.feed(part.jobs)
        scheduled += [job for job in part.jobs if job.schedule is not None]
        violations += _check_endings(part)
        violations += _check_transition_ends(part)
        violations += _check_written(part, findings)
        violations += check_executions(part, findings)
    violations += _check_ledger(part, keys, findings)
    violations += _check_occurrences(part, scheduled, findings)
    violations += _check_processes(part)
    violations += _check_logs(part)
    return findings


class _Keys:
    """Which job has which of the producers' keys."""

    def __init__(self) -> None:
        self.jobs: dict[str, str] = {}
        # How many rows the keys have that have more than one.
        self.rows: dict[str, int] = {}

    def feed(self, jobs: Iterable[Job]) -> Iterator[Violation]:
        for job in jobs:
            if job.key is None:
                if job.schedule is None:
                    yield Violation(
                        rule="J2", job=job.id, text="nobody enqueued this job"
                    )
            elif job.key in self.jobs:
                self.rows[job.key] = self.rows.get(job.key, 1) + 1
            else:
                self.jobs[job.key] = job.id


def _check_ledger(
    histories: Histories, keys: _Keys, findings: Findings
) -> Iterator[Violation]:
    """J1 and J2 and J3: the producers' ledger against the rows that are there."""
    left = dict(keys.jobs)
    for entry in histories.ledger:
        findings.ledger[entry.word] += 1
        job = left.pop(entry.key, None)
        if entry.word == "ok" and job is None:
            findings.lost += 1
            yield Violation(rule="J1", text=f"lost: {entry.key} was committed")
        if entry.word == "fail" and job is not None:
            yield Violation(
                rule="J3",
                job=job,
                text=f"{entry.key} was rolled back and has a row",
            )
        if entry.key in keys.rows:
            yield Violation(
                rule="J2",
                job=job,
                text=f"{entry.key} was enqueued once and has "
                f"{keys.rows[entry.key]} rows",
            )
    for key, job in left.items():
        yield Violation(rule="J2", job=job, text=f"nobody tried to enqueue {key}")


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
    findings.written += len(histories.written)
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


def _check_occurrences(
    histories: Histories, scheduled: Iterable[Job], findings: Findings
) -> Iterator[Violation]:
    """S1 and S2 for schedules of every second: count the seconds, ask no cron."""
    jobs: Counter[tuple[str, int]] = Counter()
    ids: dict[str, Job] = {}
    for job in scheduled:
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


def explain(parts: Iterable[Histories], findings: Findings) -> Iterator[str]:
    """Yield the first violations with the histories of their jobs.

    Args:
        parts: as they were given to check_parts().
    """
    shown = findings.violations[:SHOWN]
    wanted = {violation.job for violation in shown if violation.job is not None}
    known: dict[str, list[str]] = defaultdict(list)
    for part in parts if wanted else ():
        for job in wanted:
            known[job] += history_of(part, job)
    for violation in shown:
        yield str(violation)
        for line in known[violation.job] if violation.job else ():
            yield f"    {line}"
    hidden = len(findings.violations) - SHOWN
    if hidden > 0:
        yield f"… and {hidden} more"
