"""A million jobs through kills and a crash of the server, at a steady rate."""

from __future__ import annotations

import argparse
import shutil
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from tests.chaos.checker import Findings, check_parts, explain, percentile
from tests.chaos.histories import Histories, read_parts
from tests.chaos.report import Report
from tests.chaos.servers import Server, installations
from tests.chaos.volume_run import KILLS_OF_A_TENTH, run_volume

__all__ = ["ABOUT", "Pace", "add_arguments", "run"]

ABOUT: Final = "1,000,000 jobs through 50 kills and a crash of PostgreSQL"

# Of the first tenth's rate, up and down.
STEADY: Final = 0.1
TENTHS: Final = 10


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--jobs", type=int, default=1_000_000)
    parser.add_argument("--kills", type=_kills, default=50)


def _kills(text: str) -> int:
    each = len(KILLS_OF_A_TENTH)
    if text.isascii() and text.isdigit() and int(text) and int(text) % each == 0:
        return int(text)
    raise argparse.ArgumentTypeError(
        f"{text!r} kills cannot strike every stretch alike: give a multiple of {each}"
    )


def run(options: argparse.Namespace, report: Report) -> bool:
    binaries = installations()[0]
    report.say(f"PostgreSQL {binaries.version} from {binaries.origin}.")
    folder = report.folder / "run"
    if report.kept("run") is None:
        server = Server(report.folder / "postgres", binaries)
        began = time.monotonic()
        with server.running():
            run_volume(
                server,
                jobs=options.jobs,
                kills=options.kills,
                seed=report.seed,
                folder=folder,
            )
        shutil.rmtree(report.folder / "postgres")
        # Judging takes minutes: after an interruption it begins again, the run not.
        report.keep("run", {"seconds": time.monotonic() - began})
    return _judge(folder, report)


def _judge(folder: Path, report: Report) -> bool:
    pace = Pace()
    began = time.monotonic()
    findings = check_parts(pace.watch(read_parts(folder)))
    report.say(
        f"The run took {report.kept('run')['seconds']:.0f} s, the judging "
        f"{time.monotonic() - began:.0f} s."
    )
    _tell_faults(folder, report)
    _tell_jobs(findings, report)
    rates = pace.rates()
    report.table(
        "Completed a second, in tenths of the jobs that ended while producers kept "
        "jobs waiting; no time left out",
        [str(place + 1) for place in range(TENTHS)],
        [[f"{rate:,.0f}" for rate in rates]],
    )
    violations = list(explain(read_parts(folder), findings))
    if findings.duplicates > findings.in_flight:
        violations.append("J10: more duplicates than jobs in flight at struck owners")
    if not rates or abs(rates[-1] / rates[0] - 1) > STEADY:
        violations.append(
            f"PACE: the last tenth is not within {STEADY:.0%} of the first"
        )
    report.violations(violations)
    return not violations


def _tell_faults(folder: Path, report: Report) -> None:
    faults = next(read_parts(folder)).faults
    report.table(
        "Faults",
        ["fault", "count", "seconds each, at most"],
        [
            [
                kind,
                sum(fault.kind == kind for fault in faults),
                f"{max(f.ended - f.began for f in faults if f.kind == kind):.1f}",
            ]
            for kind in sorted({fault.kind for fault in faults})
        ],
    )


def _tell_jobs(findings: Findings, report: Report) -> None:
    report.table(
        "What became of the jobs",
        ["", "found", "allowed"],
        [
            ["known to be committed", findings.ledger["ok"], ""],
            ["commits without an answer", findings.ledger["unknown"], ""],
            ["rows", findings.jobs, ""],
            ["lost", findings.lost, 0],
            ["stale writes applied", findings.rules()["J5"], 0],
            ["resurrected", findings.rules()["J6"], 0],
            ["executions", findings.executions, ""],
            [
                "duplicates",
                findings.duplicates,
                f"{findings.in_flight} in flight at the struck owners",
            ],
            ["ended after their job was taken, refused", findings.late, ""],
        ],
    )
    report.table(
        "Ready again after a strike, in seconds",
        ["fault", "jobs", "p50", "p99", "longest"],
        [
            [
                kind,
                len(seconds),
                *(f"{percentile(seconds, at):.2f}" for at in (0.5, 0.99, 1.0)),
            ]
            for kind, seconds in sorted(findings.ready_again.items())
        ],
    )


class Pace:
    """When jobs ended, and until when new ones came."""

    def __init__(self) -> None:
        self._ended: list[float] = []
        self._last_came = 0.0

    def watch(self, parts: Iterable[Histories]) -> Iterator[Histories]:
        for part in parts:
            for row in part.transitions:
                if row.old is None:
                    self._last_came = max(self._last_came, row.at)
                elif row.new == "completed":
                    self._ended.append(row.at)
            yield part

    def rates(self) -> list[float]:
        """Return the rate of each tenth of the jobs, while there was always work."""
        ended = sorted(at for at in self._ended if at <= self._last_came)
        size = len(ended) // TENTHS
        if size < 2:
            return []
        return [
            (size - 1) / (tenth[-1] - tenth[0])
            for tenth in (
                ended[place * size : (place + 1) * size] for place in range(TENTHS)
            )
        ]
