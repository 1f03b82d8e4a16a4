"""python -m relay.standalone.postgres COMMAND: the embedded PostgreSQL of a folder."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from relay.exceptions import StandaloneError
from relay.standalone.postgres.database_url import parse_database_url
from relay.standalone.postgres.server import EmbeddedPostgres, root_by_major

__all__ = ["main"]


def _start(server: EmbeddedPostgres, arguments: argparse.Namespace) -> int:
    with server:
        server.keep(True)
        sys.stdout.write(f"{server.describe()}\n{server.dsn()}\n")
    return 0


def _stop(server: EmbeddedPostgres, arguments: argparse.Namespace) -> int:
    if not server.root.exists():
        sys.stdout.write(f"no PostgreSQL in {server.root}\n")
        return 0
    server.keep(False)
    if not arguments.force and server.is_in_use():
        sys.stderr.write(
            f"PostgreSQL in {server.root} is in use: it stops when its last user ends. "
            "Stop it now with --force\n"
        )
        return 1
    sys.stdout.write("stopped\n" if server.stop() else "it was not running\n")
    return 0


def _status(server: EmbeddedPostgres, arguments: argparse.Namespace) -> int:
    if url := os.environ.get("DATABASE_URL"):
        named = parse_database_url(url)
        sys.stdout.write(
            f"DATABASE_URL names {named['NAME']} on {named['HOST'] or 'localhost'}: "
            "the embedded PostgreSQL is not used\n"
        )
    running = server.is_running()
    if not running:
        sys.stdout.write(f"not running, data in {server.root}\n")
        return 3  # as an init script. Source: LSB 5.0, "Init Script Actions"
    lines = [f"running as process {server.postmaster_pid()}, data in {server.root}"]
    lines.append(server.dsn())
    if server.is_kept:
        lines.append("it runs until `stop`")
    elif server.is_in_use():
        lines.append("it stops when its last user ends")
    else:
        lines.append("its last user was killed: it stops when the next one ends")
    sys.stdout.write("\n".join(lines) + "\n")
    return 0


def _shell(server: EmbeddedPostgres, arguments: argparse.Namespace) -> int:
    with server:
        psql = server.binaries.program("psql")
        return subprocess.call(  # noqa: S603 - the caller's own command line
            [psql, f"--dbname={server.dsn(arguments.database)}", *arguments.rest]
        )


def _backup(server: EmbeddedPostgres, arguments: argparse.Namespace) -> int:
    """Write the dump beside its place first: a file of that name is always whole."""
    moment = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    target = arguments.file or Path(f"{arguments.database}-{moment}.dump")
    unfinished = target.with_name(f"{target.name}.unfinished")
    with server:
        program = server.binaries.program("pg_dump")
        address = f"--dbname={server.dsn(arguments.database)}"
        descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with open(descriptor, "wb") as dump:
            code = subprocess.call(  # noqa: S603 - no shell, and no foreign words
                [program, "--format=custom", address], stdout=dump
            )
            os.fsync(dump.fileno())
    if code:
        unfinished.unlink()
        return code
    unfinished.replace(target)
    sys.stdout.write(f"{target}\nrestore it with pg_restore --dbname=… {target}\n")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m relay.standalone.postgres",
        description="The embedded PostgreSQL of a folder.",
    )
    root = argparse.ArgumentParser(add_help=False)
    root.add_argument(
        "--root", type=Path, help="default: .relay/postgres/ and the major version"
    )
    database = argparse.ArgumentParser(add_help=False)
    database.add_argument("--database", default="postgres")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for name, function, parents, text in (
        ("start", _start, [root], "start it, and let it run until `stop`"),
        ("stop", _stop, [root], "stop it unless another process uses it"),
        ("status", _status, [root], "say whether it runs and who keeps it running"),
        ("shell", _shell, [root, database], "open psql; its arguments follow --"),
        ("backup", _backup, [root, database], "write a database to a file by pg_dump"),
    ):
        command = commands.add_parser(
            name, parents=parents, help=text, description=text
        )
        command.set_defaults(function=function)
        if name == "stop":
            command.add_argument("--force", action="store_true", help="even if in use")
        if name == "shell":
            command.add_argument("rest", nargs="*", metavar="-- ARGUMENT")
        if name == "backup":
            command.add_argument("file", nargs="?", type=Path)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; return its exit code."""
    arguments = _parser().parse_args(argv)
    starts = arguments.function not in (_stop, _status)
    try:
        if starts and os.environ.get("DATABASE_URL"):
            raise StandaloneError(
                "DATABASE_URL is set, so relay does not use the embedded PostgreSQL: "
                "unset it first"
            )
        root = arguments.root or root_by_major(Path(".relay") / "postgres")
        return int(arguments.function(EmbeddedPostgres(root), arguments))
    except (OSError, StandaloneError) as error:
        sys.stderr.write(f"{error}\n")
        return 1


if __name__ == "__main__":
    sys.exit(main())
