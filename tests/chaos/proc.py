"""What runs on this machine, read from /proc."""

from __future__ import annotations

import os
from dataclasses import dataclass

__all__ = ["Process", "children_of", "descendants_of", "is_same", "scan"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """One process. With its start time the pid is unique."""

    pid: int
    parent: int
    state: str
    started: int


def _read(pid: int) -> Process | None:
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            text = file.read()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The name stands in parentheses and may hold any character.
    rest = text[text.rindex(")") + 2 :].split()
    return Process(pid=pid, state=rest[0], parent=int(rest[1]), started=int(rest[19]))


def scan(*, zombies: bool = False) -> dict[int, Process]:
    """Return every live process by pid, the zombies left out unless asked for."""
    found = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            process = _read(int(name))
            if process is not None and (zombies or process.state not in "ZX"):
                found[process.pid] = process
    return found


def children_of(pid: int, processes: dict[int, Process]) -> list[Process]:
    return [process for process in processes.values() if process.parent == pid]


def descendants_of(pid: int, processes: dict[int, Process]) -> list[Process]:
    found = children_of(pid, processes)
    for process in list(found):
        found += descendants_of(process.pid, processes)
    return found


def is_same(process: Process) -> bool:
    """Tell whether this very process is still alive."""
    now = _read(process.pid)
    return now is not None and now.started == process.started and now.state not in "ZX"
