"""Processes of a contender: started in a session of their own, ended, weighed."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

__all__ = ["ask", "pss_mib", "running", "tree"]

STOP_SECONDS = 40
PROC = Path("/proc")


def ask(arguments: Sequence[str], environment: Mapping[str, str]) -> Any:
    """Run python with these arguments to its end; return the JSON that it prints."""
    done = subprocess.run(  # noqa: S603 - our own modules
        [sys.executable, *arguments],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"{' '.join(arguments)}: {done.stderr[-2_000:]}")
    return json.loads(done.stdout) if done.stdout.strip() else None


@contextmanager
def running(
    commands: Sequence[Sequence[str]], environment: Mapping[str, str], log: Path
) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Run python with each of these arguments meanwhile; end them by SIGTERM."""
    started: list[subprocess.Popen[bytes]] = []
    with log.open("ab") as output:
        try:
            for arguments in commands:
                started.append(
                    subprocess.Popen(  # noqa: S603 - our own modules
                        [sys.executable, *arguments],
                        env={**os.environ, **environment},
                        stdout=output,
                        stderr=output,
                        start_new_session=True,
                    )
                )
            yield started
        finally:
            for process in started:
                if process.poll() is None:
                    process.send_signal(signal.SIGTERM)
            for process in started:
                _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(STOP_SECONDS)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)  # its own session, with what is left
    process.wait()


def tree(pid: int) -> list[int]:
    """Return a process and all that descend from it."""
    children: dict[int, list[int]] = {}
    for entry in PROC.iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                children.setdefault(int(fields[1]), []).append(int(entry.name))
    found = [pid]
    for parent in found:
        found.extend(children.get(parent, ()))
    return found


def pss_mib(pid: int) -> float:
    """Return the proportional set size of a process and its descendants, in MiB."""
    total_kib = 0
    for member in tree(pid):
        with contextlib.suppress(OSError):
            for line in (PROC / str(member) / "smaps_rollup").read_text().splitlines():
                if line.startswith("Pss:"):
                    total_kib += int(line.split()[1])
    return total_kib / 1024
