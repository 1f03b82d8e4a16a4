"""Known vulnerabilities of what the locks hold: make audit.

pip-audit asks PyPI and OSV about each version of each package that a lock holds, for
whatever Python and system. The exit code is 1 if one has a known vulnerability or is
not known at all (a release that was taken away, say), else 0. A service that cannot be
reached is named, and with --strict is an exit code of 1 too. Other arguments are
pip-audit's: --ignore-vuln ID passes over one vulnerability.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from requirements.locks import locks, read

__all__ = ["SERVICES", "Answer", "ask", "judge", "locked", "main", "report"]

SERVICES: Final = ("pypi", "osv")
# What pip-audit and its HTTP client say where a service is not there or not well.
_UNREACHED: Final = re.compile(r"Connect|Timeout|ServiceError|not redirecting properly")


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a service said; or nothing, and then silence is the reason."""

    service: str
    asked: int = 0
    found: tuple[str, ...] = ()
    silence: str = ""


def locked() -> list[tuple[str, str]]:
    """Return each version of each package that a lock holds."""
    pins = (pin for lock in locks() for pin in read(lock))
    return sorted({(pin.name, str(pin.version)) for pin in pins})


def ask(service: str, packages: Iterable[tuple[str, str]], *options: str) -> Answer:
    """Ask a service about packages; options are pip-audit's.

    Raises:
        RuntimeError: pip-audit failed, and not for want of an answer.
    """
    said: list[Any] = []
    for versions in _files(packages):
        try:
            said += _pip_audit(service, versions, *options)
        except ConnectionError as error:
            return Answer(service=service, silence=str(error))
    return judge(service, said)


def _files(packages: Iterable[tuple[str, str]]) -> list[dict[str, str]]:
    """Return versions by package: pip-audit takes one of each at a time."""
    files: list[dict[str, str]] = []
    for name, version in packages:
        free = next((file for file in files if name not in file), None)
        if free is None:
            files.append(free := {})
        free[name] = version
    return files


def _pip_audit(service: str, versions: Mapping[str, str], *options: str) -> list[Any]:
    with TemporaryDirectory() as folder:
        file = Path(folder, "requirements.txt")
        lines = [f"{name}=={version}\n" for name, version in versions.items()]
        file.write_text("".join(lines), encoding="utf-8")
        command = [sys.executable, "-m", "pip_audit", "--requirement", str(file)]
        command += ["--no-deps", "--disable-pip", "--progress-spinner", "off"]
        command += ["--format", "json", "--vulnerability-service", service, *options]
        done = subprocess.run(command, capture_output=True, text=True)  # noqa: S603 - our own words and the caller's
    if done.stdout:
        dependencies: list[Any] = json.loads(done.stdout)["dependencies"]
        return dependencies
    if _UNREACHED.search(done.stderr):
        raise ConnectionError(done.stderr.strip().splitlines()[-1])
    raise RuntimeError(done.stderr)


def judge(service: str, said: Sequence[Any]) -> Answer:
    """Read what pip-audit wrote of a service's answers."""
    unknown = [each["skip_reason"] for each in said if "skip_reason" in each]
    if len(unknown) == len(said):
        silence = f"it knows none of {len(said)} versions: {unknown[0]}"
        return Answer(service=service, silence=silence)
    found = [
        f"{each['name']} {each['version']}: {vulnerability['id']}, "
        f"fixed in {', '.join(vulnerability['fix_versions']) or 'no version'}: "
        f"{vulnerability['description']}"
        for each in said
        for vulnerability in each.get("vulns", ())
    ]
    return Answer(service=service, asked=len(said), found=(*unknown, *found))


def report(answers: Iterable[Answer], *, strict: bool) -> int:
    """Print what was answered, and return the exit code."""
    code = 0
    for each in answers:
        if each.silence:
            line = f"{each.service}: NOTHING WAS AUDITED, no answer: {each.silence}"
        elif each.found:
            line = "\n".join(f"{each.service}: {found}" for found in each.found)
        else:
            line = f"{each.service}: no known vulnerability in {each.asked} versions"
        print(line)  # noqa: T201 - a command's output
        if each.found or (strict and each.silence):
            code = 1
    return code


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--strict", action="store_true")
    options, others = parser.parse_known_args(arguments)
    answers = [ask(service, locked(), *others) for service in SERVICES]
    return report(answers, strict=options.strict)


if __name__ == "__main__":
    sys.exit(main())
