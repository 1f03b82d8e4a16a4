"""The metrics as text, of one process or of all that share a folder."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final

from prometheus_client import REGISTRY, CollectorRegistry, multiprocess
from prometheus_client.exposition import choose_encoder

from relay.metrics.collector import Collector
from relay.metrics.names import DATABASE

__all__ = ["clear_stale_files", "forget_process", "render"]

FOLDER_VARIABLE: Final = "PROMETHEUS_MULTIPROC_DIR"
_FILE: Final = re.compile(r"[a-z_]+_(?P<pid>[0-9]+)\.db")


def render(accept: str = "", collector: Collector | None = None) -> tuple[bytes, str]:
    """Return the metrics and their content type.

    Where PROMETHEUS_MULTIPROC_DIR is set, those of all processes that share it.

    Args:
        accept: the header of the request: plain text, or OpenMetrics.
        collector: of the database's gauges, to be shown as well.
    """
    encode, content_type = choose_encoder(accept)
    # Made anew: what the process has registered would be there twice.
    registry = CollectorRegistry()
    if (folder := _folder()) is not None:
        registry.register(_Shared(folder))
    else:
        registry.register(_Process(has_gauges=collector is None))
    if collector is not None:
        registry.register(collector)
    return encode(registry), content_type


class _Process:
    """All that this process has registered.

    Args:
        has_gauges: whether with a Collector of the host's own: its gauges must not
            be there twice.
    """

    def __init__(self, *, has_gauges: bool) -> None:
        self._has_gauges = has_gauges

    def collect(self):  # type: ignore[no-untyped-def] # as the registry's own
        for family in REGISTRY.collect():
            if self._has_gauges or family.name not in DATABASE:
                yield family


class _Shared:
    """What all processes that share the folder have registered."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def collect(self):  # type: ignore[no-untyped-def] # as the registry's own
        # One that a process makes at this instant is empty, and cannot be read.
        files = [str(path) for path in self._folder.glob("*.db") if _size(path)]
        return multiprocess.MultiProcessCollector.merge(files)  # type: ignore[no-untyped-call] # untyped


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def _folder() -> Path | None:
    text = os.environ.get(FOLDER_VARIABLE)
    return Path(text) if text and os.path.isdir(text) else None


def forget_process(pid: int) -> None:
    """Take the gauges of a process that is gone out of the sums."""
    if _folder() is not None:
        multiprocess.mark_process_dead(pid)  # type: ignore[no-untyped-call] # untyped


def clear_stale_files() -> None:
    """Remove what processes have left that are gone.

    Where any lives only their gauges go: without their counters a sum would go down,
    which reads as a new start from 0.
    """
    folder = _folder()
    if folder is None:
        return
    files = {
        path: int(match["pid"])
        for path in folder.glob("*.db")
        if (match := _FILE.fullmatch(path.name)) is not None
    }
    # Imported metrics of this process are its own.
    others = set(files.values()) - {os.getpid()}
    dead = {pid for pid in others if not _lives(pid)}
    for pid in dead:
        forget_process(pid)
    if dead == others:
        # Of those looked at: a process that starts meanwhile has files by now.
        for path in [path for path, pid in files.items() if pid in dead]:
            path.unlink(missing_ok=True)


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True
