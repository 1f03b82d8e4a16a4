"""What the database campaign judges beyond the checker, and how it plans its faults."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.chaos.checker import check
from tests.chaos.histories import (
    Entry,
    Fault,
    Histories,
    Job,
    ProcessEvent,
    Transition,
    WorkerRow,
)
from tests.chaos.outages import Outages
from tests.chaos.recovery import (
    check_charges,
    check_doubts,
    doubts_of,
    recoveries_of,
)
from tests.chaos.segments import LOAD, SEGMENTS, Segment, length_of, strikes_of


def fault(kind: str, began: float, ended: float) -> Fault:
    return Fault(
        kind=kind,
        victim="the database",
        pids=(),
        began=began,
        ended=ended,
        mono_began=began,
        mono_ended=ended,
    )


def claimed(at: float, *, worker: str) -> Transition:
    return Transition(
        seq=1, job="job", old="queued", new="running", attempt=1, worker=worker, at=at
    )


def histories(*claims: Transition) -> list[Histories]:
    """Two faults, one after the other; the worker's child changed in between."""
    whole = Histories(
        faults=[fault("crash", 10, 11), fault("restart", 20, 21)],
        transitions=list(claims),
        workers=[
            WorkerRow(id="first", name="", pid=1, state="lost", began=0),
            WorkerRow(id="second", name="", pid=2, state="running", began=11),
        ],
        processes=[
            ProcessEvent(event="seen", name="worker0", pid=pid, mono=0)
            for pid in (1, 2)
        ],
    )
    return [whole]


def test_a_worker_recovers_with_the_first_claim_of_any_child(tmp_path: Path) -> None:
    found = recoveries_of(
        histories(
            claimed(9, worker="first"),
            claimed(10.5, worker="first"),
            claimed(13, worker="second"),
            claimed(22, worker="second"),
        ),
        tmp_path,
    )

    assert [(each.kind, each.who, each.seconds) for each in found] == [
        ("crash", "worker0", 2),
        ("restart", "worker0", 1),
    ]
    assert all(each.is_over for each in found)


def test_who_does_not_recover_counts_up_to_the_next_fault(tmp_path: Path) -> None:
    [first, second] = recoveries_of(
        histories(claimed(9, worker="first"), claimed(22, worker="second")), tmp_path
    )

    assert (first.seconds, first.is_over) == (9, False)
    assert (second.seconds, second.is_over) == (1, True)


def test_a_producer_recovers_with_its_first_known_commit(tmp_path: Path) -> None:
    (tmp_path / "ledger-0.txt").write_text(
        "try 0-1 10.2\ndoubt 0-1 10.4\nunknown 0-1 10.4\ntry 0-1 11.5\nok 0-1 11.6\n"
        "try 0-2 21.4\nok 0-2 21.5\n"
    )

    found = recoveries_of(histories(), tmp_path)

    assert [(each.who, round(each.seconds, 3)) for each in found] == [
        ("ledger-0", 0.6),
        ("ledger-0", 0.5),
    ]
    assert doubts_of(tmp_path) == 1


def test_each_fault_leaves_one_call_of_each_producer_in_doubt_at_most() -> None:
    assert check_doubts(LOAD.producers * 3, 3) == []
    assert [each.rule for each in check_doubts(LOAD.producers * 3 + 1, 3)] == [
        "UNKNOWN"
    ]


def segment(name: str) -> Segment:
    return next(each for each in SEGMENTS if each.name == name)


@pytest.mark.parametrize(
    ("task", "error", "name", "count"),
    [
        ("chaos:stumble", "PlannedFailure", "spells", 0),
        ("chaos:transact", "OperationalError", "errors", 0),
        ("chaos:transact", "OperationalError", "spells", 1),
        ("chaos:nothing", "OperationalError", "errors", 1),
    ],
)
def test_only_its_own_errors_are_charged_to_a_job(
    task: str, error: str, name: str, count: int
) -> None:
    found = check_charges(
        Histories(
            jobs=[Job(id="job", task=task, state="completed")],
            transitions=[
                Transition(
                    seq=1,
                    job="job",
                    old="running",
                    new="retrying",
                    charge="failure",
                    error=error,
                )
            ],
        ),
        segment(name),
    )

    assert len(found) == count


def test_an_unknown_enqueue_that_was_repeated_into_two_rows_is_found() -> None:
    findings = check(
        Histories(
            ledger=[Entry(key="0-1", word="ok")],
            jobs=[
                Job(id=each, task="chaos:nothing", state="cancelled", key="0-1")
                for each in "ab"
            ],
        )
    )

    assert "J2" in findings.rules()


def test_segments_share_the_whole_and_all_their_faults_are_known() -> None:
    rng = random.Random(1)

    strikes = [
        strike for each in SEGMENTS for strike in strikes_of(each, scale=1.0, rng=rng)
    ]

    assert sum(each.share for each in SEGMENTS) == pytest.approx(1)
    assert length_of(strikes) == pytest.approx(LOAD.seconds, rel=0.1)
    kinds = [strike.kind for strike in strikes]
    assert all(hasattr(Outages, f"_{kind}") for kind in kinds)
    restarts = segment("restarts-1"), segment("restarts-2")
    counts = [each.strikes.values() for each in restarts]
    assert sum(map(sum, counts)) == 30
