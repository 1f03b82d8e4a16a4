"""Restarts, read-only spells, full disks, bad networks and a pooler, on two majors."""

from __future__ import annotations

import argparse
import json
import shutil
from collections import Counter, defaultdict
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from relay.standalone.postgres.binaries import Binaries
from tests.chaos.checker import Findings, check_parts, explain, percentile
from tests.chaos.histories import Histories, read_parts
from tests.chaos.recovery import (
    check_charges,
    check_doubts,
    doubts_of,
    recoveries_of,
)
from tests.chaos.report import Report
from tests.chaos.segment_run import Unable, run_segment
from tests.chaos.segments import LOAD, SEGMENTS, Segment
from tests.chaos.servers import installations

ABOUT: Final = "restarts, crashes, read-only spells, full disks, bad networks, a pooler"

RECOVERY_SECONDS: Final = 5.0

# What is put away of a finished segment.
Summary = dict[str, Any]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    names = [segment.name for segment in SEGMENTS]
    parser.add_argument(
        "--jobs", type=int, default=LOAD.jobs, help="of each major version"
    )
    parser.add_argument(
        "--seconds", type=float, default=LOAD.seconds, help="of each major version"
    )
    parser.add_argument(
        "--segments", default=",".join(names), help="some of them, with commas"
    )
    parser.add_argument("--major", type=int, help="this one only, such as 18")
    parser.add_argument("--keep", action="store_true", help="keep the histories")


def run(options: argparse.Namespace, report: Report) -> bool:
    """Run every segment on every major version of PostgreSQL at hand."""
    wanted = options.segments.split(",")
    unknown = set(wanted) - {segment.name for segment in SEGMENTS}
    if unknown:
        raise SystemExit(f"there is no segment {', '.join(sorted(unknown))}")
    found = [
        binaries
        for binaries in installations()
        if options.major in (None, binaries.major)
    ]
    if not found:
        raise SystemExit(f"PostgreSQL {options.major} is not installed")
    summaries: list[Summary] = []
    for binaries in found:
        report.say(f"PostgreSQL {binaries.version} of {binaries.folder}.")
        for segment in SEGMENTS:
            if segment.name in wanted:
                summaries.append(_segment(segment, binaries, options, report))
    if options.major is None and len(found) < 2:
        report.say("Only one major version is installed here: the other was not tried.")
    return _tell(summaries, report)


def _segment(
    segment: Segment, binaries: Binaries, options: argparse.Namespace, report: Report
) -> Summary:
    name = f"{binaries.major}-{segment.name}"
    summary: Summary | None = report.kept(name)
    if summary is None:
        folder = report.folder / name
        try:
            run_segment(
                segment,
                binaries,
                jobs=options.jobs,
                seconds=options.seconds,
                seed=report.seed,
                folder=folder,
            )
        except Unable as error:
            summary = {"name": name, "unable": str(error), "violations": []}
        else:
            summary = _summary(name, segment, folder)
        if not (summary["violations"] or options.keep):
            shutil.rmtree(folder)
        report.keep(name, summary)
    report.say(_line(summary))
    return summary


def _line(summary: Summary) -> str:
    if "unable" in summary:
        return f"- {summary['name']}: LEFT OUT, {summary['unable']}"
    found = len(summary["violations"])
    return (
        f"- {summary['name']}: {summary['jobs']} jobs, "
        f"{sum(summary['faults'].values())} faults, "
        f"{found or 'no'} violation{'s' if found != 1 else ''}"
    )


