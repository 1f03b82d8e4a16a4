"""The system as a whole: stats, tasks, health, doctor, prune, version."""

from __future__ import annotations

import json
import platform
import time
from typing import Final
from urllib.error import HTTPError, URLError
from urllib.request import ProxyHandler, build_opener

from relay.cli import flags, shown
from relay.cli.errors import (
    UnhealthyError,
    UnreachableError,
    UsageError,
)
from relay.cli.printer import Document
from relay.cli.session import Session
from relay.cli.tree import Branch
from relay.cli.values import span
from relay.cli.verbs.bulk import start
from relay.cli.versions import installed_version

__all__ = ["grow"]

# For an answer; and a worker writes its file every second.
_PROBE_SECONDS: Final = 5.0


def grow(root: Branch) -> None:
    """Add the verbs."""
    root.verb("stats", _stats, "show queues, workers and rates", flags.watch_flags())
    tasks = root.noun("tasks", "list and show the tasks that may be enqueued")
    tasks.verb("ls", _tasks, "list tasks")
    tasks.verb("show", _task, "show one task", flags.name_of("task"))
    _grow_health(root)
    root.verb(
        "doctor",
        _doctor,
        "check settings, tables, indexes, migrations and schedules",
        details="Run the system checks. The exit code is 9 if one finds an error or a "
        "warning.",
    )
    prune = root.verb(
        "prune",
        _prune,
        "delete old jobs, whatever their retention",
        flags.sure_flags(),
        flags.wait_flags(),
    )
    prune.add_argument("--older-than", type=span, required=True, metavar="SPAN")
    prune.add_argument(
        "--state",
        action="append",
        choices=("completed", "failed", "cancelled"),
        help="of jobs that ended so (default: all three)",
    )
    prune.add_argument("--wait", action="store_true", help="until it is through")
    root.verb("version", _version, "show the versions of relay and of what it runs on")


# --- stats and tasks -----------------------------------------------------------------


def _stats(session: Session) -> None:
    options = session.options

    def draw() -> None:
        session.show(
            session.transport.get_stats(), lambda doc: draw_stats(session, doc)
        )

    session.watch(options.interval if options.watch else None, draw)


def draw_stats(session: Session, stats: Document) -> None:
    """Write the figures for people."""
    printer = session.printer
    printer.fields((name, shown.count(each)) for name, each in stats["jobs"].items())
    printer.line()
    shown.draw_pairs(printer, {f"workers {k}": v for k, v in stats["workers"].items()})
    for name in ("last_hour", "last_day"):
        totals = stats[name]
        said = ", ".join(
            f"{totals[each]:,} {each}" for each in ("completed", "failed", "cancelled")
        )
        printer.fields([(name.replace("_", " "), said)])
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


# --- health --------------------------------------------------------------------------


def _grow_health(root: Branch) -> None:
    health = root.verb(
        "health",
        _health,
        "tell whether relay, or one worker, is well",
        details="Tell whether the database answers and fits, or with --probe-port or "
        "--probe-file what a worker says of itself. The exit code is 9 if not.",
    )
    where = health.add_mutually_exclusive_group()
    where.add_argument(
        "--probe-port",
        metavar="[HOST:]PORT",
        help="ask the worker that answers probes there",
    )
    where.add_argument(
        "--probe-file", metavar="PATH", help="read the file that a worker writes"
    )
    health.add_argument(
        "--live",
        action="store_true",
        help="of a worker: whether it has to be restarted, not whether it is ready",
    )


def _health(session: Session) -> None:
    options = session.options
    if options.probe_port or options.probe_file:
        document = _probed(options.probe_port, options.probe_file)
        is_well = bool(document["live" if options.live else "ready"])
        reasons = document["reasons"]
        silent_for = time.time() - document["at"]
        if options.probe_file and silent_for > _PROBE_SECONDS:
            is_well, reasons = False, [f"it is silent for {silent_for:.0f} s"]
    else:
        document = session.transport.get_health()
        is_well, reasons = document["status"] == "ok", document["reasons"]
    session.show(
        document, lambda _: session.printer.line("ok" if is_well else "not well")
    )
    if not is_well:
        raise UnhealthyError("; ".join(map(str, reasons)) or "it is not well")


def _probed(port: str | None, file: str | None) -> Document:
    """Return what a worker says of itself: by the standard library alone."""
    try:
        if file is not None:
            with open(file, "rb") as read:
                text = read.read()
        else:
            host, _, number = str(port).rpartition(":")
            url = f"http://{host or '127.0.0.1'}:{number}/statusz"
            # It is on this machine, or near: no proxy is asked.
            opener = build_opener(ProxyHandler({}))
            with opener.open(url, timeout=_PROBE_SECONDS) as answer:
                text = answer.read()
        document: Document = json.loads(text)
    except (HTTPError, URLError, OSError, ValueError) as error:
        raise UnreachableError(
            f"no worker answers at {file or port}: {error}"
        ) from None
    return document


def _doctor(session: Session) -> None:
    system = session.transport.get_system()
    checks = system["checks"]

    def draw(document: Document) -> None:
        printer = session.printer
        for name in ("version", "python", "django", "postgresql", "database"):
            printer.fields([(name, document[name])])
        printer.line()
        if checks:
            printer.table(shown.CHECKS, checks)
        else:
            printer.line("nothing is wrong")

    session.show(system, draw, ids=[each["id"] for each in checks])
    if checks:
        raise UnhealthyError(f"{len(checks)} checks found something")


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
