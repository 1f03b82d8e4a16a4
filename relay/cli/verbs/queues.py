"""Queues: listed, shown, paused, resumed, changed, purged."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from relay.cli import figures, flags, shown
from relay.cli.errors import UsageError
from relay.cli.printer import Document
from relay.cli.session import Session
from relay.cli.tree import Branch
from relay.cli.values import filled, instant, span
from relay.cli.verbs.bulk import follow

__all__ = ["grow"]


def grow(root: Branch) -> None:
    """Add the noun queues, and its verbs that stand alone too."""
    queues = root.noun("queues", "list, show, pause, resume, change and purge queues")
    queues.verb("ls", _list, "list queues", flags.watch_flags())
    queues.verb("show", _show, "show one queue", flags.name_of("queue"))
    for branch in (queues, root):
        _add_pause(branch)
    _add_set(queues)
    purge = queues.verb(
        "purge",
        _purge,
        "delete all jobs that wait in a queue",
        flags.name_of("queue"),
        flags.sure_flags(),
        flags.wait_flags(),
    )
    purge.add_argument(
        "--wait", action="store_true", help="until it is through, with its progress"
    )


def _add_pause(branch: Branch) -> None:
    pause = branch.verb(
        "pause", _pause, "start no more jobs of queues", _names(), flags.write_flags()
    )
    until = pause.add_mutually_exclusive_group()
    until.add_argument(
        "--for",
        dest="span",
        type=span,
        metavar="SPAN",
        help="how long (default: until they are resumed)",
    )
    until.add_argument(
        "--until", type=instant, metavar="TIME", help="the same as an instant"
    )
    branch.verb(
        "resume",
        _resume,
        "let jobs of queues start again",
        _names(),
        flags.write_flags(),
    )


def _add_set(queues: Branch) -> None:
    change = queues.verb(
        "set", _set, "change a queue", flags.name_of("queue"), flags.write_flags()
    )
    change.add_argument(
        "--order", choices=("priority", "fifo"), help="by priority, or as they come"
    )
    change.add_argument(
        "--weight",
        type=int,
        metavar="N",
        help="how often workers that start without -q claim from it first (1 to 1,000)",
    )


def _names() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument(
        "ids", nargs="+", type=filled, metavar="QUEUE", help="the queues' names"
    )
    return parser


def _list(session: Session) -> None:
    options = session.options
    session.watch(
        options.interval if options.watch else None,
        lambda: session.show_list(
            session.transport.list_queues(),
            shown.QUEUES,
            id_name="name",
            none="no queue is known",
        ),
    )


def _show(session: Session) -> None:
    queue = session.transport.get_queue(session.options.name)
    session.show(
        queue, lambda doc: shown.draw_pairs(session.printer, doc), ids=[queue["name"]]
    )


def _pause(session: Session) -> None:
    until = session.options.until
    if session.options.span is not None:
        moment = datetime.now(UTC) + timedelta(seconds=session.options.span)
        until = moment.isoformat().replace("+00:00", "Z")

    def pause(name: str) -> Document:
        return session.transport.pause_queue(name, until=until)

    _each(session, pause, "paused")


def _resume(session: Session) -> None:
    _each(session, session.transport.resume_queue, "resumed")


def _each(session: Session, act: Callable[[str], Document], verb: str) -> None:
    def run(name: str) -> Document:
        if session.is_dry:
            return {**session.transport.get_queue(name), "dry_run": True}
        return act(name)

    session.each(session.options.ids, run, verb=verb, id_name="name")


def _set(session: Session) -> None:
    name, given = session.options.name, session.options
    asked = {"policy": given.order, "weight": given.weight}
    body = {field: value for field, value in asked.items() if value is not None}
    if not body:
        raise UsageError("give --order or --weight")
    if session.is_dry:
        session.transport.get_queue(name)
        said = ", ".join(f"{field} {value}" for field, value in body.items())
        session.would(f"change queue {name}: {said}", name=name, **body)
        return
    queue = session.transport.change_queue(name, body)
    session.each([name], lambda _: queue, verb="changed", id_name="name")


def _purge(session: Session) -> None:
    name = session.options.name
    waiting = session.transport.count_bulk(
        "delete", f"queue:{name} state:scheduled,retrying,queued"
    )
    text = f"delete {figures.meant(waiting)} waiting in queue {name}"
    if session.is_dry:
        session.would(text, name=name, **waiting)
        return
    session.confirm(text)
    expected = None if waiting["capped"] else int(waiting["count"])
    follow(session, session.transport.purge_queue(name, expected=expected))