def _summary(name: str, segment: Segment, folder: Path) -> Summary:
    parts = list(read_parts(folder))
    findings = check_parts(parts)
    faults = Counter(fault.kind for fault in parts[0].faults)
    run = json.loads((folder / "run.jsonl").read_text())
    cut = run["commits_cut"]
    # A full log may crash the server again as it recovers.
    panics = max(0, run["panics"] - faults["full_wal"])
    doubts = doubts_of(folder)
    recoveries = recoveries_of(parts, folder)
    findings.violations += check_doubts(doubts, faults.total() + cut + panics)
    for part in parts:
        findings.violations += check_charges(part, segment)
    return {
        "name": name,
        "jobs": findings.jobs,
        "ledger": dict(findings.ledger),
        "doubts": doubts,
        "commits_cut": cut,
        "faults": dict(faults),
        "executions": findings.executions,
        "duplicates": findings.duplicates,
        "in_flight": findings.in_flight,
        "late": findings.late,
        "overlaps": findings.overlaps,
        "unprovoked": dict(findings.unprovoked),
        "occurrences": findings.occurrences,
        "written": findings.written,
        "recoveries": [asdict(recovery) for recovery in recoveries],
        "violations": _texts(parts, findings),
    }


def _texts(parts: list[Histories], findings: Findings) -> list[str]:
    if not findings.violations:
        return []
    return ["\n".join(explain(parts, findings))]


# --- the report -----------------------------------------------------------------------


def _tell(summaries: list[Summary], report: Report) -> bool:
    ran = [summary for summary in summaries if "unable" not in summary]
    _tell_jobs(ran, report)
    _tell_faults(summaries, report)
    violations = [
        f"{summary['name']}: {text}"
        for summary in summaries
        for text in summary["violations"]
    ]
    violations += _tell_recovery(ran, report)
    report.violations(violations)
    return not violations


def _tell_jobs(summaries: list[Summary], report: Report) -> None:
    headers = (
        "segment",
        "jobs",
        "known committed",
        "rolled back",
        "calls without an answer",
        "executions",
        "repeats for no failure of the job's own",
        "attempts in flight at a fault",
        "late, refused",
        "transactional, once each",
        "seconds fired",
    )
    rows = [
        (
            each["name"],
            each["jobs"],
            each["ledger"].get("ok", 0),
            each["ledger"].get("fail", 0),
            each["doubts"],
            each["executions"],
            each["duplicates"],
            each["in_flight"],
            each["late"],
            each["written"],
            each["occurrences"],
        )
        for each in summaries
    ]
    total = ("all", *(sum(column) for column in list(zip(*rows, strict=True))[1:]))
    report.table("Jobs", headers, [*rows, total] if rows else [])


def _tell_faults(summaries: list[Summary], report: Report) -> None:
    faults: dict[str, Counter[str]] = defaultdict(Counter)
    majors: dict[str, None] = {}
    for each in summaries:
        major = each["name"].partition("-")[0]
        majors.setdefault(major)
        if "unable" in each:
            faults[f"{each['name']} left out: {each['unable']}"][major] += 1
            continue
        for kind, count in each["faults"].items():
            faults[kind][major] += count
        if each["commits_cut"]:
            faults["answers to commits lost"][major] += each["commits_cut"]
    report.table(
        "Faults",
        ("fault", *(f"PostgreSQL {major}" for major in majors)),
        [
            (kind, *(counts[major] for major in majors))
            for kind, counts in faults.items()
        ],
    )


def _tell_recovery(summaries: list[Summary], report: Report) -> list[str]:
    """Tell how soon everybody worked again; return what took too long."""
    seconds: dict[tuple[str, str], list[float]] = defaultdict(list)
    for each in summaries:
        major = each["name"].partition("-")[0]
        for recovery in each["recoveries"]:
            seconds[major, recovery["kind"]].append(recovery["seconds"])
    report.table(
        "From the fault's end until each worker claimed and each producer enqueued",
        ("PostgreSQL", "fault", "samples", "p50", "p99", "longest"),
        [
            (
                major,
                kind,
                len(found),
                *(f"{percentile(found, at):.2f} s" for at in (0.5, 0.99, 1.0)),
            )
            for (major, kind), found in seconds.items()
        ],
    )
    return [
        f"PostgreSQL {major}: 1 in 100 recovers from {kind} in "
        f"{percentile(found, 0.99):.2f} s only"
        for (major, kind), found in seconds.items()
        if percentile(found, 0.99) >= RECOVERY_SECONDS
    ]
