"""A thousand kills of every kind of process, in ten parts of one size."""

from __future__ import annotations

import argparse
import shutil
from collections import Counter
from typing import Any, Final

from tests.chaos import campaign
from tests.chaos.campaign import REPOSITORY
from tests.chaos.checker import explain
from tests.chaos.cluster import Cluster, private_cluster
from tests.chaos.findings import percentile
from tests.chaos.histories import read_parts
from tests.chaos.profiles import KILL
from tests.chaos.report import Report

__all__ = ["ABOUT", "add_arguments", "run"]

ABOUT: Final = "1,000 kills, 200 stops and 100 cut sessions under 200,000 jobs"

PARTS: Final = 10
KILLS: Final = ("child", "parent", "keeper", "scheduler")
# Of the jobs, at most. Source: docs/reliability.md, "The thousand kills".
DUPLICATES_SHARE: Final = 0.005


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--parts", type=int, default=PARTS, help=f"of the {PARTS} parts, only so many"
    )


def run(options: argparse.Namespace, report: Report) -> bool:
    found = []
    with private_cluster(report.folder / "postgres") as cluster:
        report.say(cluster.describe())
        for number in range(options.parts):
            name = f"part-{number}"
            part = report.kept(name)
            if part is None:
                part = _run_part(name, report.seed + number, cluster, report)
                report.keep(name, part)
            report.say(
                f"{name}, seed {part['seed']}: {part['jobs']} jobs and "
                f"{sum(part['faults'].values())} faults in {part['seconds']:.0f} s; "
                f"lines on violations: {len(part['violations'])}"
            )
            found.append(part)
    shutil.rmtree(report.folder / "postgres")
    return _judge(found, report)


def _run_part(name: str, seed: int, cluster: Cluster, report: Report) -> dict[str, Any]:
    outcome = campaign.run(
        KILL, (seed,), cluster=cluster, code=REPOSITORY, folder=report.folder / name
    )
    findings = outcome.findings
    rules = findings.rules()
    return {
        "seed": seed,
        "seconds": outcome.seconds,
        "jobs": findings.ledger["ok"],
        "faults": outcome.faults,
        "missed": outcome.missed,
        "lost": findings.lost,
        "stale": rules["J5"],
        "resurrected": rules["J6"],
        "executions": findings.executions,
        "duplicates": findings.duplicates,
        "in_flight": findings.in_flight,
        "late": findings.late,
        "ready_again": findings.ready_again,
        "overdue": [str(violation) for violation in findings.overdue],
        "violations": list(explain(read_parts(outcome.folder), findings))
        if findings.violations
        else [],
    }


def _judge(parts: list[dict[str, Any]], report: Report) -> bool:
    total = {
        name: sum(part[name] for part in parts)
        for name in (
            *("jobs", "lost", "stale", "resurrected", "executions", "late"),
            *("duplicates", "in_flight", "missed", "seconds"),
        )
    }
    faults: Counter[str] = Counter()
    for part in parts:
        faults.update(part["faults"])
    report.table(
        "Faults",
        ["kind", "count"],
        [
            *sorted(faults.items()),
            ["kills together", sum(faults[kind] for kind in KILLS)],
            ["found no victim", total["missed"]],
        ],
    )
    report.table(
        "What became of the jobs",
        ["", "found", "allowed"],
        [
            ["committed", total["jobs"], ""],
            ["lost", total["lost"], 0],
            ["stale writes applied", total["stale"], 0],
            ["resurrected", total["resurrected"], 0],
            ["executions", total["executions"], ""],
            [
                "duplicates",
                total["duplicates"],
                f"{total['in_flight']} in flight at the struck owners; "
                f"{DUPLICATES_SHARE * total['jobs']:.0f}",
            ],
            ["ended after their job was taken, refused", total["late"], ""],
        ],
    )
    _tell_ready_again(parts, report)
    violations = [line for part in parts for line in part["violations"]]
    for part in parts:
        violations += part["overdue"]
    if total["duplicates"] > total["in_flight"]:
        violations.append("J10: more duplicates than jobs in flight at struck owners")
    if total["duplicates"] > DUPLICATES_SHARE * total["jobs"]:
        violations.append(f"J10: duplicates exceed {DUPLICATES_SHARE:.1%} of the jobs")
    report.violations(violations)
    return not violations


def _tell_ready_again(parts: list[dict[str, Any]], report: Report) -> None:
    seconds: dict[str, list[float]] = {}
    for part in parts:
        for kind, values in part["ready_again"].items():
            seconds.setdefault(kind, []).extend(values)
    report.table(
        "Ready again after a strike, in seconds",
        ["fault", "jobs", "p50", "p99", "longest"],
        [
            [
                kind,
                len(values),
                *(f"{percentile(values, share):.2f}" for share in (0.5, 0.99, 1.0)),
            ]
            for kind, values in sorted(seconds.items())
        ],
    )
