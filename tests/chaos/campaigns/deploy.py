"""F15 and D3: an older and a newer relay on one schema that changes meanwhile."""

from __future__ import annotations

import argparse
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.chaos.campaign import REPOSITORY
from tests.chaos.checker import Findings, Violation, check_parts, explain, percentile
from tests.chaos.cluster import private_cluster
from tests.chaos.findings import FINAL
from tests.chaos.histories import Histories, read_parts
from tests.chaos.report import Report
from tests.chaos.rollout import LOCK_SECONDS, Rollout
from tests.chaos.versions import Version, head, previous, widened

ABOUT: Final = (
    "two versions of relay on one schema, migrated under load, and back (F15)"
)

NEWER_TASK: Final = "chaos:newer"
# A phase this long must have seen jobs end; a migration may be shorter.
JUDGED_SECONDS: Final = 2.0
SHOWN_LOCKS: Final = 8


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--from",
        dest="revision",
        metavar="REV",
        help="the older version (default: the newest commit with fewer migrations)",
    )
    parser.add_argument("--seconds", type=float, default=200.0, help="of load")
    parser.add_argument("--jobs", type=int, default=9_000)
    parser.add_argument(
        "--kept", type=int, default=300_000, help="jobs that ended long before"
    )


def run(options: argparse.Namespace, report: Report) -> bool:
    folder = report.folder / "deploy"
    folder.mkdir()
    # Not in the report's folder: no tool shall take other versions for this one.
    with (
        tempfile.TemporaryDirectory(prefix="relay-chaos-") as code,
        private_cluster(report.folder / "postgres") as cluster,
    ):
        versions = _versions(options.revision, Path(code), report)
        report.say(cluster.describe())
        rollout = Rollout(
            report,
            cluster,
            folder,
            versions,
            jobs=options.jobs,
            kept=options.kept,
            seconds=options.seconds,
        )
        rollout.go()
    parts = list(read_parts(folder))
    findings = check_parts(parts)
    findings.violations += _judge(rollout, parts)
    _tell(report, rollout, parts, findings)
    report.violations(list(explain(parts, findings)))
    return not findings.violations


def _versions(
    revision: str | None, folder: Path, report: Report
) -> tuple[Version, Version, Version]:
    new = head()
    old = previous(revision, folder / "old")
    if old is None:
        report.say(
            "There is no history of git with an earlier schema here: the code that is "
            "checked out stands in for the older version too, and only the wider "
            "schema is migrated to under load."
        )
        old = Version(name="old", code=REPOSITORY, about=new.about)
    wider = widened(new, folder / "wider")
    report.table(
        "Versions",
        ["version", "what it is", "migrations"],
        [[each.name, each.about, len(each.migrations)] for each in (old, new, wider)],
    )
    return old, new, wider


def _judge(rollout: Rollout, parts: list[Histories]) -> Iterator[Violation]:
    """D3, and what F15 asks of tasks that are unknown to the older code."""
    for obstacle in rollout.obstacles:
        if obstacle.seconds > LOCK_SECONDS:
            yield Violation(rule="D3", text=f"a lock for too long: {obstacle}")
    if not rollout.is_index_valid:
        yield Violation(rule="D3", text="the wider schema lacks its index")
    ended = _ended(rollout, parts)
    for number, phase in enumerate(rollout.phases):
        for version in phase.versions:
            is_long = phase.ended - phase.began >= JUDGED_SECONDS
            if is_long and not ended[number, version]:
                yield Violation(
                    rule="D3",
                    text=f"{phase.about}: {version} workers ended no job in "
                    f"{phase.ended - phase.began:.1f} s",
                )
    if not _handed_back(parts):
        yield Violation(rule="D3", text="no old worker met a task unknown to it")
    newer = _newer(parts)
    versions = _versions_of(parts)
    for part in parts:
        for effect in part.effects:
            if effect.job in newer and versions.get(effect.worker) != "new":
                yield Violation(
                    rule="D3", job=effect.job, text="old code ran a task of new code"
                )


def _versions_of(parts: list[Histories]) -> dict[str, str]:
    """Return the version of each worker, by its id: its name begins with it."""
    return {worker.id: worker.name[:3] for worker in parts[0].workers}


def _newer(parts: list[Histories]) -> set[str]:
    return {job.id for part in parts for job in part.jobs if job.task == NEWER_TASK}


def _ended(rollout: Rollout, parts: list[Histories]) -> Counter[tuple[int, str]]:
    """Count the jobs that workers of each version ended in each phase."""
    versions = _versions_of(parts)
    ended: Counter[tuple[int, str]] = Counter()
    for row in (row for part in parts for row in part.transitions):
        if row.new in FINAL and row.old_worker is not None:
            for number, phase in enumerate(rollout.phases):
                if phase.began <= row.at <= phase.ended:
                    ended[number, versions.get(row.old_worker, "?")] += 1
    return ended


def _handed_back(parts: list[Histories]) -> Counter[str]:
    """Count how often old workers gave back each job of a task unknown to them."""
    newer = _newer(parts)
    versions = _versions_of(parts)
    return Counter(
        row.job
        for part in parts
        for row in part.transitions
        if row.job in newer
        and row.old == "running"
        and row.new == "retrying"
        and versions.get(row.old_worker or "") == "old"
    )


def _tell(
    report: Report, rollout: Rollout, parts: list[Histories], findings: Findings
) -> None:
    ended = _ended(rollout, parts)
    report.table(
        "Jobs ended, by the version of their worker",
        ["phase", "seconds", "old", "new"],
        [
            [
                phase.about,
                f"{phase.ended - phase.began:.1f}",
                ended[number, "old"],
                ended[number, "new"],
            ]
            for number, phase in enumerate(rollout.phases)
        ],
    )
    report.table(
        "Migrations, each with lock_timeout at one second",
        ["to", "seconds"],
        [[about, f"{seconds:.1f}"] for about, seconds in rollout.migrations],
    )
    report.table(
        "The longest locks on tables of relay: waited for, or keeping writers out",
        ["lock", "of", "table", "mode", "seconds", "statement"],
        [
            [
                each.kind,
                each.session,
                each.table,
                each.mode,
                f"{each.seconds:.2f}",
                each.query,
            ]
            for each in rollout.obstacles[:SHOWN_LOCKS]
        ],
    )
    back = _handed_back(parts)
    report.table(
        "Counts",
        ["what", "how many"],
        [
            ["jobs committed", findings.ledger["ok"]],
            ["of them known to the new code only", len(_newer(parts))],
            ["of those, met by old workers and handed back", len(back)],
            ["how often each, at most", max(back.values(), default=0)],
            ["executions", findings.executions],
            ["repeats", findings.extra],
            ["occurrences of the one-second schedule", findings.occurrences],
            [
                "faults",
                ", ".join(f"{k} {n}" for k, n in sorted(rollout.faults.items())),
            ],
            ["longest time between two looks at the locks", rollout.gap],
            *[
                [f"ready again after {kind}, p99", f"{percentile(seconds, 0.99):.2f} s"]
                for kind, seconds in sorted(findings.ready_again.items())
            ],
        ],
    )
