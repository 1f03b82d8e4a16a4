"""What a child counts, and tells its keeper."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from uuid import UUID

import pytest

from relay import counts
from relay.engine.claim import ClaimedJob
from relay.engine.finish import Completed, Outcome, Settled, Verb, Written
from relay.ids import uuid7
from relay.worker.messages import datagrams
from relay.worker.pool import NOT_STARTED, Ended
from relay.worker.rollup import RollUp, meter
from relay.worker.tally import CELLS_AT_ONCE, Forwarded, Key, Tally, Told, read_told
from tests.meters import Sums


def job(*, queue: str = "q", task: str = "t", wait_s: float = 0.0) -> ClaimedJob:
    return ClaimedJob(uuid7(), task, queue, 0, 1, 1, {}, 0, 0, 0, wait_s=wait_s)


def end(one: ClaimedJob, outcome: Outcome, seconds: float, entry: int = 1) -> Ended:
    return Ended(one, outcome, entry, seconds)


def completed(one: ClaimedJob) -> Completed:
    return Completed(one.id, 1, "null", None)


def settled(one: ClaimedJob, verb: Verb, error_class: str | None = None) -> Settled:
    return Settled(id=one.id, attempt=1, verb=verb, error_class=error_class)


def told_by(tally: Tally, held: list[ClaimedJob] | None = None) -> list[Told]:
    keeper, child = datagrams()
    with keeper, child:
        tally.tell(child, held or [])
        found: list[Told] = []
        try:
            while True:
                found.append(read_told(keeper.recv(1 << 20)))
        except BlockingIOError:
            return found


def test_ends_are_told_with_how_long_they_ran_and_had_waited() -> None:
    tally, jobs = Tally(), [job(wait_s=0.3), job(wait_s=2.0), job(task="other")]
    ends = [end(one, completed(one), 0.5) for one in jobs]

    tally.note_ends(ends, {one.id: "completed" for one in jobs})
    [told] = told_by(tally)

    cell = told.cells["q", "t", "completed"]
    assert cell.count == 2
    assert cell.run_seconds == pytest.approx(1.0)
    assert cell.wait_seconds == pytest.approx(2.3)
    assert sum(cell.run) == sum(cell.wait) == 2
    assert told.cells["q", "other", "completed"].count == 1
    assert told_by(tally) == []


@pytest.mark.parametrize(
    ("verb", "state", "error_class", "outcome", "reason"),
    [
        ("retry", "retrying", "ValueError", "retried", "exception"),
        ("retry", "retrying", "JobTimeout", "retried", "timeout"),
        ("retry", "failed", "ValueError", "failed", "exception"),
        ("fail", "failed", "DeadlineExceeded", "failed", "deadline"),
        ("crash", "queued", None, "crash", "killed"),
        ("cancel", "cancelled", "Cancelled", "cancelled", None),
        ("snooze", "retrying", "Snooze", "snoozed", None),
        ("hand_back", "retrying", "UnknownTask", "hand_back", None),
        ("release", "queued", None, "release", None),
    ],
)
def test_each_end_has_its_outcome_and_an_error_its_reason(
    verb: Verb, state: str, error_class: str | None, outcome: str, reason: str | None
) -> None:
    tally, one = Tally(), job()

    tally.note_ends([end(one, settled(one, verb, error_class), 0.1)], {one.id: state})
    [told] = told_by(tally)

    assert list(told.cells) == [("q", "t", outcome)]
    assert dict(told.errors) == ({} if reason is None else {("q", "t", reason): 1})


def test_a_job_that_never_started_has_no_duration() -> None:
    tally, one = Tally(), job(wait_s=5)

    tally.note_ends(
        [end(one, settled(one, "cancel"), 0.0, NOT_STARTED)], {one.id: "cancelled"}
    )
    [told] = told_by(tally)

    cell = told.cells["q", "t", "cancelled"]
    assert cell.count == 1
    assert not any(cell.run)
    assert not any(cell.wait)


def test_a_transactional_end_counts_though_its_handler_wrote_it() -> None:
    tally, done, undone = Tally(), job(), job()
    ends = [
        end(done, Written(done.id, 1, "null"), 0.1),
        end(undone, Written(undone.id, 1, None), 0.1),
    ]

    tally.note_ends(ends, {})
    [told] = told_by(tally)

    assert [(key, cell.count) for key, cell in told.cells.items()] == [
        (("q", "t", "completed"), 1)
    ]


def test_many_tasks_go_in_several_datagrams_and_nothing_twice() -> None:
    tally = Tally()
    jobs = [job(task=f"t{number}") for number in range(2 * CELLS_AT_ONCE + 1)]
    tally.note_ends(
        [end(one, completed(one), 0.1) for one in jobs],
        {one.id: "completed" for one in jobs},
    )
    tally.note_claim(["q"], jobs, 0.01)

    told = told_by(tally)

    assert len(told) == 3
    assert sum(cell.count for part in told for cell in part.cells.values()) == len(jobs)
    assert sum(part.claimed["q"] for part in told) == len(jobs)


def told_in_turns(tally: Tally, held: list[ClaimedJob] | None = None) -> Iterator[Told]:
    """Tell and read in turns, until nothing is told any more."""
    while told := told_by(tally, held):
        yield from told


def test_thousands_of_queues_go_in_datagrams_that_the_system_takes() -> None:
    tally = Tally()
    queues = [f"{number:0100}" for number in range(3_000)]
    tally.note_claim(queues, [], 0.01)
    empty: Counter[str] = Counter()

    for told in told_in_turns(tally):
        empty += told.empty

    assert empty == Counter(queues)


def test_held_jobs_of_thousands_of_queues_are_told_and_forgotten(sums: Sums) -> None:
    tally = Tally()
    held = [job(queue=f"{number:0100}") for number in range(2_500)]
    keeper, child = datagrams()
    with keeper, child:
        roll_up = RollUp([keeper], is_metered=True)
        while len(sums.gauges) < len(held):
            before = len(sums.gauges)
            tally.tell(child, held)
            roll_up.read(keeper)
            assert len(sums.gauges) > before
        assert set(sums.gauges.values()) == {1}
        tally.tell(child, held[:1])
        roll_up.read(keeper)

    assert Counter(sums.gauges.values()) == {1: 1, 0: len(held) - 1}


@pytest.mark.parametrize("letter", ["x", "\N{CYRILLIC SMALL LETTER ZHE}", "\ud800"])
def test_long_names_go_in_datagrams_that_the_system_takes(letter: str) -> None:
    tally = Tally()
    jobs = [
        job(queue=f"{number:03}" + letter * 90, task=f"{number:03}" + letter * 190)
        for number in range(200)
    ]
    tally.note_ends(
        [end(one, settled(one, "fail", "ValueError"), 0.1) for one in jobs],
        {one.id: "failed" for one in jobs},
    )
    tally.note_claim([one.queue for one in jobs], jobs, 0.01)
    tally.note_claim([one.queue for one in jobs], [], 0.01)
    errors: Counter[Key] = Counter()
    claimed: Counter[str] = Counter()

    for told in told_in_turns(tally):
        errors += told.errors
        claimed += told.claimed

    assert errors == Counter((one.queue, one.task, "exception") for one in jobs)
    assert claimed == Counter(one.queue for one in jobs)


def test_what_the_keeper_has_no_room_for_is_told_later() -> None:
    tally, one = Tally(), job()
    keeper, child = datagrams()
    with keeper, child:
        try:
            while True:
                child.send(b"x")
        except OSError:
            pass
        tally.note_ends([end(one, completed(one), 0.1)], {one.id: "completed"})
        tally.tell(child, [])

    [told] = told_by(tally)

    assert told.cells["q", "t", "completed"].count == 1


def test_what_is_held_is_told_when_it_changes() -> None:
    tally, held = Tally(), [job(), job(queue="other")]

    [first] = told_by(tally, held)
    again = told_by(tally, held)
    [last] = told_by(tally)

    assert first.running == {"q": 1, "other": 1}
    assert again == []
    assert last.running == {}


def test_what_else_a_child_counts_is_told_as_well(sums: Sums) -> None:
    tally = Tally()
    tally.forwarded = Forwarded()
    counts.install(tally.forwarded)  # until sums puts the one before back
    counts.add("relay_jobs_enqueued_total", "q", "t", amount=3)

    [told] = told_by(tally)

    assert dict(told.sums) == {("relay_jobs_enqueued_total", "q", "t"): 3}
    assert told_by(tally) == []


def test_what_is_told_becomes_metrics(sums: Sums) -> None:
    tally, done, failed = Tally(), job(wait_s=0.3), job()
    states: dict[UUID, str] = {done.id: "completed", failed.id: "failed"}
    tally.note_ends(
        [
            end(done, completed(done), 0.2),
            end(failed, settled(failed, "fail", "ValueError"), 0.4),
        ],
        states,
    )
    tally.note_claim(["q"], [done, failed], 0.01)
    tally.note_claim(["q", "r"], [], 0.01)
    tally.note_lost()

    for told in told_by(tally):
        meter(told)

    assert sums.of("relay_jobs_finished_total") == {
        ("q", "t", "completed"): 1,
        ("q", "t", "failed"): 1,
    }
    assert sums.of("relay_job_errors_total") == {("q", "t", "exception"): 1}
    assert sums.of("relay_job_duration_seconds") == {("q", "t"): pytest.approx(0.6)}
    assert sums.of("relay_job_queue_wait_seconds") == {("q",): pytest.approx(0.3)}
    assert sums.of("relay_claim_jobs_total") == {("q",): 2}
    assert sums.of("relay_claim_empty_total") == {("q",): 1, ("r",): 1}
    assert sums.of("relay_leases_lost_total") == {(): 1}
