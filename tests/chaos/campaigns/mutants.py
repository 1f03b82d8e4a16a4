"""Which check sees which fault: the kill matrix."""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.chaos import campaign, mutants, proc
from tests.chaos.cluster import Cluster, private_cluster
from tests.chaos.mutants import Mutant
from tests.chaos.profiles import PROFILES
from tests.chaos.report import Report

ABOUT: Final = "break relay by one line at a time and see that the named checks fail"

# A test of a broken relay may wait for what never comes: this long, and in all.
WAIT_SECONDS: Final = 20
TEST_SECONDS: Final = 60
TESTS_SECONDS: Final = 900
PASSES: Final = ""
# Of what a failed test says.
SHOWN: Final = 100
# What tells a process of a copy's tests from all others.
_MARK: Final = "RELAY_MUTANT"
# What would change which tests run, and how.
_NOT_OURS: Final = (
    "DJANGO_SETTINGS_MODULE",
    "PYTEST_ADDOPTS",
    "RELAY_TEST_DATABASE",
    "RELAY_TEST_ROOT",
    "RELAY_TEST_SCALE",
)


@dataclass(frozen=True, slots=True)
class Place:
    """A copy of relay and where its checks work."""

    name: str
    code: Path
    folder: Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help="a mutant, as M3; all unless given"
    )


def run(options: argparse.Namespace, report: Report) -> bool:
    """Run the checks on relay as it is, then on each mutant those that it names."""
    chosen = [mutants.load(name) for name in options.names or mutants.names()]
    with private_cluster(report.folder / "postgres") as cluster:
        bench = _Bench(report, cluster)
        plain = bench.judge(None, chosen)
        broken = {mutant.name: bench.judge(mutant, [mutant]) for mutant in chosen}
    report.table(
        "Kill matrix",
        ("mutant", "the fault", "check", "relay as it is", "the mutant"),
        [
            (mutant.name, mutant.about, check, _shown(plain[check]), _shown(found))
            for mutant in chosen
            for check, found in broken[mutant.name].items()
        ],
    )
    for mutant in chosen:
        if mutant.instead:
            report.say(f"{mutant.name} stands for {mutant.instead}.")
    faults = [
        *(
            f"{check} fails on relay as it is: {why}"
            for check, why in plain.items()
            if why
        ),
        *(
            f"{name} survives {check}"
            for name, found in broken.items()
            for check, why in found.items()
            if why == PASSES
        ),
    ]
    report.say(f"{len(chosen)} mutants, {len(plain)} checks.")
    report.violations(faults)
    return not faults


def _shown(found: str) -> str:
    return found or "passes"


class _Bench:
    """Runs checks on copies; what it has judged outlives an interruption."""

    def __init__(self, report: Report, cluster: Cluster) -> None:
        self._report = report
        self._cluster = cluster
        cluster.create("mutants")

    def judge(self, mutant: Mutant | None, of: Sequence[Mutant]) -> dict[str, str]:
        """Return how each check that these mutants name ends on this copy."""
        name = "sound" if mutant is None else mutant.name
        kept: dict[str, str] | None = self._report.kept(name)
        if kept is not None:
            return kept
        began = time.monotonic()
        folder = self._report.folder / name
        place = Place(name, folder / "code", folder)
        mutants.make_copy(mutant, place.code, with_tests=True)
        found = {
            profile: self._run_profile(place, profile, mutant)
            for profile in dict.fromkeys(each.profile for each in of)
            if profile is not None
        }
        tests = dict.fromkeys(test for each in of for test in each.tests)
        found |= self._run_tests(place, list(tests))
        passed = sum(why == PASSES for why in found.values())
        self._report.say(
            f"{name}: {passed} of {len(found)} checks pass, "
            f"in {time.monotonic() - began:.0f} s"
        )
        self._report.keep(name, found)
        shutil.rmtree(folder)
        return found

    def _run_profile(self, place: Place, name: str, mutant: Mutant | None) -> str:
        outcome = campaign.run(
            PROFILES[name],
            (self._report.seed,),
            cluster=self._cluster,
            code=place.code,
            folder=place.folder / f"{name}-{place.name}",
        )
        found = {each.rule for each in (*outcome.caught, *outcome.findings.violations)}
        if mutant is not None:
            found &= mutant.rules
        return f"breaks {', '.join(sorted(found))}" if found else PASSES

    def _run_tests(self, place: Place, tests: list[str]) -> dict[str, str]:
        if not tests:
            return {}
        answers = place.folder / "tests.xml"
        # -m pytest looks for relay where it is started.
        command = [sys.executable, "-m", "pytest", "-q", *tests]
        command += ["-p", "no:randomly", "-p", "no:cacheprovider"]
        command += [f"--timeout={TEST_SECONDS}", f"--junitxml={answers}"]
        _require_copy(place)
        environment = {
            **_environment(place),
            "DATABASE_URL": self._cluster.dsn("mutants"),
            "RELAY_TEST_WAIT_SECONDS": str(WAIT_SECONDS),
        }
        with (place.folder / "tests.log").open("wb") as log:
            process = subprocess.Popen(
                command,
                cwd=place.code,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
            try:
                code = process.wait(TESTS_SECONDS)
            finally:
                process.kill()
                _end_leftovers(place)
        if code not in (0, 1):
            text = (place.folder / "tests.log").read_text(errors="replace")
            raise mutants.MutantError(
                f"{place.name}: pytest ended with {code}:\n{text}"
            )
        return _read(answers, tests)


def _environment(place: Place) -> dict[str, str]:
    kept = {key: value for key, value in os.environ.items() if key not in _NOT_OURS}
    return {**kept, "PYTHONPATH": str(place.code), _MARK: str(place.code)}


def _require_copy(place: Place) -> None:
    """Make sure that the copy is what tests would import.

    Raises:
        MutantError: it is not.
    """
    found = subprocess.run(
        [sys.executable, "-c", "import relay; print(relay.__file__)"],
        cwd=place.code,
        env=_environment(place),
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    if not Path(found).is_relative_to(place.code):
        raise mutants.MutantError(f"{place.name}: relay is imported from {found}")


def _read(answers: Path, tests: list[str]) -> dict[str, str]:
    """Return of each test how it ended, which fails if one of its cases does."""
    cases: dict[str, list[str]] = {}
    for case in ElementTree.parse(answers).iter("testcase"):
        file = case.attrib["classname"].replace(".", "/") + ".py"
        node = f"{file}::{case.attrib['name']}"
        if case.find("skipped") is not None:
            continue
        ends = [case.find(tag) for tag in ("failure", "error")]
        said = [end.attrib["message"] or "no reason" for end in ends if end is not None]
        for key in {node, node.partition("[")[0]}:
            cases.setdefault(key, []).append(said[0] if said else PASSES)
    found = {}
    for test in tests:
        if test not in cases:
            raise mutants.MutantError(f"{test} did not run")
        failed = [why for why in cases[test] if why != PASSES]
        found[test] = PASSES
        if failed:
            why = " ".join(failed[0].split())[:SHOWN]
            found[test] = f"{len(failed)} of {len(cases[test])} fail: {why}"
    return found


def _end_leftovers(place: Place) -> None:
    """Kill what a broken worker has left behind, by the mark that it inherited."""
    mark = f"{_MARK}={place.code}".encode()
    for pid in proc.scan():
        with suppress(OSError):
            if mark in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
                os.kill(pid, signal.SIGKILL)
