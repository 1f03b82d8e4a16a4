"""Workers: listed, shown, quieted, resumed, stopped, deleted."""

from __future__ import annotations

from functools import partial
from typing import Final

from relay.cli import finding, flags, shown
from relay.cli.printer import Document
from relay.cli.session import Session
from relay.cli.transport import WorkerAct
from relay.cli.tree import Branch

__all__ = ["grow"]

_ACTS: Final[dict[WorkerAct, tuple[str, str]]] = {
    "quiet": ("have workers claim nothing more", "asked to be quiet:"),
    "resume": ("let quiet workers claim again", "asked to go on:"),
    "stop": ("have workers drain and end", "asked to stop:"),
}


def grow(root: Branch) -> None:
    """Add the noun workers."""
    workers = root.noun("workers", "list, show, quiet, resume, stop and delete workers")
    workers.verb("ls", _list, "list workers", flags.watch_flags())
    workers.verb("show", _show, "show one worker", flags.ids(nargs=1))
    for act, (help, _) in _ACTS.items():
        workers.verb(
            act,
            partial(_ask, act=act),
            help,
            flags.ids(),
            flags.sure_flags() if act == "stop" else flags.write_flags(),
        )
    workers.verb(
        "rm",
        _delete,
        "delete workers that have stopped or are lost",
        flags.ids(),
        flags.sure_flags(),
    )


def _list(session: Session) -> None:
    options = session.options
    session.watch(
        options.interval if options.watch else None,
        lambda: session.show_list(
            session.transport.list_workers(), shown.WORKERS, none="no worker"
        ),
    )


def _find(session: Session, text: str) -> Document:
    return finding.one_of(session.transport.list_workers()["results"], text, "worker")


def _show(session: Session) -> None:
    found = _find(session, session.options.ids[0])
    worker = session.transport.get_worker(found["id"])
    session.show(
        worker, lambda doc: shown.draw_pairs(session.printer, doc), ids=[worker["id"]]
    )


def _ask(session: Session, act: WorkerAct) -> None:
    ids = session.options.ids
    if act == "stop" and not session.is_dry:
        session.confirm(f"stop {len(ids)} worker{'s' if len(ids) > 1 else ''}")

    def ask(text: str) -> Document:
        found = _find(session, text)
        if session.is_dry:
            return {**found, "dry_run": True}
        return session.transport.ask_worker(act, found["id"])

    session.each(ids, ask, verb=_ACTS[act][1])


def _delete(session: Session) -> None:
    ids = session.options.ids
    if not session.is_dry:
        session.confirm(f"delete {len(ids)} worker{'s' if len(ids) > 1 else ''}")

    def delete(text: str) -> Document:
        found = _find(session, text)
        if session.is_dry:
            return {**found, "dry_run": True}
        return session.transport.delete_worker(found["id"])

    session.each(ids, delete, verb="deleted")
