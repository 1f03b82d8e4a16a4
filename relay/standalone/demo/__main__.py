"""python -m relay.standalone.demo: see relay at work, with nothing set up before."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from relay.exceptions import StandaloneError
from relay.standalone.demo.environment import DATA
from relay.standalone.demo.terminal import Stop, Stopped, Terminal
from relay.standalone.postgres.locks import FileLock

__all__ = ["main"]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m relay.standalone.demo",
        description="Run jobs on real files with two workers and a scheduler, kill one "
        "worker, and see its jobs finish elsewhere. The database is an embedded "
        "PostgreSQL, or that of DATABASE_URL.",
    )
    parser.add_argument(
        "--once",
        action="store_true",
        help="end after the table; do not serve the admin",
    )
    parser.add_argument(
        "--folder",
        type=Path,
        help="whose files to work on; it is only read (default: the demo's own files)",
    )
    parser.add_argument(
        "--limit",
        type=_whole(1, 1000),
        default=24,
        metavar="N",
        help="files taken of the folder, by name (default: %(default)s)",
    )
    parser.add_argument(
        "--data",
        type=Path,
        default=Path(".relay") / "demo",
        metavar="DIR",
        help="where all that is written goes (default: %(default)s)",
    )
    parser.add_argument(
        "--port",
        type=_whole(1, 65535),
        default=8000,
        metavar="N",
        help="of the admin; the next free one if it is in use (default: %(default)s)",
    )
    parser.add_argument(
        "--budget",
        type=_whole(1, 86_400),
        default=60,
        metavar="SECONDS",
        help="fail if the jobs take longer (default: %(default)s)",
    )
    return parser


class _whole:
    """The type of an argument that is a whole number in a range."""

    def __init__(self, least: int, most: int) -> None:
        self._range = range(least, most + 1)

    def __call__(self, text: str) -> int:
        if text.isascii() and text.isdigit() and int(text) in self._range:
            return int(text)
        raise argparse.ArgumentTypeError(
            f"{text!r} is no whole number from {self._range[0]} to {self._range[-1]}"
        )


def _prepare(data: Path) -> FileLock:
    """Make the data folder and take it for this process.

    Raises:
        StandaloneError: it cannot be written to, or another demo is using it.
    """
    try:
        data.mkdir(parents=True, exist_ok=True)
        lock = FileLock(data / "demo.lock")
        is_free = lock.take()
    except OSError as error:
        reason = error.strerror or str(error)
        raise StandaloneError(
            f"{data} cannot be written to: {reason}. Choose another with --data"
        ) from error
    if not is_free:
        raise StandaloneError(
            f"another demo is using {data}: stop it, or choose another with --data"
        )
    return lock


def _run(arguments: argparse.Namespace, terminal: Terminal, stop: Stop) -> int:
    try:
        from relay.standalone.demo.files import SAMPLES, find_files
    except ModuleNotFoundError as error:
        raise StandaloneError(
            f"{error}: pip install 'django-relay[standalone]'"
        ) from error
    data = arguments.data.expanduser().absolute()
    folder = (arguments.folder or SAMPLES).expanduser().absolute()
    if data == folder:
        raise StandaloneError(
            "--data and --folder are the same: the folder is only read"
        )
    files = find_files(folder, limit=arguments.limit, tell=terminal.write)
    is_new = not (data / "demo.lock").exists()
    with _prepare(data):
        os.environ[DATA] = str(data)
        os.environ["DJANGO_SETTINGS_MODULE"] = "relay.standalone.demo.settings"
        # Here: settings read the environment, and models need them.
        import django
        import psycopg
        from django.db import Error

        django.setup()

        from relay.standalone.demo import run

        which = "the demo's own files" if arguments.folder is None else str(folder)
        of = f"the first {len(files.taken)} of {files.found}"
        terminal.write(f"relay demo, {run.versions()}")
        terminal.write(
            f"files     {which}: "
            f"{of if files.found > len(files.taken) else len(files.taken)}, "
            f"{len(files.images)} of them images"
        )
        terminal.write(f"data      {data} ({'new' if is_new else 'reused'})")
        terminal.write()
        options = run.Options(
            data=data,
            budget_seconds=arguments.budget,
            port=arguments.port,
            is_once=arguments.once,
        )
        try:
            return run.run(options, files, terminal, stop)
        except (Error, psycopg.Error) as error:
            raise StandaloneError(f"the database cannot be used: {error}") from error


def main(argv: Sequence[str] | None = None) -> int:
    """Run the demo; return its exit code: 130 where it was stopped before its end."""
    arguments = _parser().parse_args(argv)
    stop = Stop()
    stop.install()
    terminal = Terminal(stop)
    try:
        return _run(arguments, terminal, stop)
    except Stopped:
        terminal.write("stopped before its end")
        return 130
    except (OSError, StandaloneError) as error:
        sys.stderr.write(f"{error}\n")
        return 1


if __name__ == "__main__":
    sys.exit(main())
