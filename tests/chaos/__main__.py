"""python -m tests.chaos smoke | kill100 | transactional | fence | check FOLDER.

Besides, a command for each module of tests.chaos.campaigns.
"""

from __future__ import annotations

import argparse
import importlib
import random
import shlex
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Final

from tests.chaos import mutants
from tests.chaos.campaign import REPOSITORY, Outcome, run
from tests.chaos.checker import Findings, check_parts, explain, percentile
from tests.chaos.cluster import Cluster, private_cluster
from tests.chaos.histories import read_parts
from tests.chaos.profiles import (
    FENCE,
    FIXED_SEED,
    KILL100,
    SMOKE,
    TRANSACTIONAL,
    Profile,
)
from tests.chaos.report import OUT, open_report

# Each is a module of tests.chaos.campaigns.
CAMPAIGNS: Final[tuple[str, ...]] = (
    "bloat",
    "database",
    "deploy",
    "faults",
    "kill",
    "mutants",
    "time",
    "volume",
)

_STALE_RULES = frozenset({"J4", "J5", "J6"})


def _say(text: str) -> None:
    print(text, flush=True)  # noqa: T201 - a command's output


def _words(counts: Counter[str] | dict[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in sorted(counts.items()))


def _times(seconds: list[float]) -> str:
    shares = {"p50": 0.5, "p99": 0.99, "longest": 1.0}
    times = [f"{name} {percentile(seconds, at):.2f} s" for name, at in shares.items()]
    return f"{', '.join(times)} ({len(seconds)} jobs)"


def _report(outcome: Outcome) -> None:
    findings = outcome.findings
    faults = sum(outcome.faults.values())
    _say(
        f"{outcome.profile.name}: {findings.jobs} jobs, {faults} faults "
        f"({_words(outcome.faults)}; {outcome.missed} found no victim) in "
        f"{outcome.seconds:.0f} s"
    )
    _say(
        f"  enqueued: {_words(findings.ledger)}; occurrences: {findings.occurrences}; "
        f"executions: {findings.executions}, {findings.extra} of them repeats"
    )
    _say(
        f"  ended after their job was taken: {findings.late}; overlaps: "
        f"{findings.overlaps}; cut short by no known fault: "
        f"{_words(findings.unprovoked) or 'none'}"
    )
    if findings.written:
        _say(f"  rows of transactional jobs, one for each: {findings.written}")
    _say(f"  from claim to start: {_times(findings.in_hand)}")
    for kind, seconds in sorted(findings.ready_again.items()):
        _say(f"  ready again after {kind}: {_times(seconds)}")
    _verdict(outcome.folder, findings)


def _verdict(folder: Path, findings: Findings) -> None:
    if findings.violations:
        _say(f"  VIOLATIONS: {_words(findings.rules())}")
        for line in explain(read_parts(folder), findings):
            _say(f"    {line}")
    else:
        _say("  violations: none")


def _kill_matrix(
    names: list[str], seeds: tuple[int, ...], cluster: Cluster, root: Path
) -> bool:
    cells = []
    is_complete = True
    for name in names:
        mutant = mutants.load(name)
        code = root / f"code-{name}"
        code.mkdir()
        mutants.make_copy(mutant, code)
        outcome = run(
            FENCE, seeds, cluster=cluster, code=code, folder=root / f"mutant-{name}"
        )
        rules = Counter(violation.rule for violation in outcome.caught)
        is_caught = bool(rules.keys() & _STALE_RULES)
        is_complete = is_complete and is_caught
        cells.append(
            f"{name} ({mutant.about}) "
            + (f"caught by {_words(rules)}" if is_caught else "NOT CAUGHT")
            + f" in {outcome.seconds:.0f} s"
        )
    _say(f"mutants: {'; '.join(cells)}")
    return is_complete


def _run(options: argparse.Namespace, profile: Profile) -> int:
    began = time.monotonic()
    second = options.seed
    if second is None:
        second = random.SystemRandom().randrange(1_000_000)
    seeds = (FIXED_SEED, second)
    root = Path(tempfile.mkdtemp(prefix="relay-chaos-"))
    _say(f"chaos {profile.name}: seeds {seeds[0]} and {seeds[1]}; histories in {root}")
    is_good = True
    with private_cluster(root / "postgres") as cluster:
        _say(cluster.describe())
        if options.only_mutant is None:
            outcome = run(
                profile,
                seeds,
                cluster=cluster,
                code=REPOSITORY,
                folder=root / profile.name,
            )
            _report(outcome)
            is_good = not outcome.findings.violations
        names = options.mutants.split(",") if options.mutants else []
        if options.only_mutant is not None:
            names = [options.only_mutant]
        if names:
            is_good = _kill_matrix(names, seeds, cluster, root) and is_good
    if is_good and not options.keep:
        shutil.rmtree(root)
    _say(
        f"{'PASS' if is_good else 'FAIL'} in {time.monotonic() - began:.0f} s"
        + ("" if is_good else f"; histories and logs: {root}")
    )
    return 0 if is_good else 1


def _check(options: argparse.Namespace) -> int:
    findings = check_parts(read_parts(options.folder))
    _verdict(options.folder, findings)
    return 1 if findings.violations else 0


def _campaign(options: argparse.Namespace) -> int:
    module = importlib.import_module(f"tests.chaos.campaigns.{options.command}")
    report = open_report(
        options.command,
        command=f"python -m tests.chaos {shlex.join(sys.argv[1:])}",
        options={
            name: str(value)
            for name, value in vars(options).items()
            if name not in ("seed", "out")
        },
        seed=options.seed,
        folder=options.out.resolve(),
    )
    is_good = module.run(options, report)
    report.end(is_good)
    return 0 if is_good else 1


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos")
    commands = parser.add_subparsers(dest="command", required=True)
    for profile in (SMOKE, KILL100, TRANSACTIONAL, FENCE):
        command = commands.add_parser(profile.name)
        command.set_defaults(profile=profile)
        command.add_argument("--seed", type=int, help="of the second half")
        command.add_argument("--seconds", type=float, default=profile.seconds)
        command.add_argument("--jobs", type=int, default=profile.jobs)
        command.add_argument("--mutants", default="", help="as in M1,M2")
        if profile is SMOKE:
            command.set_defaults(mutants="M1,M2")
        command.add_argument("--only-mutant", help="no other run than this mutant's")
        command.add_argument("--keep", action="store_true", help="keep the histories")
    for name in CAMPAIGNS:
        module = importlib.import_module(f"tests.chaos.campaigns.{name}")
        command = commands.add_parser(name, help=module.ABOUT, description=module.ABOUT)
        command.add_argument("--seed", type=int, help="repeat the run of this seed")
        command.add_argument(
            "--out",
            type=Path,
            default=OUT / name,
            help="folder of report and histories",
        )
        module.add_arguments(command)
    command = commands.add_parser("check", help="judge a run's folder again")
    command.add_argument("folder", type=Path)
    options = parser.parse_args()
    # As Ctrl-C does: end what was started, then go.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    if options.command == "check":
        return _check(options)
    if options.command in CAMPAIGNS:
        return _campaign(options)
    share = options.seconds / options.profile.seconds
    profile = replace(
        options.profile,
        seconds=options.seconds,
        jobs=options.jobs,
        faults={
            kind: round(count * share) for kind, count in options.profile.faults.items()
        },
        until_caught=False,
    )
    return _run(options, profile)


if __name__ == "__main__":
    sys.exit(main())
