"""Looking at jobs: jobs, job, ls, count, history, why."""

from __future__ import annotations

from relay.cli import figures, finding, flags, shown
from relay.cli.paging import Fetch, show_pages
from relay.cli.printer import Document, inert
from relay.cli.session import Session
from relay.cli.transport import FINAL
from relay.cli.tree import Branch
from relay.cli.values import filter_text

__all__ = ["fetching", "filter_of", "grow", "show_job", "show_jobs"]


def grow(root: Branch, jobs: Branch) -> None:
    """Add the verbs, to the root and to the noun jobs."""
    which, listed = flags.filter_flags(), flags.list_flags()
    watched = flags.watch_flags()
    followed = flags.watch_flags("--follow", until="until it has ended, or Ctrl-C")
    jobs.verb("ls", _list, "list jobs", which, listed, flags.order_flags(), watched)
    for branch, name in ((jobs, "show"), (root, "job")):
        parser = branch.verb(
            name, show_job, "show one job", flags.ids(nargs=1), followed
        )
        parser.add_argument(
            "--logs", action="store_true", help="with what its attempts have logged"
        )
    listing = root.verb(
        "ls",
        _list_queue,
        "list the jobs of a queue by state",
        listed,
        flags.order_flags(),
        watched,
    )
    listing.add_argument(
        "queue_name", metavar="QUEUE", nargs="?", help="its name (default: all)"
    )
    listing.add_argument(
        "states", metavar="STATE", nargs="*", help="some states (default: all)"
    )
    for branch in (jobs, root):
        branch.verb("count", _count, "count jobs, up to 10,000", which)
    root.verb("history", _history, "show what happened to a job", flags.ids(nargs=1))
    root.verb("why", _why, "tell why a job does not run", flags.ids(nargs=1))


# --- lists ---------------------------------------------------------------------------


def filter_of(session: Session, *words: str) -> str:
    """Return the filter that words and flags say."""
    options = session.options
    return filter_text(
        [*words, *options.filter],
        state=options.state,
        queue=options.queue,
        task=options.task,
    )


def _list(session: Session) -> None:
    show_jobs(session, filter_of(session))


def _list_queue(session: Session) -> None:
    queue = session.options.queue_name
    states = session.options.states
    show_jobs(session, filter_text((), queue=[queue] if queue else (), state=states))


def fetching(session: Session, filter: str) -> Fetch:
    """Return what fetches a page of the jobs that match."""
    order = session.option("order")
    return lambda limit, cursor: session.transport.list_jobs(
        filter, limit=limit, cursor=cursor, order=order
    )


def show_jobs(session: Session, filter: str) -> None:
    """Write the jobs that match, once or again and again."""
    options = session.options
    fetch = fetching(session, filter)
    session.watch(
        options.interval if options.watch else None,
        lambda: show_pages(session, fetch, shown.JOBS, none="no job matches"),
    )


def _count(session: Session) -> None:
    document = session.transport.count_jobs(filter_of(session))
    text = figures.count(document)
    session.show(document, lambda _: session.printer.line(text), ids=[text])


# --- one job -------------------------------------------------------------------------


def _job_id(session: Session) -> str:
    return finding.job_id(session.transport, session.options.ids[0])


def show_job(session: Session) -> None:
    """Write one job, with its attempts, once or again and again until it has ended."""
    options = session.options
    include = ["attempts", *(["logs"] if options.logs else [])]
    job_id = _job_id(session)

    def draw() -> bool:
        job = session.transport.get_job(job_id, include=include)
        session.show(
            job, lambda doc: shown.draw_job(session.printer, doc), ids=[job["id"]]
        )
        return job["state"] in FINAL

    session.watch(options.interval if options.watch else None, draw)


def _history(session: Session) -> None:
    events = session.transport.list_history(_job_id(session))
    session.show_list(events, shown.HISTORY, id_name="event")


def _why(session: Session) -> None:
    cause = session.transport.why(_job_id(session))

    def draw(document: Document) -> None:
        session.printer.line(inert(document["summary"]))
        if document["remedy"]:
            session.printer.line(inert(document["remedy"]))

    session.show(cause, draw, ids=[cause["cause"]])
