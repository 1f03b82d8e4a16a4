"""Marks: where a claim begins to look, and that no row stays unseen."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relay.engine.claim import ClaimedJob, Marks, Span
from relay.engine.connection import EngineConnection
from tests.engine.rows import add_jobs, add_worker, claim, other_session

Key = tuple[str, int, int]


@dataclass
class Table:
    """Queued rows as the claim statement sees them."""

    visible: set[Key] = field(default_factory=set)
    probed: list[Span] = field(default_factory=list)

    def claim(self, spans: Sequence[Span], limit: int) -> list[ClaimedJob]:
        taken: list[Key] = []
        self.probed = []
        for span in spans:
            if len(taken) == limit:
                break
            self.probed.append(span)
            found = sorted(
                (
                    key
                    for key in self.visible
                    if key[0] == span.queue
                    and span.low <= key[1] <= span.high
                    and key[2] > span.mark
                ),
                key=lambda key: (-key[1], key[2]),
            )
            taken += found[: limit - len(taken)]
        self.visible -= set(taken)
        return [
            ClaimedJob(UUID(int=key[2]), "t", *key, 1, {}, 0, 0, 0) for key in taken
        ]


def take(
    table: Table, marks: Marks, *, limit: int = 10, queues: Sequence[str] = ("q",)
) -> list[Key]:
    claimed = table.claim(marks.spans(queues), limit)
    marks.note(claimed, limit=limit)
    return [(job.queue, job.priority, job.ready_seq) for job in claimed]


def begins(marks: Marks, queue: str, priority: int) -> int:
    """Return above which ready_seq the next claim looks at this priority."""
    return min(
        span.mark for span in marks.spans([queue]) if span.low <= priority <= span.high
    )


def test_first_claim_searches_everything() -> None:
    assert Marks().spans(["a", "b"]) == [
        Span("a", 100, -100, -1),
        Span("b", 100, -100, -1),
    ]


def test_known_priorities_are_searched_above_their_marks_and_the_rest_as_gaps() -> None:
    table = Table({("q", 100, 7), ("q", 5, 8), ("q", 4, 9), ("q", -100, 3)})
    marks = Marks()

    take(table, marks)

    assert marks.spans(["q"]) == [
        Span("q", 100, 100, 7),
        Span("q", 99, 6, -1),
        Span("q", 5, 5, 8),
        Span("q", 4, 4, 9),
        Span("q", 3, -99, -1),
        Span("q", -100, -100, 3),
    ]


def test_priority_never_met_is_found_by_the_next_claim_at_its_right_place() -> None:
    table = Table({("q", 0, 1), ("q", 0, 2), ("q", 0, 3)})
    marks = Marks()
    take(table, marks, limit=2)

    table.visible.add(("q", 50, 4))

    assert take(table, marks) == [("q", 50, 4), ("q", 0, 3)]


def test_sweep_that_finds_nothing_leaves_the_marks_where_they_are() -> None:
    table = Table({("q", 0, 40), ("q", 3, 41)})
    marks = Marks()
    take(table, marks)
    before = marks.spans(["q"])

    marks.sweep()
    assert take(table, marks) == []

    assert marks.spans(["q"]) == before


def test_sweep_searches_each_priority_from_the_start() -> None:
    table = Table({("q", 0, 40), ("q", 3, 41)})
    marks = Marks()
    take(table, marks)

    marks.sweep()

    assert marks.spans(["q"]) == [Span("q", 100, -100, -1)]


def test_late_bulk_is_claimed_at_full_rate_after_one_sweep() -> None:
    table = Table({("q", 0, 1_000)})
    marks = Marks()
    take(table, marks)
    table.visible |= {("q", 0, seq) for seq in range(1, 301)}
    assert take(table, marks) == []

    marks.sweep()
    claims = [take(table, marks) for _ in range(30)]

    assert [len(claimed) for claimed in claims] == [10] * 30
    assert not table.visible


def test_search_below_the_mark_goes_on_from_the_last_row_found() -> None:
    table = Table({("q", 0, 1_000)})
    marks = Marks()
    take(table, marks)
    table.visible |= {("q", 0, seq) for seq in range(1, 31)}

    marks.sweep()
    take(table, marks, limit=10)
    assert begins(marks, "q", 0) == 10
    take(table, marks, limit=10)
    assert begins(marks, "q", 0) == 20


def test_mark_never_goes_down() -> None:
    table = Table({("q", 0, 1_000)})
    marks = Marks()
    take(table, marks)
    table.visible |= {("q", 0, 5), ("q", 0, 6), ("q", 0, 7)}
    marks.sweep()

    take(table, marks, limit=2)
    take(table, marks, limit=2)

    assert begins(marks, "q", 0) == 1_000


def test_row_above_the_mark_ends_the_search_below_it() -> None:
    table = Table({("q", 0, 1_000)})
    marks = Marks()
    take(table, marks)
    table.visible |= {("q", 0, 5), ("q", 0, 1_001), ("q", 0, 1_002)}
    marks.sweep()

    take(table, marks, limit=2)

    assert begins(marks, "q", 0) == 1_001


def test_exhausted_priority_is_not_swept_again_while_a_lower_one_fills_the_claims() -> (
    None
):
    table = Table({("a", 9, 1), ("b", 5, 2), ("b", 0, 3)})
    marks = Marks()
    take(table, marks, queues=("a", "b"))
    table.visible |= {("b", 0, seq) for seq in range(10, 50)}

    marks.sweep()
    take(table, marks, limit=10, queues=("a", "b"))

    assert begins(marks, "a", 9) == 1
    assert begins(marks, "b", 5) == 2


def test_sweep_of_a_priority_that_a_full_claim_did_not_reach_stays_due() -> None:
    table = Table({("q", 5, 1), ("q", 0, 2)})
    marks = Marks()
    take(table, marks)
    table.visible |= {("q", 5, seq) for seq in range(10, 20)} | {("q", 0, 1)}

    marks.sweep()
    take(table, marks, limit=5)

    assert begins(marks, "q", 5) == 14
    assert begins(marks, "q", 0) == -1


def test_claim_over_other_queues_leaves_the_sweep_of_this_one_due() -> None:
    table = Table({("a", 0, 1), ("b", 0, 2)})
    marks = Marks()
    take(table, marks, queues=("a", "b"))
    marks.sweep()

    take(table, marks, queues=("a",))

    assert begins(marks, "a", 0) == 1
    assert begins(marks, "b", 0) == -1


def test_hint_below_the_mark_lowers_the_search_to_its_row() -> None:
    table = Table({("q", 0, 1_000)})
    marks = Marks()
    take(table, marks)
    table.visible |= {("q", 0, 500), ("q", 0, 501)}

    marks.hint("q", 0, 500)

    assert begins(marks, "q", 0) == 499
    assert take(table, marks) == [("q", 0, 500), ("q", 0, 501)]
    assert begins(marks, "q", 0) == 1_000


@pytest.mark.parametrize(
    "hint", [("q", 0, 1_001), ("q", 7, 3), ("other", 0, 3)], ids=str
)
def test_hint_about_what_is_searched_anyway_changes_nothing(
    hint: tuple[str, int, int],
) -> None:
    table = Table({("q", 0, 1_000)})
    marks = Marks()
    take(table, marks)
    before = marks.spans(["q", "other"])

    marks.hint(*hint)

    assert marks.spans(["q", "other"]) == before


def test_higher_hint_does_not_raise_a_search_that_begins_lower() -> None:
    table = Table({("q", 0, 1_000)})
    marks = Marks()
    take(table, marks)

    marks.hint("q", 0, 100)
    marks.hint("q", 0, 200)
    assert begins(marks, "q", 0) == 99

    marks.sweep()
    marks.hint("q", 0, 200)
    assert begins(marks, "q", 0) == -1


PLACES = st.tuples(st.sampled_from("ab"), st.sampled_from([100, 7, 6, 0, -100]))
STEPS = st.one_of(
    st.tuples(st.just("insert"), PLACES, st.integers(1, 12)),
    st.tuples(st.just("open"), PLACES, st.integers(1, 12)),
    st.tuples(st.just("commit"), st.booleans(), st.just(0)),
    st.tuples(st.just("claim"), st.booleans(), st.integers(1, 8)),
    st.tuples(st.just("sweep"), st.none(), st.just(0)),
)


@settings(max_examples=400, deadline=None)
@given(st.lists(STEPS, max_size=60))
def test_no_row_is_ever_lost_however_late_it_is_committed(
    steps: list[tuple[str, object, int]],
) -> None:
    table = Table()
    marks = Marks()
    uncommitted: list[Key] = []
    claimed: list[Key] = []
    made = 0
    is_complete = True  # nothing was committed late since the last sweep

    for step, what, number in steps:
        if step in ("insert", "open"):
            assert isinstance(what, tuple)
            keys = [(*what, made + index) for index in range(number)]
            made += number
            if step == "open":
                uncommitted += keys
            else:
                table.visible |= set(keys)
        elif step == "commit":
            table.visible |= set(uncommitted)
            if what and uncommitted:
                for key in uncommitted:
                    marks.hint(*key)
            else:
                is_complete = is_complete and not uncommitted
            uncommitted = []
        elif step == "sweep":
            marks.sweep()
            is_complete = True
        else:
            queues = ("a", "b") if what else ("b", "a")
            best = sorted(
                table.visible,
                key=lambda key: (queues.index(key[0]), -key[1], key[2]),
            )[:number]
            taken = take(table, marks, limit=number, queues=queues)
            claimed += taken
            # Where no row can be hidden below a mark, exactly the first rows come.
            assert not is_complete or taken == best

    table.visible |= set(uncommitted)
    marks.sweep()
    while taken := take(table, marks, limit=3, queues=("a", "b")):
        claimed += taken
    assert not table.visible
    assert len(claimed) == len(set(claimed)) == made


def test_marks_hold_back_no_row_in_either_order_of_uneven_draws() -> None:
    rng = random.Random(7)
    table = Table({("a", rng.randint(-3, 3), seq) for seq in range(2_000)})
    marks = Marks()

    claims = 0
    while table.visible:
        take(table, marks, limit=100, queues=("a",))
        claims += 1
        if rng.random() < 0.2:
            marks.sweep()

    assert claims == 20


# --- on PostgreSQL ---


@pytest.mark.django_db(transaction=True, available_apps=["relay"])
def test_rows_of_a_late_commit_are_claimed_after_the_next_sweep(
    hot: EngineConnection, duty: EngineConnection
) -> None:
    worker_id = add_worker(duty)
    marks = Marks()

    with other_session(autocommit=False) as late:
        late_ids = add_jobs(late, 25)
        early_ids = add_jobs(duty, 5)
        first = claim(hot, worker_id, marks=marks)
        late.commit()
    unswept = claim(hot, worker_id, marks=marks)
    marks.sweep()
    swept = [job.id for _ in range(3) for job in claim(hot, worker_id, marks=marks)]

    assert [job.id for job in first] == early_ids
    assert unswept == []
    assert swept == late_ids


@pytest.mark.django_db(transaction=True, available_apps=["relay"])
def test_hint_about_a_late_commit_is_claimed_without_a_sweep(
    hot: EngineConnection, duty: EngineConnection
) -> None:
    worker_id = add_worker(duty)
    marks = Marks()
    with other_session(autocommit=False) as late:
        late_ids = add_jobs(late, 3)
        add_jobs(duty)
        claim(hot, worker_id, marks=marks)
        late.commit()

    seq = duty.execute("SELECT min(ready_seq) FROM relay_job").fetchone()
    assert seq is not None
    marks.hint("default", 0, seq[0])

    assert [job.id for job in claim(hot, worker_id, marks=marks)] == late_ids


@pytest.mark.django_db(transaction=True, available_apps=["relay"])
def test_priority_new_between_two_sweeps_comes_before_what_waits(
    hot: EngineConnection, duty: EngineConnection
) -> None:
    worker_id = add_worker(duty)
    marks = Marks()
    waiting = add_jobs(duty, 20)
    claim(hot, worker_id, limit=10, marks=marks)

    urgent = add_jobs(duty, 2, priority=50)

    assert [job.id for job in claim(hot, worker_id, limit=4, marks=marks)] == [
        *urgent,
        *waiting[10:12],
    ]
