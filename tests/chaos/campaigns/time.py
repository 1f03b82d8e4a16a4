"""S1 to S5 and F11: schedules through simulated years, and clocks that are wrong."""

from __future__ import annotations

import argparse
import random
from datetime import timedelta
from typing import Final

from tests.chaos.cluster import Cluster, private_cluster
from tests.chaos.report import Report
from tests.chaos.timing.almanac import EPOCHS, FIFTY
from tests.chaos.timing.simulation import SCHEDULERS, Year
from tests.chaos.timing.skewed import library
from tests.chaos.timing.wrong_clocks import WrongClocks

ABOUT: Final = "schedules through changes of the clocks, and wrong clocks (S1-S5, F11)"

_YEAR: Final = timedelta(days=365)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--years", type=float, default=2.0, help="simulated, in sum")
    parser.add_argument(
        "--minutes", type=float, default=2.0, help="real, with wrong clocks"
    )


def run(options: argparse.Namespace, report: Report) -> bool:
    violations: list[str] = []
    with private_cluster(report.folder / "postgres") as cluster:
        report.say(cluster.describe())
        if options.years:
            violations += _simulate(options.years, cluster, report)
        if options.minutes:
            violations += _skew(options.minutes, cluster, report)
    report.violations(violations)
    return not violations


def _simulate(years: float, cluster: Cluster, report: Report) -> list[str]:
    violations: list[str] = []
    rows = []
    for number, begin in enumerate(EPOCHS):
        folder = report.folder / f"year-{number}"
        folder.mkdir()
        end = begin + years / len(EPOCHS) * _YEAR
        rng = random.Random(report.seed + number)
        year = Year(cluster, folder, begin, end, rng)
        year.go()
        violations += year.violations
        rows.append(
            (
                f"{begin:%Y-%m-%d} to {end:%Y-%m-%d}",
                year.fired,
                year.passed,
                year.stops,
                year.kills,
                year.cuts,
                len(year.violations),
            )
        )
    report.table(
        f"{len(FIFTY)} schedules, {SCHEDULERS} schedulers",
        (
            "simulated",
            "occurrences fired",
            "passed over by policy",
            "stops of the clock",
            "schedulers killed",
            "sessions cut",
            "violations",
        ),
        rows,
    )
    return violations


def _skew(minutes: float, cluster: Cluster, report: Report) -> list[str]:
    if library() is None:
        return ["F11: libfaketime is missing: apt-get install faketime"]
    folder = report.folder / "wrong-clocks"
    folder.mkdir()
    skewed = WrongClocks(cluster, folder, 60 * minutes, random.Random(report.seed))
    skewed.go()
    low, high = skewed.skews
    report.table(
        "Clocks an hour ahead, an hour behind, and stepping",
        ("what", "count"),
        (
            ("minutes", f"{minutes:g}"),
            (
                "errors of the clocks as tasks saw them",
                f"{low:+.0f} s to {high:+.0f} s",
            ),
            ("jobs, due later or long", skewed.jobs),
            ("seconds fired", skewed.ticks),
            ("schedulers killed", skewed.kills),
            ("violations", len(skewed.violations)),
        ),
    )
    return skewed.violations
