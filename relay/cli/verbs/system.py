"""The system as a whole: stats, tasks, doctor, mark, audit, whoami, prune, version."""

from __future__ import annotations

import platform

from relay.cli import figures, flags, shown
from relay.cli.errors import UnhealthyError, UsageError
from relay.cli.paging import show_pages
from relay.cli.printer import Document
from relay.cli.session import Session
from relay.cli.tree import Branch
from relay.cli.values import filled, span
from relay.cli.verbs.bulk import start
from relay.cli.versions import installed_version

__all__ = ["grow"]


def grow(root: Branch) -> None:
    """Add the verbs."""
    root.verb(
        "stats",
        _stats,
        "show queues, workers and rates",
        flags.watch_flags(),
    )
    tasks = root.noun("tasks", "list and show the tasks that may be enqueued")
    tasks.verb("ls", _tasks, "list tasks")
    tasks.verb("show", _task, "show one task", flags.name_of("task"))
    root.verb(
        "doctor",
        _doctor,
        "check settings, tables, indexes, migrations and schedules",
        details="Run the system checks. The exit code is 9 if one finds an error or a "
        "warning.",
    )
    _add_prune(root)
    _add_mark(root)
    _add_audit(root)
    root.verb("whoami", _whoami, "show as whom relay knows you, and what you may do")
    root.verb("version", _version, "show the versions of relay and of what it runs on")


def _add_prune(root: Branch) -> None:
    prune = root.verb(
        "prune",
        _prune,
        "delete old jobs, whatever their retention",
        flags.sure_flags(),
        flags.wait_flags(),
    )
    prune.add_argument(
        "--older-than",
        type=span,
        required=True,
        metavar="SPAN",
        help="how long ago they ended",
    )
    prune.add_argument(
        "--state",
        action="append",
        choices=("completed", "failed", "cancelled"),
        help="of jobs that ended so (default: all three)",
    )
    prune.add_argument("--wait", action="store_true", help="until it is through")


def _add_mark(root: Branch) -> None:
    mark = root.verb(
        "mark",
        _mark,
        "mark this moment on the charts, such as a deploy",
        flags.write_flags(),
    )
    mark.add_argument(
        "label", type=filled, metavar="LABEL", help='what it was, such as "deploy 1.4"'
    )


def _add_audit(root: Branch) -> None:
    audit = root.verb(
        "audit", _audit, "list who did what, the latest first", flags.list_flags()
    )
    audit.add_argument(
        "--subject",
        choices=("job", "queue", "worker", "schedule", "bulk", "token", "mark"),
        help="what they did it to",
    )
    audit.add_argument(
        "--target", metavar="ID", help="its id or name; only with --subject"
    )


# --- stats and tasks -----------------------------------------------------------------


def _stats(session: Session) -> None:
    options = session.options

    def draw() -> None:
        stats = session.transport.get_stats()
        session.show(stats, lambda doc: draw_stats(session, doc))

    session.watch(options.interval if options.watch else None, draw)


def draw_stats(session: Session, stats: Document) -> None:
    """Write the figures for people."""
    printer = session.printer
    pairs: list[tuple[str, object]] = [
        (name, figures.count(each)) for name, each in stats["jobs"].items()
    ]
    pairs += [(f"workers {name}", each) for name, each in stats["workers"].items()]
    for name in ("last_hour", "last_day"):
        totals = stats[name]
        said = ", ".join(
            f"{totals[each]:,} {each}" for each in ("completed", "failed", "cancelled")
        )
        for each in ("wait", "run"):
            if totals[each]["p95"] is not None:
                said += f", {each} p95 {figures.length(totals[each]['p95'])}"
        pairs.append((name.replace("_", " "), said))
    printer.fields(pairs)
    if stats["queues"]:
        printer.line()
        printer.table(shown.QUEUES, stats["queues"])


def _tasks(session: Session) -> None:
    session.show_list(
        session.transport.list_tasks(),
        shown.TASKS,
        id_name="name",
        none="no task is registered",
    )


def _task(session: Session) -> None:
    task = session.transport.get_task(session.options.name)
    session.show(
        task, lambda doc: shown.draw_pairs(session.printer, doc), ids=[task["name"]]
    )


def _doctor(session: Session) -> None:
    system = session.transport.get_system()
    checks = system["checks"]
    session.show(
        system,
        lambda doc: shown.draw_system(session.printer, doc),
        ids=[each["id"] for each in checks],
    )
    if checks:
        raise UnhealthyError(
            f"{len(checks)} check{'s' if len(checks) > 1 else ''} found something"
        )


def _mark(session: Session) -> None:
    label = session.options.label
    if session.is_dry:
        session.would(f"mark this moment on the charts: {label}", label=label)
        return
    made = session.transport.mark(label)
    session.show(
        made,
        lambda doc: session.say(f"marked {doc['at']}: {doc['label']}"),
        ids=[made["at"]],
    )


# --- who did what --------------------------------------------------------------------


def _audit(session: Session) -> None:
    options = session.options

    def fetch(limit: int, cursor: str | None) -> Document:
        return session.transport.list_audit(
            subject=options.subject, target=options.target, limit=limit, cursor=cursor
        )

    show_pages(session, fetch, shown.AUDIT, none="nothing is on record")


def _whoami(session: Session) -> None:
    who = session.transport.get_whoami()
    session.show(
        who, lambda doc: shown.draw_pairs(session.printer, doc), ids=[who["name"]]
    )


# --- the rest ------------------------------------------------------------------------


def _prune(session: Session) -> None:
    options = session.options
    states = ",".join(options.state or ("completed", "failed", "cancelled"))
    start(
        session,
        "delete",
        f"state:{states} finished:>{round(options.older_than)}s",
    )


def _version(session: Session) -> None:
    try:
        document = session.transport.get_version()
    except UsageError:  # nobody to talk to: what is installed here
        document = {
            "version": installed_version(),
            "python": platform.python_version(),
        }
    session.show(
        document,
        lambda doc: shown.draw_pairs(session.printer, doc),
        ids=[document["version"]],
    )
