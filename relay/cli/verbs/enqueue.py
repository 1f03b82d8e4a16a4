"""Enqueueing a job by its task's name."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from relay.cli import shown
from relay.cli.errors import CliError, NotAllowedError
from relay.cli.flags import call_flags, write_flags
from relay.cli.printer import Document, inert
from relay.cli.session import Session
from relay.cli.tree import Branch, Noun
from relay.cli.values import assignment, instant, span, whole
from relay.cli.verbs.waiting import check_ends, deadline, wait_for

__all__ = ["grow"]

# Flag -> name in the body that REST takes.
_PLAIN: Final[Mapping[str, str]] = {
    "queue": "queue",
    "priority": "priority",
    "max_retries": "max_retries",
    "job_timeout": "timeout",
    "at": "run_at",
    "delay": "delay",
    "deadline": "deadline",
    "tag": "tags",
}


def grow(root: Branch) -> None:
    """Add the verb."""
    parser = root.verb(
        "enqueue", _enqueue, "enqueue a job", write_flags(), call_flags()
    )
    parser.advise = _advice
    parser.add_argument("task", metavar="TASK", help="the task's name")
    _add_arguments(parser)
    _add_options(parser)
    waiting = parser.add_argument_group("waiting")
    waiting.add_argument(
        "--wait", action="store_true", help="until the job has ended; then show it"
    )
    waiting.add_argument(
        "--wait-timeout",
        type=span,
        metavar="SPAN",
        help="wait no longer (default: for ever)",
    )


def _advice(words: Sequence[str]) -> str:
    """Return how to give a task what stands behind its name."""
    values, names = [], []
    for word in words:
        name, equals, _ = word.partition("=")
        if equals and name.isidentifier():
            names.append(word)
        else:
            values.append(_value(word))
    said = [f"--args {shlex.quote(json.dumps(values, ensure_ascii=False))}"]
    said = [*(said if values else ()), *(f"--kwarg {shlex.quote(n)}" for n in names)]
    return f"the task's arguments are flags: {' '.join(said)}"


def _value(text: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _add_arguments(parser: Noun) -> None:
    parser.add_argument(
        "--kwarg",
        dest="pairs",
        action="append",
        type=assignment,
        metavar="NAME=VALUE",
        help="one by name: JSON, or else a text; also several times",
    )


def _add_options(parser: Noun) -> None:
    group = parser.add_argument_group("options of the job")
    group.add_argument(
        "--max-retries",
        type=whole(0, 2_000_000_000),
        metavar="N",
        help="how often it may run again after it raised",
    )
    group.add_argument(
        "--timeout",
        dest="job_timeout",
        type=span,
        metavar="SPAN",
        help="how long one attempt may run",
    )
    due = group.add_mutually_exclusive_group()
    due.add_argument("--delay", type=span, metavar="SPAN", help="start no earlier")
    due.add_argument(
        "--at", type=instant, metavar="TIME", help="the same as an instant"
    )
    group.add_argument(
        "--deadline", type=instant, metavar="TIME", help="start no attempt later"
    )
    group.add_argument(
        "--tag", action="append", metavar="TEXT", help="also several times"
    )
    group.add_argument(
        "--unique-for",
        type=span,
        metavar="SPAN",
        help="for so long there is no other such job",
    )
    group.add_argument(
        "--unique-key", metavar="TEXT", help="counts instead of the arguments"
    )


def _body(session: Session) -> dict[str, Any]:
    options = session.options
    body: dict[str, Any] = {
        "task": options.task,
        "args": options.task_args or [],
        "kwargs": {**(options.kwargs or {}), **dict(options.pairs or ())},
    }
    for flag, name in _PLAIN.items():
        if (value := getattr(options, flag)) is not None:
            body[name] = value
    unique = {"for": options.unique_for, "key": options.unique_key}
    if any(value is not None for value in unique.values()):
        body["unique"] = {k: v for k, v in unique.items() if v is not None}
    return body


def _enqueue(session: Session) -> None:
    body = _body(session)
    if session.is_dry:
        with suppress(NotAllowedError):  # who may only enqueue
            session.transport.get_task(body["task"])
        session.would(f"enqueue {json.dumps(body)}", body=body)
        return
    made = session.transport.enqueue(body)
    if session.options.wait:
        _wait(session, made)
        return
    session.show(
        made,
        lambda doc: session.printer.line(inert(f"{_told(doc)} (is {doc['state']})")),
        ids=[made["id"]],
    )


def _told(made: Document) -> str:
    if made["duplicate"]:
        return f"nothing was enqueued: {made['id']} holds the unique key"
    return f"enqueued {made['id']}"


def _wait(session: Session, made: Document) -> None:
    ends_at = deadline(session.options.wait_timeout)
    try:
        job = wait_for(session, made["id"], ends_at)
    except (CliError, KeyboardInterrupt):  # it is there, whatever ended the wait
        session.say(_told(made))
        raise
    if made["duplicate"]:
        session.say(_told(made))
    session.show(
        {**job, "duplicate": made["duplicate"]},
        lambda doc: shown.draw_job(session.printer, doc),
        ids=[job["id"]],
    )
    check_ends([job])
