"""Starts the processes of a run, restarts what dies, and owns every pid."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests.chaos import proc
from tests.chaos.histories import ProcessEvent

__all__ = ["Owned", "Supervisor"]

SCAN_SECONDS: Final = 0.1
# PDEATHSIG and the watched pipe work at once; two seconds are for a busy machine.
ORPHAN_SECONDS: Final = 2.0

_LIBC: Final = ctypes.CDLL(None)
_PR_SET_PDEATHSIG: Final = 1  # Source: prctl(2)


@dataclass(slots=True, kw_only=True)
class Owned:
    """One long-lived process and what hangs below it.

    Attributes:
        children: how many child processes it should have; 0 for a scheduler.
        environment: what it has besides the run's own.
        is_busy: a fault is going on here; no other may strike meanwhile.
        signalled_at: when the harness killed it or asked it to stop.
    """

    name: str
    arguments: Sequence[str]
    children: int = 0
    restarts: bool = True
    environment: Mapping[str, str] = field(default_factory=dict)
    process: subprocess.Popen[bytes] | None = None
    tree: list[proc.Process] = field(default_factory=list)
    is_busy: bool = False
    signalled_at: float | None = None
    exits: int = 0

    @property
    def pid(self) -> int:
        if self.process is None:
            raise RuntimeError(f"{self.name} was never started")
        return self.process.pid

    @property
    def is_up(self) -> bool:
        return self.process is not None and self.process.returncode is None


class Supervisor:
    """Parent of every process of a run; one thread, driven by tick()."""

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        self._folder = folder
        self._environment = {**os.environ, **environment}
        self._orphans: list[tuple[proc.Process, str, float]] = []
        self._last_seen: dict[int, tuple[str, float]] = {}
        self._scanned_at = 0.0
        self.owned: list[Owned] = []
        self.events: list[ProcessEvent] = []

    def start(
        self,
        name: str,
        arguments: Sequence[str],
        *,
        children: int = 0,
        restarts: bool = True,
        environment: Mapping[str, str] | None = None,
    ) -> Owned:
        """Start `python -m …` in a session of its own and keep it running."""
        owned = Owned(
            name=name,
            arguments=arguments,
            children=children,
            restarts=restarts,
            environment=environment or {},
        )
        self.owned.append(owned)
        self._spawn(owned)
        return owned

    def run(
        self,
        name: str,
        arguments: Sequence[str],
        *,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """Run `python -m …` to its end.

        Raises:
            RuntimeError: it failed; the message shows its output.
        """
        done = subprocess.run(
            [sys.executable, "-m", *arguments],
            cwd=self._folder,
            env={**self._environment, **(environment or {})},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            check=False,
        )
        if done.returncode:
            output = done.stdout.decode(errors="replace")
            raise RuntimeError(f"{name} ended with {done.returncode}:\n{output}")

    def _spawn(self, owned: Owned) -> None:
        with (self._folder / f"{owned.name}.log").open("ab") as log:
            # Not the repository: its relay must not come before a mutant's.
            owned.process = subprocess.Popen(
                [sys.executable, "-m", *owned.arguments],
                cwd=self._folder,
                env={**self._environment, **owned.environment},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=_die_with_harness,
            )
        owned.signalled_at = None
        owned.is_busy = False
        owned.tree = []

    def tick(self) -> None:
        """Look who died, start them again, and look for orphans now and then."""
        for owned in self.owned:
            if not owned.is_up or owned.process is None:
                continue
            code = owned.process.poll()
            if code is None:
                continue
            self._note_exit(owned, code)
            if owned.restarts:
                self._spawn(owned)
        if time.monotonic() - self._scanned_at >= SCAN_SECONDS:
            self.scan()

    def _note_exit(self, owned: Owned, code: int) -> None:
        now = time.monotonic()
        expected = owned.signalled_at is not None or (not owned.restarts and code == 0)
        owned.exits += 1
        self.events.append(
            ProcessEvent(
                event="exit",
                name=owned.name,
                pid=owned.pid,
                mono=now,
                code=code,
                expected=expected,
                seconds=0.0 if owned.signalled_at is None else now - owned.signalled_at,
            )
        )
        self._orphans += [(process, owned.name, now) for process in owned.tree]

    def scan(self) -> None:
        """Read the process trees anew."""
        now = self._scanned_at = time.monotonic()
        processes = proc.scan()
        for owned in self.owned:
            if owned.is_up:
                owned.tree = proc.descendants_of(owned.pid, processes)
                for process in owned.tree:
                    self._last_seen[process.pid] = (owned.name, now)
        left = []
        for process, name, died_at in self._orphans:
            if not proc.is_same(process):
                continue
            self._last_seen[process.pid] = (name, now)
            if now - died_at < ORPHAN_SECONDS:
                left.append((process, name, died_at))
                continue
            self._note_orphan(process.pid, name, now - died_at)
        self._orphans = left

    def _note_orphan(self, pid: int, name: str, seconds: float) -> None:
        self.events.append(
            ProcessEvent(
                event="orphan",
                name=name,
                pid=pid,
                mono=time.monotonic(),
                seconds=seconds,
            )
        )
        send(pid, signal.SIGKILL)

    def signal(self, owned: Owned, number: signal.Signals) -> None:
        """Send a signal that must end the process; its exit is then expected."""
        owned.signalled_at = time.monotonic()
        owned.is_busy = True
        send(owned.pid, number)

    def stop(self, owned: Sequence[Owned], seconds: float) -> None:
        """Ask processes to end and wait; what is left after `seconds` is killed."""
        for each in owned:
            each.restarts = False
            if each.is_up:
                self.signal(each, signal.SIGTERM)
        deadline = time.monotonic() + seconds
        while any(each.is_up for each in owned) and time.monotonic() < deadline:
            self.tick()
            time.sleep(0.02)
        for each in owned:
            if each.is_up:
                send(each.pid, signal.SIGKILL)
        while any(each.is_up for each in owned):
            self.tick()
            time.sleep(0.02)

    def close(self) -> None:
        """End everything at once, and look for what outlived its parent."""
        self.scan()
        for owned in self.owned:
            owned.restarts = False
            if owned.is_up:
                owned.signalled_at = time.monotonic()
                with suppress(ProcessLookupError):
                    os.killpg(owned.pid, signal.SIGKILL)
        deadline = time.monotonic() + 2 * ORPHAN_SECONDS
        while time.monotonic() < deadline and (
            self._orphans or any(owned.is_up for owned in self.owned)
        ):
            self.tick()
            time.sleep(0.02)
        for pid in self._marked():
            self._note_orphan(pid, "somebody", 0.0)
        for pid, (name, mono) in self._last_seen.items():
            self.events.append(
                ProcessEvent(event="seen", name=name, pid=pid, mono=mono)
            )

    def _marked(self) -> list[int]:
        """Return what still runs with the environment of this run."""
        mark = f"RELAY_CHAOS_EFFECTS={self._environment['RELAY_CHAOS_EFFECTS']}"
        found = []
        for pid in proc.scan():
            with suppress(OSError):
                variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
                if mark.encode() in variables and pid != os.getpid():
                    found.append(pid)
        return found


def _die_with_harness() -> None:
    """Have the kernel end a process when the harness is killed: no strays."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def send(pid: int, number: signal.Signals) -> None:
    """Send a signal to a process that may have just ended."""
    with suppress(ProcessLookupError):
        os.kill(pid, number)
