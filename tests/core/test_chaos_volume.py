"""What the large campaigns measure, on small histories."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from tests.chaos.campaigns import volume
from tests.chaos.campaigns.bloat import claims_of
from tests.chaos.campaigns.volume import Pace
from tests.chaos.histories import Histories, Transition


def came(at: float) -> Transition:
    return Transition(seq=1, job="job", old=None, new="queued", at=at)


def ended(at: float) -> Transition:
    return Transition(seq=2, job="job", old="running", new="completed", at=at)


def pace_of(*transitions: Transition) -> Pace:
    pace = Pace()
    for _ in pace.watch([Histories(transitions=list(transitions))]):
        pass
    return pace


def test_the_rate_of_each_tenth_is_told() -> None:
    slow_then_fast = [*range(100), *(100 + at / 2 for at in range(100))]

    rates = pace_of(came(1_000), *map(ended, slow_then_fast)).rates()

    assert rates == [pytest.approx(1)] * 5 + [pytest.approx(2)] * 5


def test_what_ends_after_the_last_enqueue_is_no_steady_work() -> None:
    rates = pace_of(came(99), *map(ended, range(100)), ended(500)).rates()

    assert rates == [pytest.approx(1)] * 10


def test_too_few_jobs_have_no_rate() -> None:
    assert pace_of(came(99), *map(ended, range(15))).rates() == []


def test_the_times_of_claims_are_read_from_the_log(tmp_path: Path) -> None:
    log = tmp_path / "postgres.log"
    log.write_text(
        "2026-11-29 [7] LOG:  duration: 9.000 ms  execute _pg3_0: \n"
        "\tWITH picked AS MATERIALIZED (\n"
        "before the offset\n"
    )
    offset = log.stat().st_size
    with log.open("a") as file:
        file.write(
            "2026-11-29 [7] LOG:  duration: 0.015 ms  bind _pg3_0: \n"
            "\tWITH picked AS MATERIALIZED (\n"
            "\t    SELECT ready.id\n"
            "2026-11-29 [7] LOG:  duration: 0.345 ms  execute _pg3_0: \n"
            "\tWITH picked AS MATERIALIZED (\n"
            "2026-11-29 [7] LOG:  duration: 0.5 ms  execute _pg3_1: \n"
            "\tWITH given AS (\n"
            "2026-11-29 [7] LOG:  duration: 0.6 ms  statement: SELECT 1\n"
            "2026-11-29 [7] LOG:  duration: 12 ms  execute _pg3_0: \n"
            "\tWITH picked AS MATERIALIZED (\n"
        )

    assert list(claims_of(log, offset)) == [0.345, 12.0]


@pytest.mark.parametrize("text", ["0", "2", "-5", "x"])
def test_kills_that_would_strike_unevenly_are_refused(text: str) -> None:
    parser = argparse.ArgumentParser(exit_on_error=False)
    volume.add_arguments(parser)

    with pytest.raises(argparse.ArgumentError, match="multiple of 5"):
        parser.parse_args([f"--kills={text}"])
