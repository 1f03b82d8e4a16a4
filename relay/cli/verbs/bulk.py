"""Acts on all jobs that match: started, followed, listed and cancelled."""

from __future__ import annotations

import time
from typing import Final

from relay.cli import figures, finding, flags, shown
from relay.cli.errors import JobEndedBadly, PartlyDone, WaitTimedOut
from relay.cli.printer import Document
from relay.cli.progress import Progress
from relay.cli.session import Session
from relay.cli.transport import JobAct
from relay.cli.tree import Branch
from relay.cli.verbs.waiting import deadline

__all__ = ["follow", "grow", "start"]

_ENDED: Final = frozenset({"completed", "cancelled", "failed"})
_LOOK_SECONDS: Final = 0.5
_WORDS: Final[dict[JobAct, str]] = {"run_now": "run now"}


def grow(root: Branch) -> None:
    """Add the noun bulk."""
    bulk = root.noun("bulk", "list, show and cancel acts over all jobs that match")
    bulk.verb("ls", _list, "list bulk operations", flags.watch_flags())
    bulk.verb("show", _show, "show one bulk operation", flags.ids(nargs=1))
    bulk.verb(
        "cancel",
        _cancel,
        "let a bulk operation go no further",
        flags.ids(),
        flags.write_flags(),
    )


def _list(session: Session) -> None:
    options = session.options
    session.watch(
        options.interval if options.watch else None,
        lambda: session.show_list(
            session.transport.list_bulk(), shown.BULK, none="no bulk operation"
        ),
    )


def _find(session: Session, text: str) -> Document:
    if (whole := finding.whole_id(text)) is not None:  # also an old one
        return session.transport.get_bulk(whole)
    return finding.one_of(
        session.transport.list_bulk()["results"], text, "bulk operation"
    )


def _show(session: Session) -> None:
    bulk = _find(session, session.options.ids[0])
    session.show(
        bulk, lambda doc: shown.draw_bulk(session.printer, doc), ids=[bulk["id"]]
    )


def _cancel(session: Session) -> None:
    def cancel(text: str) -> Document:
        found = _find(session, text)
        if session.is_dry:
            return {**found, "dry_run": True}
        return session.transport.cancel_bulk(found["id"])

    session.each(session.options.ids, cancel, verb="asked to stop")


def start(session: Session, act: JobAct, filter: str) -> None:
    """Act on all jobs that match, once it is sure that it is meant."""
    word = _WORDS.get(act, act)
    matched = session.transport.count_bulk(act, filter)
    text = f"{word} {figures.meant(matched)}"
    if session.is_dry:
        session.would(text, action=act, filter=filter, **matched)
        return
    session.confirm(text)
    # What is counted no further bounds nothing; those that are there now do then.
    expected = None if matched["capped"] else int(matched["count"])
    follow(session, session.transport.start_bulk(act, filter, expected=expected))


def follow(session: Session, bulk: Document) -> None:
    """Show a bulk operation; with --wait until it is through.

    Raises:
        JobEndedBadly: it failed, or was cancelled.
        PartlyDone: it left some jobs as they were.
        WaitTimedOut: it goes on after --timeout.
    """
    is_awaited = session.option("wait", False)
    if is_awaited:
        bulk = _ended(session, bulk)
    session.show(
        bulk, lambda doc: shown.draw_bulk(session.printer, doc), ids=[bulk["id"]]
    )
    if not is_awaited:
        return
    if bulk["state"] not in _ENDED:
        raise WaitTimedOut(
            f"bulk operation {bulk['id']} is {bulk['state']}; it goes on"
        )
    if bulk["state"] != "completed":
        raise JobEndedBadly(
            f"bulk operation {bulk['id']} {bulk['state']}: {bulk['error'] or ''}"
        )
    left = sum(bulk["skipped"].values()) + bulk["failed"]
    if left:
        raise PartlyDone(f"{left:,} of {bulk['matched']:,} jobs were left as they were")


def _ended(session: Session, bulk: Document) -> Document:
    ends_at = deadline(session.option("timeout"))
    with Progress(session.notes) as progress:
        while bulk["state"] not in _ENDED and time.monotonic() < ends_at:
            progress.show(bulk["matched"], bulk["expected"])
            time.sleep(_LOOK_SECONDS)
            bulk = session.transport.get_bulk(bulk["id"])
    return bulk
