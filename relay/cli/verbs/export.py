"""Writing all jobs that match to a file, for other programs."""

from __future__ import annotations

import contextlib
import csv
import json
import os
from collections.abc import Callable, Iterator
from typing import Final

from relay.cli import flags
from relay.cli.errors import UsageError
from relay.cli.paging import pages
from relay.cli.printer import Document, Printer, inert
from relay.cli.progress import Progress
from relay.cli.session import Session
from relay.cli.tree import Branch
from relay.cli.verbs.jobs import fetching, filter_of
from relay.spreadsheets import never_a_formula

__all__ = ["grow"]

_COLUMNS: Final = [
    "id",
    "task",
    "queue",
    "priority",
    "state",
    "attempt",
    "max_retries",
    "failures",
    "created_at",
    "run_at",
    "started_at",
    "finished_at",
    "duration",
    "worker",
    "schedule",
    "tags",
    "args",
    "kwargs",
    "error_class",
    "error",
]


def grow(root: Branch, jobs: Branch) -> None:
    """Add the verb, to the root and to the noun jobs."""
    for branch in (jobs, root):
        parser = branch.verb(
            "export", _export, "write all jobs that match", flags.filter_flags()
        )
        parser.add_argument(
            "--format",
            choices=("jsonl", "csv"),
            default="jsonl",
            help="a JSON document in each line, or a table (default: jsonl)",
        )
        parser.add_argument(
            "--output", metavar="FILE", help="a new file (default: standard output)"
        )


def _export(session: Session) -> None:
    options = session.options
    filter = filter_of(session)
    with _target(session.printer, options.output) as target:
        is_seen = options.output is None and session.printer.is_terminal
        write = _csv(target, is_seen) if options.format == "csv" else _jsonl(target)
        with Progress(session.notes, is_shown=not is_seen) as progress:
            done, expected = 0, _expected(session, filter)
            fetch = fetching(session, filter)
            for page in pages(fetch, limit=flags.MOST_LISTED):
                for job in page["results"]:
                    write(job)
                done += len(page["results"])
                progress.show(done, expected)
    if options.output:
        session.say(f"{done:,} jobs written to {options.output}")


def _expected(session: Session, filter: str) -> int | None:
    """Return how many there will be; None where nobody looks or too many are."""
    if not session.notes.is_terminal:
        return None
    found = session.transport.count_jobs(filter)
    return None if found["capped"] else int(found["count"])


@contextlib.contextmanager
def _target(printer: Printer, path: str | None) -> Iterator[Callable[[str], object]]:
    if path is None:
        yield printer.write
        return
    try:
        # Never over what is there.
        with open(path, "x", encoding="utf-8", newline="") as file:
            try:
                yield file.write
                file.flush()
            except BaseException:  # half of it must not pass for the whole
                os.unlink(path)
                raise
    except FileExistsError:
        raise UsageError(f"{path} is there already: name a new file") from None
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}") from error


def _jsonl(write: Callable[[str], object]) -> Callable[[Document], object]:
    return lambda job: write(json.dumps(job) + "\n")


class _Writable:
    """What csv writes to."""

    def __init__(self, write: Callable[[str], object]) -> None:
        self.write = write


def _csv(write: Callable[[str], object], is_seen: bool) -> Callable[[Document], object]:
    writer = csv.writer(_Writable(write), lineterminator="\n")
    writer.writerow(_COLUMNS)
    return lambda job: writer.writerow([_cell(job[name], is_seen) for name in _COLUMNS])


def _cell(value: object, is_seen: bool) -> object:
    if value is None or isinstance(value, int | float):
        return value
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    if is_seen:  # on a terminal, which would obey what is in it
        text = inert(text)
    return never_a_formula(text)
