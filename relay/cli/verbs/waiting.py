"""Waiting for jobs and following their logs."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Final

from relay.cli import finding, flags, shown
from relay.cli.errors import JobEndedBadly, WaitTimedOut
from relay.cli.printer import Document, inert
from relay.cli.progress import Progress
from relay.cli.session import Session
from relay.cli.transport import FINAL
from relay.cli.tree import Branch

__all__ = ["check_ends", "deadline", "grow", "wait_for"]

# A server holds one question for so long at most.
_ASK_SECONDS: Final = 20.0
# Between two drawings of a job's progress.
_DRAW_SECONDS: Final = 2.0
_LOOK_SECONDS: Final = 1.0


def grow(root: Branch) -> None:
    """Add the verbs."""
    root.verb(
        "wait",
        _wait,
        "wait until jobs have ended",
        flags.ids(),
        flags.wait_flags(),
        details="Wait until jobs have ended. The exit code is 8 if one failed or was "
        "cancelled, and 124 if one has not ended within --timeout.",
    )
    logs = root.verb("logs", _logs, "show what a job has logged", flags.ids(nargs=1))
    logs.add_argument(
        "-f", "--follow", action="store_true", help="go on until the job has ended"
    )


def _wait(session: Session) -> None:
    ids = [finding.job_id(session.transport, each) for each in session.options.ids]
    ends_at = deadline(session.options.timeout)
    ended = [wait_for(session, each, ends_at) for each in ids]
    session.show_list({"results": ended}, shown.JOBS)
    check_ends(ended)


def deadline(seconds: float | None) -> float:
    """Return when a wait ends, by time.monotonic()."""
    return float("inf") if seconds is None else time.monotonic() + seconds


def wait_for(session: Session, job_id: str, ends_at: float) -> Document:
    """Return a job that has ended; on a terminal with its progress until then.

    Raises:
        WaitTimedOut: it has not, by then.
    """
    longest = _DRAW_SECONDS if session.notes.is_terminal else _ASK_SECONDS
    with Progress(session.notes) as progress:
        while True:
            left = ends_at - time.monotonic()
            job = session.transport.wait_for(job_id, max(0.0, min(left, longest)))
            if job["state"] in FINAL:
                return job
            if ends_at <= time.monotonic():
                raise WaitTimedOut(f"job {job_id} has not ended: it is {job['state']}")
            _show_progress(progress, job["progress"])


def _show_progress(progress: Progress, told: object) -> None:
    """Draw what a job's handler has told of how far it is; it may be masked."""
    if not isinstance(told, Mapping):
        return
    done, total = told.get("done"), told.get("total")
    if isinstance(done, int | float) and isinstance(total, int | float):
        progress.show(done, total)
    elif isinstance(percent := told.get("percent"), int | float):
        progress.show(round(percent), 100)


def check_ends(jobs: Sequence[Document]) -> None:
    """Go on if all jobs completed.

    Raises:
        JobEndedBadly: one did not.
    """
    for job in jobs:
        if job["state"] != "completed":
            cause = f": {job['error_class']}" if job["error_class"] else ""
            raise JobEndedBadly(f"job {job['id']} ended {job['state']}{cause}")


def _logs(session: Session) -> None:
    job_id = finding.job_id(session.transport, session.options.ids[0])
    written: dict[int, int] = {}
    while True:
        # Looked at first: what it writes at its end is there when it has ended.
        job = session.transport.get_job(job_id)
        logs = session.transport.list_logs(job_id)
        if session.printer.mode == "json" and not session.options.follow:
            session.printer.document(logs)
            return
        _write(session, logs, written)
        session.printer.flush()
        if not session.options.follow or job["state"] in FINAL:
            if not logs and session.printer.mode == "people":
                session.say(
                    "nothing is kept of what it logged: @task(capture_logs=True) or "
                    "RELAY['CAPTURE_LOGS'] keeps it"
                )
            return
        time.sleep(_LOOK_SECONDS)


def _write(session: Session, logs: Sequence[Document], written: dict[int, int]) -> None:
    """Write what was not written before: an attempt's log may have grown."""
    for log in logs:
        text = log["text"][written.get(log["attempt"], 0) :]
        written[log["attempt"]] = len(log["text"])
        if not text:
            continue
        if session.printer.mode in ("json", "jsonl"):
            session.printer.document({**log, "text": text})
            continue
        for line in text.splitlines():
            session.printer.line(inert(line.expandtabs(4)))
