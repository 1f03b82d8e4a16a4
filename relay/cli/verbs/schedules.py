"""Schedules: listed, shown, previewed, added, changed, run, removed."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from typing import Any, Final

from relay.cli import flags, shown
from relay.cli.errors import UsageError
from relay.cli.printer import Document
from relay.cli.session import Session
from relay.cli.tree import Branch
from relay.cli.values import filled, instant, span, whole

__all__ = ["grow"]

# Flag -> name in the body that REST takes.
_FIELDS: Final[Mapping[str, str]] = {
    "task": "task",
    "task_args": "args",
    "kwargs": "kwargs",
    "queue": "queue",
    "priority": "priority",
    "cron": "cron",
    "every": "every",
    "at": "once_at",
    "timezone": "timezone",
    "starts": "starts_at",
    "ends": "ends_at",
    "excluded": "excluded",
    "spread": "spread",
    "catch_up": "catch_up",
    "catch_up_window": "catch_up_window",
    "overlap": "overlap",
    "success_within": "success_within",
}
_WHEN: Final = frozenset({"cron", "every", "once_at"})
_SHOWN: Final = [
    "name",
    "task",
    "args",
    "kwargs",
    "when",
    "words",
    "timezone",
    "queue",
    "priority",
    "enabled",
    "source",
    "starts_at",
    "ends_at",
    "excluded",
    "spread",
    "catch_up",
    "catch_up_window",
    "overlap",
    "success_within",
    "next_due_at",
    "last_due_at",
    "last_success_at",
    "error",
]


def grow(root: Branch) -> None:
    """Add the noun schedules."""
    schedules = root.noun(
        "schedules", "list, show, preview, add, change, run and remove schedules"
    )
    named, writes = flags.name_of("schedule"), flags.write_flags()
    schedules.verb("ls", _list, "list schedules", flags.watch_flags())
    schedules.verb("show", _show, "show one schedule", named)
    for name, run, help in (
        ("next", _next, "show when a schedule is due next"),
        ("preview", _preview, "show when a schedule would be due, and add none"),
    ):
        parser = schedules.verb(name, run, help, *([named] if name == "next" else []))
        parser.add_argument(
            "-n",
            "--count",
            type=whole(1, 100),
            default=5,
            metavar="N",
            help="how many times (default: 5)",
        )
        if name == "preview":
            parser.add_argument("cron", metavar="CRON", help="an expression")
            parser.add_argument(
                "--tz", default="UTC", metavar="ZONE", help="(default: UTC)"
            )
    add = schedules.verb(
        "add", _add, "add a schedule", named, writes, flags.call_flags()
    )
    _add_fields(add, is_new=True)
    edit = schedules.verb(
        "edit", _edit, "change a schedule", named, writes, flags.call_flags()
    )
    _add_fields(edit, is_new=False)
    schedules.verb("pause", _pause, "let schedules be due no more", _names(), writes)
    schedules.verb("resume", _resume, "let schedules be due again", _names(), writes)
    schedules.verb("trigger", _trigger, "enqueue a schedule's job now", named, writes)
    schedules.verb("rm", _remove, "remove schedules", _names(), flags.sure_flags())


def _names() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument(
        "ids", nargs="+", type=filled, metavar="SCHEDULE", help="their names"
    )
    return parser


def _add_fields(parser: argparse.ArgumentParser, *, is_new: bool) -> None:
    parser.add_argument(
        "--task", required=is_new, metavar="TASK", help="the task's name"
    )
    when = parser.add_mutually_exclusive_group(required=is_new)
    when.add_argument(
        "--cron", metavar="EXPRESSION", help="five fields, or six with seconds"
    )
    when.add_argument(
        "--every", type=span, metavar="SPAN", help="again and again after so long"
    )
    when.add_argument("--at", type=instant, metavar="TIME", help="once")
    parser.add_argument("--timezone", "--tz", metavar="ZONE", help="of the expression")
    _add_limits(parser)
    _add_misses(parser)


def _add_limits(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--starts", type=instant, metavar="TIME", help="not before")
    parser.add_argument("--ends", type=instant, metavar="TIME", help="not after")
    parser.add_argument(
        "--excluded",
        action="append",
        metavar="DAYS",
        help="left out: 2026-12-25, 2026-12-24/2027-01-06, or an expression; also "
        "several times",
    )
    parser.add_argument(
        "--spread", type=span, metavar="SPAN", help="start up to so long after"
    )


def _add_misses(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--catch-up",
        choices=("none", "latest", "all"),
        help="which missed times are made up for",
    )
    parser.add_argument(
        "--catch-up-window",
        type=span,
        metavar="SPAN",
        help="none that is longer past is made up for",
    )
    parser.add_argument(
        "--overlap",
        choices=("allow", "skip", "queue", "cancel"),
        help="what to do while the job before has not ended",
    )
    parser.add_argument(
        "--success-within",
        type=span,
        metavar="SPAN",
        help="without a success for longer it is reported",
    )


def _body(session: Session) -> dict[str, Any]:
    values = ((name, getattr(session.options, flag)) for flag, name in _FIELDS.items())
    body = {name: value for name, value in values if value is not None}
    if "excluded" in body:
        body["excluded"] = "\n".join(body["excluded"])
    return body


# --- looking -------------------------------------------------------------------------


def _list(session: Session) -> None:
    options = session.options
    session.watch(
        options.interval if options.watch else None,
        lambda: session.show_list(
            session.transport.list_schedules(),
            shown.SCHEDULES,
            id_name="name",
            none="no schedule",
        ),
    )


def _show(session: Session) -> None:
    schedule = session.transport.get_schedule(session.options.name)

    def draw(found: Document) -> None:
        is_said = found["words"] == found["when"]
        names = [each for each in _SHOWN if not (is_said and each == "words")]
        shown.draw_pairs(session.printer, found, names)
        if found["next"]:
            session.printer.line()
            session.printer.table(shown.FIRES, found["next"])
        if found["occurrences"]:
            session.printer.line()
            session.printer.table(shown.OCCURRENCES, found["occurrences"])

    session.show(schedule, draw, ids=[schedule["name"]])


def _next(session: Session) -> None:
    options = session.options
    fires = session.transport.next_fires(options.name, options.count)
    session.show_list(fires, shown.FIRES, id_name="planned_at", none="never again")


def _preview(session: Session) -> None:
    options = session.options
    body = {"cron": options.cron, "timezone": options.tz, "n": options.count}
    fires = session.transport.preview(body)
    session.show_list(fires, shown.FIRES, id_name="planned_at", none="never")


# --- changing ------------------------------------------------------------------------


def _add(session: Session) -> None:
    body = {"name": session.options.name, **_body(session)}
    if session.is_dry:
        _check(session, body)
        session.would(f"add schedule {session.options.name}", body=body)
        return
    schedule = session.transport.create_schedule(body)
    session.each([schedule["name"]], lambda _: schedule, verb="added", id_name="name")


def _check(session: Session, body: Mapping[str, Any]) -> None:
    """Refuse a task or an expression that there is not, without changing anything."""
    if "task" in body:
        session.transport.get_task(body["task"])
    if "cron" in body:
        timezone = body.get("timezone", "UTC")
        session.transport.preview({"cron": body["cron"], "timezone": timezone, "n": 1})


def _edit(session: Session) -> None:
    name, body = session.options.name, _body(session)
    if not body:
        raise UsageError("nothing is to be changed: give a flag such as --cron")
    if session.is_dry:
        session.transport.get_schedule(name)
        _check(session, body)
        session.would(f"change {', '.join(body)} of schedule {name}", body=body)
        return
    if _WHEN & body.keys():  # in place of what it was due by
        body = {**dict.fromkeys(_WHEN), **body}
    schedule = session.transport.edit_schedule(name, body)
    session.each([name], lambda _: schedule, verb="changed", id_name="name")


def _pause(session: Session) -> None:
    _each(session, session.transport.pause_schedule, "paused")


def _resume(session: Session) -> None:
    _each(session, session.transport.resume_schedule, "resumed")


def _each(session: Session, act: Callable[[str], Document], verb: str) -> None:
    def run(name: str) -> Document:
        if session.is_dry:
            return {**session.transport.get_schedule(name), "dry_run": True}
        return act(name)

    session.each(session.options.ids, run, verb=verb, id_name="name")


def _trigger(session: Session) -> None:
    name = session.options.name
    if session.is_dry:
        session.transport.get_schedule(name)
        session.would(f"enqueue the job of schedule {name}", name=name)
        return
    job = session.transport.trigger_schedule(name)
    session.each([name], lambda _: job, verb="enqueued")


def _remove(session: Session) -> None:
    ids = session.options.ids
    if not session.is_dry:
        session.confirm(f"remove {len(ids)} schedule{'s' if len(ids) > 1 else ''}")

    def remove(name: str) -> Document:
        schedule = session.transport.get_schedule(name)
        session.transport.delete_schedule(name)
        return schedule

    _each(session, remove, "removed")
