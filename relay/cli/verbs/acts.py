"""Changing jobs: cancel, retry, replay, run, rm, edit."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from copy import deepcopy
from functools import partial
from typing import Any, Final

from relay.cli import finding, flags
from relay.cli.errors import MissingError, UsageError
from relay.cli.printer import Document
from relay.cli.session import Session
from relay.cli.transport import JobAct
from relay.cli.tree import Branch
from relay.cli.values import assignment, instant, merged, span
from relay.cli.verbs.bulk import start

__all__ = ["grow", "on_several"]

_HIDDEN: Final = ("•••", "…")
_HELP: Final[dict[JobAct, str]] = {
    "cancel": "cancel jobs that wait, and stop running ones",
    "retry": "run failed or cancelled jobs again, with their whole retry budget",
    "replay": "enqueue new jobs like those that have ended",
    "run_now": "make scheduled and retrying jobs ready at once",
    "delete": "delete jobs that do not run",
}
_NAMES: Final[dict[JobAct, str]] = {"run_now": "run-now", "delete": "rm"}
_DONE: Final[dict[JobAct, str]] = {
    "cancel": "cancelled",
    "retry": "retried",
    "replay": "replayed as",
    "run_now": "made ready",
    "delete": "deleted",
}


def grow(root: Branch, jobs: Branch) -> None:
    """Add the verbs, to the root and to the noun jobs."""
    for act, help in _HELP.items():
        branches = (jobs,) if act == "run_now" else (jobs, root)
        for branch in branches:
            parser = branch.verb(
                _NAMES.get(act, act),
                partial(on_several, act=act),
                help,
                flags.several_flags(),
            )
            if act == "replay":
                _add_set(parser, "args.0=1 or args.user=2; of one job alone")
    running = root.verb(
        "run",
        _run,
        "run a job of a queue now: a waiting one at once, an ended one again",
        flags.write_flags(),
    )
    running.add_argument("queue_name", metavar="QUEUE", help="in which they are")
    running.add_argument(
        "ids", nargs="+", metavar="ID", help="their ids, or how those begin"
    )
    edit = jobs.verb(
        "edit",
        _edit,
        "change a job that waits",
        flags.ids(nargs=1),
        flags.write_flags(),
    )
    _add_set(
        edit,
        "queue, priority, run_at, max_retries, timeout, deadline, tags, args.0 or "
        "args.name",
    )


def _add_set(parser: argparse.ArgumentParser, help: str) -> None:
    parser.add_argument(
        "--set",
        dest="changes",
        action="append",
        type=assignment,
        metavar="NAME=VALUE",
        help=f"{help}; the value is JSON, or else a text",
    )


# --- on several, or on all that match ------------------------------------------------


def on_several(session: Session, act: JobAct, *, within: str = "") -> None:
    """Act on the jobs named, or as a bulk operation on all that match.

    Args:
        within: a filter that all of them have to match besides.
    """
    options = session.options
    changes = getattr(options, "changes", None)
    if options.filter is not None:
        if options.ids or changes:
            raise UsageError("--filter goes without ids and without --set")
        start(session, act, f"{within} {options.filter}".strip())
        return
    if not options.ids:
        raise UsageError("name jobs by their ids, or give --filter")
    if changes:
        _replay_with(session, changes)
        return
    if act == "delete" and not session.is_dry:
        count = len(options.ids)
        session.confirm(f"delete {count} job{'s' if count > 1 else ''}")
    verb = "replayed" if session.is_dry and act == "replay" else _DONE[act]
    session.each(options.ids, _acting(session, act), verb=verb)


def _acting(session: Session, act: JobAct) -> Callable[[str], Document]:
    def run(text: str) -> Document:
        job_id = finding.job_id(session.transport, text)
        if session.is_dry:
            return _planned(session.transport.get_job(job_id), act)
        return session.transport.act(act, job_id)

    return run


def _planned(job: Document, act: JobAct) -> Document:
    return {"dry_run": True, "would": act, "id": job["id"], "state": job["state"]}


# --- one -----------------------------------------------------------------------------


def _replay_with(session: Session, changes: list[tuple[str, Any]]) -> None:
    if len(session.options.ids) != 1:
        raise UsageError("--set is for one job: name one id")
    job_id = finding.job_id(session.transport, session.options.ids[0])
    body = _arguments(session.transport.get_job(job_id), changes)
    if session.is_dry:
        session.would(f"replay job {job_id} with other arguments", id=job_id)
        return
    made = session.transport.replay(job_id, body)
    session.each([job_id], lambda _: made, verb=_DONE["replay"])


def _arguments(job: Document, changes: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return all arguments of a job, with some changed.

    Raises:
        UsageError: some that stay are not shown here; their masks are no values.
    """
    args, kwargs = deepcopy(job["args"]), deepcopy(job["kwargs"])
    if isinstance(args, list) and isinstance(kwargs, dict):
        merged(changes, args, kwargs)
    if _is_hidden(args) or _is_hidden(kwargs):
        raise UsageError(
            f"some arguments of job {job['id']} are not shown here, so the others "
            "cannot be changed one by one: set those too"
        )
    return {"args": args, "kwargs": kwargs}


def _is_hidden(value: Any) -> bool:
    """Tell whether something of it stands as a mask."""
    if isinstance(value, dict):
        return any(map(_is_hidden, value.values()))
    if isinstance(value, list):
        return any(map(_is_hidden, value))
    return value in _HIDDEN


def _run(session: Session) -> None:
    queue = session.options.queue_name

    def run(text: str) -> Document:
        job = session.transport.get_job(finding.job_id(session.transport, text))
        if job["queue"] != queue:
            raise MissingError(
                f"job {job['id']} is not in queue {queue!r}: it is in {job['queue']!r}"
            )
        has_ended = job["state"] in ("failed", "cancelled")
        act: JobAct = "retry" if has_ended else "run_now"
        if session.is_dry:
            return _planned(job, act)
        return session.transport.act(act, job["id"])

    session.each(session.options.ids, run, verb="made ready")


_READERS: Final[dict[str, Callable[[str], Any]]] = {
    "run_at": instant,
    "deadline": instant,
    "timeout": span,
}


def _edit(session: Session) -> None:
    changes = session.options.changes
    if not changes:
        raise UsageError("nothing is to be changed: give --set NAME=VALUE")
    job_id = finding.job_id(session.transport, session.options.ids[0])
    inside = [(name, value) for name, value in changes if "." in name]
    body = {name: _read(name, value) for name, value in changes if "." not in name}
    if inside:
        body |= _arguments(session.transport.get_job(job_id), inside)
    if session.is_dry:
        session.transport.get_job(job_id)
        session.would(f"change {', '.join(body)} of job {job_id}", id=job_id)
        return
    job = session.transport.edit(job_id, body)
    session.each([job_id], lambda _: job, verb="changed")


def _read(name: str, value: Any) -> Any:
    reader = _READERS.get(name)
    if value is None:
        return None
    if reader is not None:
        try:
            return reader(str(value))
        except argparse.ArgumentTypeError as error:
            raise UsageError(f"--set {name}: {error}") from None
    if name == "tags" and isinstance(value, str):
        return [tag for tag in value.split(",") if tag]
    return value
