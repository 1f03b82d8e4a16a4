"""What a campaign says: on the terminal, and kept as Markdown in its folder."""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import django
import psycopg

from relay.standalone.postgres import EmbeddedPostgres
from tests.chaos.findings import SHOWN

__all__ = ["OUT", "Report", "open_report"]

OUT: Final = Path(__file__).resolve().parent / "out"
_REPOSITORY: Final = Path(__file__).resolve().parents[2]
_FILE: Final = "report.md"
_UNFINISHED: Final = "unfinished.json"
_KEPT: Final = "kept"


class Report:
    """Prints what it is told and keeps it; report.md is whole after every call.

    Attributes:
        seed: of everything that is left to chance.
        folder: the campaign's own, for histories and logs. Emptied when a campaign
            starts, but for what an interrupted one put away with keep(), and the
            folders of the same name.
    """

    def __init__(self, name: str, *, command: str, seed: int, folder: Path) -> None:
        self.seed = seed
        self.folder = folder
        self._began_at = time.monotonic()
        self._head = [f"# {name}", "", *_about(command, seed)]
        self._body: list[str] = []
        self._write("did not end")

    def say(self, text: str) -> None:
        """Add a line of text."""
        self._add(text)

    def table(
        self, title: str, headers: Sequence[str], rows: Sequence[Sequence[object]]
    ) -> None:
        """Add a table under a heading."""
        lines = [headers, ["---"] * len(headers), *rows]
        self._add(
            f"## {title}",
            "\n".join(
                "| " + " | ".join(_cell(cell) for cell in line) + " |" for line in lines
            ),
        )

    def violations(self, found: Sequence[object]) -> None:
        """Add what was broken: the first 20, one line or one text each."""
        if not found:
            self._add("Violations: none.")
            return
        shown = [str(violation) for violation in found[:SHOWN]]
        if len(found) > SHOWN:
            shown.append(f"… and {len(found) - SHOWN} more")
        self._add(f"**Violations: {len(found)}**", "\n".join(["```", *shown, "```"]))

    def keep(self, name: str, value: Any) -> None:
        """Put a finished part away, for the run that goes on after a break."""
        path = self.folder / _KEPT / f"{name}.json"
        path.parent.mkdir(exist_ok=True)
        unfinished = path.with_suffix(".new")
        unfinished.write_text(json.dumps(value), encoding="utf-8")
        unfinished.replace(path)

    def kept(self, name: str) -> Any:
        """Return what an interrupted run had kept under a name, or None."""
        path = self.folder / _KEPT / f"{name}.json"
        return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None

    def end(self, is_good: bool) -> None:
        """Write the verdict; the next run starts anew."""
        seconds = time.monotonic() - self._began_at
        verdict = f"{'PASS' if is_good else 'FAIL'} in {seconds:.0f} s"
        self._write(verdict)
        (self.folder / _UNFINISHED).unlink(missing_ok=True)
        print(f"{verdict}; {self.folder / _FILE}", flush=True)  # noqa: T201 - output

    def _add(self, *blocks: str) -> None:
        self._body += blocks
        print(*blocks, sep="\n", flush=True)  # noqa: T201 - a command's output
        self._write("did not end")

    def _write(self, verdict: str) -> None:
        text = "\n\n".join(["\n".join(self._head), *self._body, f"Verdict: {verdict}."])
        (self.folder / _FILE).write_text(f"{text}\n", encoding="utf-8")


def open_report(
    name: str, *, command: str, options: dict[str, str], seed: int | None, folder: Path
) -> Report:
    """Begin a campaign in its folder, or go on with the one that was interrupted there.

    Args:
        options: what the campaign was asked for; only the same is gone on with.
        seed: None takes the interrupted one's, or draws a new one.

    Raises:
        SystemExit: the folder holds something that is not a campaign's.
    """
    marker = folder / _UNFINISHED
    folder.mkdir(parents=True, exist_ok=True)
    left = list(folder.iterdir())
    if left and not (folder / _FILE).exists():
        raise SystemExit(f"{folder} is not empty and not a campaign's: choose another")
    before: dict[str, Any] = json.loads(marker.read_text()) if marker.exists() else {}
    goes_on = before.get("options") == options and seed in (None, before.get("seed"))
    # The server of a run that was killed may be left.
    for pid in folder.glob("**/data/postmaster.pid"):
        EmbeddedPostgres(pid.parents[1]).stop("immediate")
    for path in left:
        is_kept = goes_on and (
            path.name == _KEPT or (folder / _KEPT / f"{path.name}.json").exists()
        )
        if path.is_dir() and not is_kept:
            shutil.rmtree(path)
        elif path.is_file():
            path.unlink()
    if goes_on:
        seed = before["seed"]
    elif seed is None:
        seed = int.from_bytes(os.urandom(3))
    marker.write_text(json.dumps({"options": options, "seed": seed}))
    report = Report(name, command=command, seed=seed, folder=folder)
    if goes_on:
        report.say("Goes on where an earlier run was interrupted.")
    return report


def _cell(value: object) -> str:
    return str(value).replace("|", "\\|").replace("\n", " ")


def _about(command: str, seed: int) -> list[str]:
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30
    return [
        f"- command: `{command}`",
        f"- seed: {seed}",
        f"- date: {datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
        f"- machine: {os.cpu_count()} CPUs ({_processor()}), {memory:.0f} GiB, "
        f"{platform.system()} {platform.release()}",
        f"- versions: relay {_revision()}, Python {platform.python_version()}, "
        f"Django {django.get_version()}, psycopg {psycopg.__version__}",
    ]


def _processor() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return platform.machine()
    names = [line for line in text.splitlines() if line.startswith("model name")]
    return names[0].partition(":")[2].strip() if names else platform.machine()


def _revision() -> str:
    try:
        found = subprocess.run(
            ["git", "describe", "--always", "--dirty"],
            cwd=_REPOSITORY,
            capture_output=True,
            text=True,
            check=False,
        )
    except OSError:
        return "of an unknown revision"
    return found.stdout.strip() or "of an unknown revision"
