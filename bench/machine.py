"""Where a run was made: what must stand beside its figures."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from bench.contenders import Contender
from bench.server import Server

__all__ = ["describe"]

_DURABLE = ("fsync", "synchronous_commit", "full_page_writes", "shared_buffers")


def describe(server: Server, rivals: list[Contender]) -> dict[str, Any]:
    """Return the machine, the versions, the server's settings and the commit."""
    return {
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "cores": os.cpu_count(),
        "memory_gib": round(_memory_bytes() / 2**30, 1),
        "kernel": platform.platform(),
        "python": platform.python_version(),
        **{name: version(name) for name in ("django", "psycopg")},
        "postgresql": server.value("SHOW server_version"),
        "settings": {name: server.value(f"SHOW {name}") for name in _DURABLE},
        "relay_commit": _commit(),
        "rivals": {rival.name: _version(rival.needs[0]) for rival in rivals},
    }


def _memory_bytes() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "unknown"


def _commit() -> str | None:
    git = shutil.which("git")
    if git is None:
        return None
    done = subprocess.run(  # noqa: S603 - no foreign words
        [git, "describe", "--always", "--dirty", "--abbrev=12"],
        cwd=Path(__file__).parent,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout.strip() or None
