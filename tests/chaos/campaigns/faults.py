"""The kinds of faults that no other campaign has: F16 to F20, a part each."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Final

from relay.standalone.postgres import EmbeddedPostgres
from tests.chaos.cluster import Cluster
from tests.chaos.parts import herd, poison, restore, silence, upkeep
from tests.chaos.parts.site import open_site
from tests.chaos.report import Report

ABOUT: Final = "poison, herds, lost wake-ups, upkeep and restores (F16 to F20)"

SERVER_OPTIONS: Final[dict[str, str | int]] = {
    "max_connections": 400,
    "shared_preload_libraries": "pg_stat_statements",
    # The log tells of whoever has waited this long for a lock.
    "log_lock_waits": "on",
    "deadlock_timeout": "100ms",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--part",
        choices=list(_STRIKES),
        action="append",
        help="this part only; may be repeated",
    )
    parser.add_argument("--seconds", type=float, default=60.0, help="of each load")
    parser.add_argument("--jobs", type=int, default=3_000, help="of each load")
    parser.add_argument("--herd", type=int, default=24, help="workers of the herd")


def run(options: argparse.Namespace, report: Report) -> bool:
    found: list[str] = []
    with EmbeddedPostgres(report.folder / "postgres", options=SERVER_OPTIONS) as server:
        report.say(server.describe())
        for part in options.part or _STRIKES:
            broken = report.kept(part)
            if broken is None:
                folder = report.folder / part
                folder.mkdir()
                broken = _STRIKES[part](options, report, server, folder)
                report.keep(part, broken)
            found += [f"{part}: {each}" for each in broken]
    report.violations(found)
    return not found


def _poison(
    options: argparse.Namespace, report: Report, server: EmbeddedPostgres, folder: Path
) -> list[str]:
    kinds = poison.poisons(result_bytes=100_000_000, generations=8)
    with open_site(server, "poison", folder) as site:
        found = poison.strike(
            site.database, site.workers, kinds, neighbours=options.jobs
        )
    report.say(
        f"F16: {', '.join(kind.about for kind in kinds)} and deep arguments, among "
        f"{options.jobs} other jobs: {'as it must' if not found else 'BROKEN'}"
    )
    return found


def _herd(
    options: argparse.Namespace, report: Report, server: EmbeddedPostgres, folder: Path
) -> list[str]:
    with open_site(server, "herd", folder) as site:
        return herd.run(site, report, workers=options.herd, jobs=round(options.seconds))


def _silence(
    options: argparse.Namespace, report: Report, server: EmbeddedPostgres, folder: Path
) -> list[str]:
    with open_site(server, "silence", folder) as site:
        jobs = round(5 * options.seconds)
        return silence.run(site, report, seed=report.seed, jobs=jobs)


def _upkeep(
    options: argparse.Namespace, report: Report, server: EmbeddedPostgres, folder: Path
) -> list[str]:
    return upkeep.run(
        Cluster(server), folder, report, seconds=options.seconds, jobs=options.jobs
    )


def _restore(
    options: argparse.Namespace, report: Report, server: EmbeddedPostgres, folder: Path
) -> list[str]:
    return restore.run(
        server, folder, report, seconds=options.seconds / 2, jobs=options.jobs // 2
    )


_STRIKES: Final[
    dict[
        str,
        Callable[[argparse.Namespace, Report, EmbeddedPostgres, Path], list[str]],
    ]
] = {
    "poison": _poison,
    "herd": _herd,
    "silence": _silence,
    "upkeep": _upkeep,
    "restore": _restore,
}
