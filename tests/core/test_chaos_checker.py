"""The judge of the chaos runs must see each kind of broken promise."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.chaos.checker import FenceWatch, check, check_parts, explain, percentile
from tests.chaos.histories import (
    Effect,
    Entry,
    Fault,
    Histories,
    Job,
    Occurrence,
    ProcessEvent,
    Transition,
    WorkerRow,
    Written,
)
from tests.chaos.logs import complaints_of
from tests.chaos.profiles import FIXED_SEED, SMOKE, plan

A = "aaaaaaaa-0000-7000-8000-000000000000"
B = "bbbbbbbb-0000-7000-8000-000000000000"


class Story:
    """Writes the histories of one job, by default a job that simply succeeds."""

    def __init__(self) -> None:
        self.histories = Histories(
            ledger=[Entry(key="k", word="ok")],
            jobs=[Job(id="job", task="chaos:nap", state="completed", key="k")],
            workers=[
                WorkerRow(id=A, name="a", pid=1, state="running", began=0),
                WorkerRow(id=B, name="b", pid=2, state="running", began=0),
            ],
        )
        self.row(0, None, "queued")

    def row(self, at: float, old: str | None, new: str | None, **more: Any) -> None:
        transitions = self.histories.transitions
        transitions.append(
            Transition(
                seq=len(transitions) + 1, job="job", old=old, new=new, at=at, **more
            )
        )

    def claim(self, at: float, worker: str, attempt: int) -> None:
        self.row(
            at,
            "queued",
            "running",
            old_attempt=attempt - 1,
            attempt=attempt,
            worker=worker,
        )

    def end(
        self,
        at: float,
        worker: str,
        attempt: int,
        *,
        old: str = "running",
        new: str = "completed",
        on_row: int | None = None,
    ) -> None:
        """A finish by (worker, attempt); on_row: the attempt that it met there."""
        met = attempt if on_row is None else on_row
        self.row(
            at,
            old,
            new,
            old_attempt=met,
            attempt=met,
            token=f"{attempt} {worker}",
            charge="failure" if new == "retrying" else None,
        )

    def take(
        self, at: float, worker: str, attempt: int, *, charge: str | None = "loss"
    ) -> None:
        self.row(
            at,
            "running",
            "queued",
            old_attempt=attempt,
            attempt=attempt,
            old_worker=worker,
            charge=charge,
        )

    def ran(self, began: float, ended: float | None, worker: str, attempt: int) -> None:
        pid = 1 if worker == A else 2
        for phase, at in (("start", began), ("end", ended)):
            if at is not None:
                self.histories.effects.append(
                    Effect(
                        phase=phase,
                        job="job",
                        attempt=attempt,
                        worker=worker,
                        pid=pid,
                        mono=at,
                        at=at,
                    )
                )

    def fault(self, kind: str, began: float, ended: float, pid: int = 1) -> None:
        self.histories.faults.append(
            Fault(
                kind=kind,
                victim="worker",
                pids=(pid,),
                began=began,
                ended=ended,
                mono_began=began,
                mono_ended=ended,
            )
        )

    def rules(self) -> set[str]:
        return set(check(self.histories).rules())


@pytest.fixture
def story() -> Story:
    return Story()


def simple(story: Story) -> Story:
    story.claim(1, A, 1)
    story.ran(1.1, 1.9, A, 1)
    story.end(2, A, 1)
    return story


def stopped_and_repeated(story: Story) -> Story:
    """A is stopped while it runs the job, B runs it again and ends it."""
    story.claim(1, A, 1)
    story.fault("stop", 1.5, 3.5)
    story.take(2.6, A, 1)
    story.claim(2.7, B, 2)
    story.ran(1.1, 3.3, A, 1)
    story.ran(2.8, 4.0, B, 2)
    return story


def test_a_job_that_simply_succeeds_breaks_nothing(story: Story) -> None:
    findings = check(simple(story).histories)

    assert findings.violations == []
    assert (findings.executions, findings.extra) == (1, 0)
    assert findings.ledger == {"ok": 1}


def test_a_late_finish_that_is_refused_breaks_nothing(story: Story) -> None:
    stopped_and_repeated(story).end(4.1, B, 2)

    findings = check(story.histories)

    assert findings.violations == []
    assert (findings.late, findings.overlaps) == (1, 1)
    assert (findings.extra, findings.budget) == (1, 1)
    assert findings.unprovoked == {}
    assert findings.ready_again == {"stop": [pytest.approx(1.1)]}


def test_a_stale_finish_while_another_runs_the_job_is_j5(story: Story) -> None:
    stopped_and_repeated(story)
    story.end(3.4, A, 1, on_row=2)

    assert "J5" in story.rules()


def test_a_stale_finish_of_a_queued_job_is_j5(story: Story) -> None:
    story.claim(1, A, 1)
    story.fault("stop", 1.5, 3.5)
    story.ran(1.1, 3.3, A, 1)
    story.take(2.6, A, 1)
    story.end(3.4, A, 1, old="queued")

    assert "J5" in story.rules()


def test_a_stale_finish_of_a_completed_job_is_j6(story: Story) -> None:
    stopped_and_repeated(story).end(4.1, B, 2)
    story.end(4.2, A, 1, old="completed", on_row=2)

    assert {"J5", "J6"} <= story.rules()


@pytest.mark.parametrize("attempts", [[], [1, 1], [1, 2]], ids=str)
def test_a_transactional_job_that_took_effect_other_than_once_is_j12(
    story: Story, attempts: list[int]
) -> None:
    simple(story).histories.jobs = [
        Job(id="job", task="chaos:transact", state="completed", key="k")
    ]
    story.histories.written = [Written(job="job", attempt=each) for each in attempts]

    assert story.rules() == {"J12"}


def test_an_effect_of_a_transactional_job_that_was_rolled_back_is_j12(
    story: Story,
) -> None:
    simple(story).histories.written = [Written(job="another", attempt=1)]

    assert story.rules() == {"J12"}


def test_a_stale_failure_is_j5(story: Story) -> None:
    stopped_and_repeated(story)
    story.end(3.4, A, 1, new="retrying", on_row=2)

    assert "J5" in story.rules()


def test_a_completion_without_the_result_of_the_claim_is_j5(story: Story) -> None:
    story.claim(1, A, 1)
    story.ran(1.1, 1.9, A, 1)
    story.row(2, "running", "completed", old_attempt=1, attempt=1)

    assert "J5" in story.rules()


@pytest.mark.parametrize("attempt", [1, 3])
def test_a_claim_that_does_not_raise_the_attempt_by_one_is_j4(
    story: Story, attempt: int
) -> None:
    story.claim(1, A, 1)
    story.take(2, A, 1)
    story.row(3, "queued", "running", old_attempt=1, attempt=attempt, worker=B)

    assert "J4" in story.rules()


def test_a_running_job_that_changes_hands_is_j4() -> None:
    watch = FenceWatch()
    moved = Transition(
        seq=1,
        job="job",
        old="running",
        new="running",
        old_attempt=1,
        attempt=1,
        old_worker=A,
        worker=B,
    )

    assert [violation.rule for violation in watch.feed(moved)] == ["J4"]


def test_an_execution_without_a_claim_is_j4(story: Story) -> None:
    simple(story).ran(1.2, 1.3, B, 1)

    assert "J4" in story.rules()


def test_an_attempt_that_starts_twice_is_j10(story: Story) -> None:
    simple(story).ran(1.95, 1.99, A, 1)

    assert story.rules() == {"J10"}


def test_a_committed_job_without_a_row_is_j1(story: Story) -> None:
    simple(story).histories.ledger.append(Entry(key="gone", word="ok"))

    assert story.rules() == {"J1"}


def test_a_job_that_never_ends_is_j1(story: Story) -> None:
    story.histories.jobs = [Job(id="job", task="chaos:nap", state="queued", key="k")]

    assert story.rules() == {"J1"}


def test_a_job_that_ends_in_the_wrong_state_is_j1(story: Story) -> None:
    simple(story).histories.jobs = [
        Job(id="job", task="chaos:doomed", state="completed", key="k")
    ]

    assert story.rules() == {"J1"}


def test_a_row_that_was_deleted_is_j1(story: Story) -> None:
    simple(story).row(3, "completed", None)

    assert "J1" in story.rules()


def test_a_job_that_nobody_enqueued_is_j2(story: Story) -> None:
    simple(story).histories.ledger = []

    assert story.rules() == {"J2"}


@pytest.mark.parametrize("word", ["ok", "unknown"])
def test_two_rows_of_one_key_are_j2(story: Story, word: str) -> None:
    simple(story).histories.ledger = [Entry(key="k", word=word)]
    twin = Job(id="twin", task="chaos:nap", state="completed", key="k")
    story.histories.jobs.append(twin)

    assert "J2" in story.rules()


@pytest.mark.parametrize("has_row", [True, False])
def test_an_unknown_enqueue_may_have_a_row_or_none(story: Story, has_row: bool) -> None:
    simple(story).histories.ledger = [
        Entry(key="k" if has_row else "other", word="unknown"),
        *([] if has_row else [Entry(key="k", word="ok")]),
    ]

    assert story.rules() == set()


def test_a_rolled_back_job_with_a_row_is_j3(story: Story) -> None:
    simple(story).histories.ledger = [Entry(key="k", word="fail")]

    assert story.rules() == {"J3"}


def test_more_failures_than_allowed_is_j11(story: Story) -> None:
    simple(story).histories.jobs = [
        Job(
            id="job",
            task="chaos:nap",
            state="completed",
            key="k",
            failures=3,
            max_retries=1,
        )
    ]

    assert story.rules() == {"J11"}


def test_an_overlap_that_no_stop_covers_is_j8(story: Story) -> None:
    stopped_and_repeated(story).end(4.1, B, 2)
    story.histories.faults = []
    story.fault("stop", 1.5, 3.5, pid=3)

    findings = check(story.histories)

    assert set(findings.rules()) == {"J8/J9"}
    assert findings.unprovoked == {"loss": 1}


def test_a_stale_start_after_a_stop_breaks_nothing(story: Story) -> None:
    story.claim(1, A, 1)
    story.fault("stop", 1.5, 3.5)
    story.take(2.6, A, 1)
    story.claim(2.7, B, 2)
    story.ran(2.8, 4.0, B, 2)
    story.ran(3.3, 3.6, A, 1)
    story.end(4.1, B, 2)

    assert story.rules() == set()


@pytest.mark.parametrize(
    ("kind", "rules"), [("child", set()), ("keeper", {"J11"}), ("stop", {"J11"})]
)
def test_only_a_killed_child_may_cost_a_crash(
    story: Story, kind: str, rules: set[str]
) -> None:
    story.claim(1, A, 1)
    story.fault(kind, 1.5, 1.5)
    story.take(1.6, A, 1, charge="crash")
    story.claim(1.7, B, 2)
    story.ran(1.8, 1.9, B, 2)
    story.end(2, B, 2)

    assert story.rules() == rules


def test_a_killed_child_may_cost_a_crash_though_something_else_struck_afterwards(
    story: Story,
) -> None:
    story.claim(1, A, 1)
    story.fault("child", 1.5, 1.5)
    story.fault("term", 1.52, 1.6)
    story.take(1.6, A, 1, charge="crash")
    story.claim(1.7, B, 2)
    story.ran(1.8, 1.9, B, 2)
    story.end(2, B, 2)

    assert story.rules() == set()


def test_an_overlap_after_a_kill_is_seen_by_how_long_the_process_lived(
    story: Story,
) -> None:
    story.claim(1, A, 1)
    story.ran(1.1, None, A, 1)
    story.take(2.6, A, 1)
    story.claim(2.7, B, 2)
    story.ran(2.8, 4.0, B, 2)
    story.end(4.1, B, 2)
    story.fault("parent", 1.5, 1.5)
    seen = ProcessEvent(event="seen", name="worker", pid=1, mono=1.5)
    story.histories.processes = [seen]
    assert story.rules() == set()

    story.histories.processes = [
        ProcessEvent(event="seen", name="worker", pid=1, mono=3.0)
    ]

    assert story.rules() == {"J8/J9"}


@pytest.mark.parametrize(
    ("event", "rule"),
    [
        ({"event": "orphan", "seconds": 2.1}, "W2"),
        ({"event": "exit", "code": 1, "expected": False}, "W0"),
        ({"event": "exit", "code": 1}, "W1"),
        ({"event": "exit", "code": 0, "seconds": 6.5}, "W1"),
    ],
)
def test_a_process_that_ends_badly_is_seen(
    story: Story, event: dict[str, Any], rule: str
) -> None:
    simple(story).histories.processes = [
        ProcessEvent(name="worker0", pid=9, mono=1, **event)
    ]

    assert story.rules() == {rule}


def test_what_the_logs_complain_of_is_shown(story: Story, tmp_path: Path) -> None:
    server = tmp_path / "server"
    server.write_text(
        "before the run: ERROR:  old\n"
        "1 ERROR:  LIMIT must not be negative\n"
        "2 ERROR:  LIMIT must not be negative\n"
        "3 ERROR:  canceling statement due to statement timeout\n"
        "4 FATAL:  terminating connection due to administrator command\n"
    )
    (tmp_path / "worker0.log").write_text(
        "Traceback (most recent call last):\n"
        "  File x\n"
        "IndexError: list index out of range\n"
        "Traceback (most recent call last):\n"
        "  File y\n"
        "psycopg.errors.AdminShutdown: terminating connection\n"
        "Traceback (most recent call last):\n"
        "  File z\n"
        "tests.chaos.workload.PlannedFailure: 1 of a job\n"
    )
    offset = len("before the run: ERROR:  old\n")

    simple(story).histories.complaints = complaints_of(tmp_path, server, offset)

    assert [found.text for found in check(story.histories).violations] == [
        "PostgreSQL: LIMIT must not be negative (2 times)",
        "worker0: IndexError: list index out of range (1 times)",
    ]


def scheduled(story: Story, seconds: list[int]) -> Histories:
    histories = simple(story).histories
    histories.scheduled = (100.5, 104.5)
    for second in seconds:
        name = f"tick{second}"
        histories.jobs.append(
            Job(
                id=name,
                task="chaos:tick",
                state="completed",
                schedule="s",
                due_at=second,
            )
        )
        histories.transitions += [
            Transition(seq=1, job=name, old=None, new="queued"),
            Transition(
                seq=2,
                job=name,
                old="queued",
                new="running",
                old_attempt=0,
                attempt=1,
                worker=A,
            ),
            Transition(
                seq=3,
                job=name,
                old="running",
                new="completed",
                old_attempt=1,
                attempt=1,
                token=f"1 {A}",
            ),
        ]
        histories.occurrences.append(
            Occurrence(schedule="s", due_at=second, state="fired", job=name)
        )
    return histories


def test_every_second_fired_once_breaks_nothing(story: Story) -> None:
    scheduled(story, [101, 102, 103, 104])

    assert story.rules() == set()


def test_a_second_that_never_fired_is_s2(story: Story) -> None:
    scheduled(story, [101, 102, 104])

    assert story.rules() == {"S2"}


def test_a_second_that_was_only_recorded_as_missed_is_s2(story: Story) -> None:
    histories = scheduled(story, [101, 102, 103, 104])
    histories.occurrences[1] = Occurrence(
        schedule="s", due_at=102, state="missed", job=None
    )

    assert "S2" in story.rules()


def test_a_second_with_two_jobs_is_s1(story: Story) -> None:
    scheduled(story, [101, 102, 102, 103, 104])

    assert "S1" in story.rules()


def test_an_occurrence_without_its_job_is_s1(story: Story) -> None:
    histories = scheduled(story, [101, 102, 103, 104])
    histories.jobs.pop()

    assert "S1" in story.rules()


def test_a_job_without_its_occurrence_is_s1(story: Story) -> None:
    histories = scheduled(story, [101, 102, 103, 104])
    histories.occurrences.pop()

    assert "S1" in story.rules()


def test_no_occurrence_at_all_is_s2(story: Story) -> None:
    scheduled(story, [])

    assert story.rules() == {"S2"}


def test_a_violation_is_explained_by_the_jobs_history(story: Story) -> None:
    stopped_and_repeated(story)
    story.end(3.4, A, 1, on_row=2)

    text = "\n".join(explain([story.histories], check(story.histories)))

    assert "J5: running to completed by the stale token" in text
    assert "fault  stop of worker" in text
    assert f"effect start attempt 2 worker {B}" in text


def test_one_seed_makes_one_stream_of_all_the_faults() -> None:
    stream = plan(SMOKE, (FIXED_SEED, 7))

    assert stream == plan(SMOKE, (FIXED_SEED, 7))
    assert stream != plan(SMOKE, (FIXED_SEED, 8))
    assert len(stream) == sum(SMOKE.faults.values())
    assert all(0 <= fault.at_seconds <= SMOKE.seconds for fault in stream)


@pytest.mark.parametrize(("share", "value"), [(0.0, 1), (0.5, 2), (0.99, 4), (1.0, 4)])
def test_a_percentile_is_one_of_the_values(share: float, value: float) -> None:
    assert percentile([4, 1, 3, 2], share) == value


def test_the_percentile_of_nothing_is_zero() -> None:
    assert percentile([], 0.5) == 0.0


def test_a_run_is_judged_the_same_in_parts(story: Story) -> None:
    stopped_and_repeated(story).end(4.1, B, 2)
    whole = check(story.histories)
    rest = replace(story.histories, jobs=[], transitions=[], effects=[])

    findings = check_parts([rest, story.histories, rest])

    assert findings == whole
    assert findings.jobs == 1


def test_a_key_with_rows_in_two_parts_is_j2(story: Story) -> None:
    simple(story)
    twin = Job(id="twin", task="chaos:nap", state="completed", key="k")
    other = replace(story.histories, jobs=[twin], transitions=[], effects=[])

    findings = check_parts([story.histories, other])

    assert "J2" in findings.rules()


def test_repeats_are_held_against_what_struck_owners_held(story: Story) -> None:
    stopped_and_repeated(story).end(4.1, B, 2)
    story.fault("child", 9, 9)

    findings = check(story.histories)

    assert (findings.duplicates, findings.in_flight) == (1, 1)


def test_a_repeat_after_a_failure_of_its_own_is_no_duplicate(story: Story) -> None:
    story.claim(1, A, 1)
    story.ran(1.1, 1.2, A, 1)
    story.end(1.3, A, 1, new="retrying")
    story.row(2, "retrying", "queued", old_attempt=1, attempt=1)
    story.claim(2.1, A, 2)
    story.ran(2.2, 2.3, A, 2)
    story.end(2.4, A, 2)

    findings = check(story.histories)

    assert (findings.extra, findings.duplicates, findings.budget) == (1, 0, 1)


def taken_late(story: Story, *, others: list[tuple[float, float]]) -> Story:
    """A is killed at 1.5; its job is taken at 5, after more than lease and 2 s."""
    story.claim(1, A, 1)
    story.fault("parent", 1.5, 1.5)
    story.take(5, A, 1)
    story.claim(5.1, B, 2)
    story.ran(5.2, 5.3, B, 2)
    story.end(5.4, B, 2)
    for number, name in enumerate(("worker", "worker2")):
        story.histories.processes.append(
            ProcessEvent(event="seen", name=name, pid=10 + number, mono=9)
        )
    for began, ended in others:
        story.fault("stop", began, ended, pid=2)
        story.histories.faults[-1] = replace(
            story.histories.faults[-1], victim="worker2"
        )
    return story


def test_a_job_that_comes_back_too_late_is_overdue(story: Story) -> None:
    findings = check(taken_late(story, others=[]).histories)

    assert [violation.rule for violation in findings.overdue] == ["READY"]
    assert findings.violations == []


def test_a_job_that_was_claimed_after_the_strike_is_overdue_from_then_on(
    story: Story,
) -> None:
    story.fault("stop", 1, 6)
    story.claim(6.5, A, 1)
    story.take(7, A, 1, charge=None)
    story.claim(7.1, B, 2)
    story.ran(7.2, 7.3, B, 2)
    story.end(7.4, B, 2)

    findings = check(story.histories)

    assert findings.ready_again == {"stop": [pytest.approx(0.5)]}
    assert findings.overdue == []


def test_a_job_is_not_overdue_while_no_keeper_had_been_sound(story: Story) -> None:
    findings = check(taken_late(story, others=[(0.5, 1.4)]).histories)

    assert findings.overdue == []


@pytest.mark.parametrize(("back_at", "rules"), [(3.5, []), (1.6, ["READY"])])
def test_a_worker_that_starts_anew_has_a_keeper_once_it_is_registered(
    story: Story, back_at: float, rules: list[str]
) -> None:
    histories = taken_late(story, others=[]).histories
    histories.lease_seconds = 0.5
    # Its neighbour stands still all the time.
    histories.faults.append(
        replace(histories.faults[0], kind="stop", victim="worker2", ended=9, pids=(2,))
    )
    histories.processes.append(
        ProcessEvent(event="seen", name="worker", pid=12, mono=9)
    )
    histories.workers.append(
        WorkerRow(id="c", name="c", pid=12, state="running", began=back_at)
    )

    findings = check(histories)

    assert [violation.rule for violation in findings.overdue] == rules
