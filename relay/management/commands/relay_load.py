"""manage.py relay_load: enqueue real jobs, many clients at once, and report."""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, Final

from django.conf import settings
from django.core.management.base import CommandError, CommandParser
from django.db import DatabaseError, connections

from relay.conf import check_queue_name, get_settings
from relay.exceptions import RelayError, UnknownTask
from relay.load import noop
from relay.load.bar import Bar
from relay.load.driver import Outcome, drive
from relay.load.interrupt import Interrupt
from relay.load.jobs import Enqueuing
from relay.load.plan import Plan
from relay.load.report import document, is_success, text
from relay.load.waiting import Ended, follow, is_served
from relay.management.console import RelayCommand
from relay.management.database import check_vendor, explained
from relay.models import Queue
from relay.tasks import Task, get_task, known_queues

MOST_REQUESTS: Final = 100_000_000
MOST_CLIENTS: Final = 1_000
MOST_BATCH: Final = 10_000
MOST_PAYLOAD_BYTES: Final = 64 * 1024 * 1024  # of what MAX_ARGUMENT_BYTES may be
MOST_RATE: Final = 1_000_000
LONGEST_SECONDS: Final = 86_400
INTERRUPTED: Final = 130

# What of the options the report repeats.
ASKED: Final = (
    "requests",
    "duration",
    "clients",
    "rate",
    "batch",
    "payload",
    "task",
    "task_args",
    "task_kwargs",
    "queue",
)


class Command(RelayCommand):
    """Arguments and wiring; relay.load has the logic."""

    help = (
        "Enqueue real jobs, many clients at once, and report rates and latencies. "
        "Ctrl-C ends it with the report of what was done."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        self._add_pace_arguments(parser)
        self._add_job_arguments(parser)
        parser.add_argument(
            "--wait",
            nargs="?",
            type=_number(LONGEST_SECONDS),
            const=math.inf,
            metavar="SECONDS",
            help="wait until the jobs have ended, no longer than SECONDS if given, and "
            "report their latencies too",
        )
        parser.add_argument(
            "--json",
            action="store_true",
            dest="as_json",
            help="write the report as one JSON document, and nothing else, to stdout",
        )
        parser.add_argument(
            "--yes", action="store_true", help="go on where settings.DEBUG is False"
        )

    def _add_pace_arguments(self, parser: CommandParser) -> None:
        size = parser.add_mutually_exclusive_group(required=True)
        size.add_argument(
            "--requests",
            type=_whole(1, MOST_REQUESTS),
            metavar="N",
            help="how many requests to make",
        )
        size.add_argument(
            "--duration",
            type=_number(LONGEST_SECONDS),
            metavar="SECONDS",
            help="how long to make requests",
        )
        parser.add_argument(
            "--clients",
            type=_whole(1, MOST_CLIENTS),
            default=4,
            metavar="N",
            help="requests at once, over as many connections (default: %(default)s)",
        )
        parser.add_argument(
            "--rate",
            type=_number(MOST_RATE),
            metavar="PER_SECOND",
            help="requests a second of all clients together, planned ahead; lateness "
            "counts as latency (default: as fast as the answers come)",
        )
        parser.add_argument(
            "--batch",
            type=_whole(1, MOST_BATCH),
            default=1,
            metavar="N",
            help="jobs of one request, by enqueue_many (default: %(default)s)",
        )

    def _add_job_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--payload",
            type=_whole(0, MOST_PAYLOAD_BYTES),
            metavar="BYTES",
            help=f"size of a string argument of {noop.name} (default: no argument)",
        )
        parser.add_argument(
            "--task",
            metavar="NAME",
            help=f"registered task to enqueue (default: {noop.name}, which does "
            "nothing)",
        )
        parser.add_argument(
            "--args",
            type=_json,
            dest="task_args",  # Django keeps args for itself
            metavar="JSON",
            help="list of arguments for --task",
        )
        parser.add_argument(
            "--kwargs",
            type=_json,
            dest="task_kwargs",
            metavar="JSON",
            help="object of those by name",
        )
        parser.add_argument(
            "--queue", type=_queue, metavar="NAME", help="queue (default: the task's)"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        alias = get_settings().database
        check_vendor(alias)
        task = _task(options)
        options["task"], options["queue"] = task.name, options["queue"] or task.queue
        if not settings.DEBUG and not options["yes"]:
            raise CommandError(
                "settings.DEBUG is False, so this may be a live system, and the jobs "
                f"are real: they fill the queue {options['queue']!r} of "
                f"{_place(alias)}; add --yes if that is meant"
            )
        requests = _requests(task, options)
        with explained(alias):
            _check_queue(options["queue"], alias)
            self._announce(options, alias)
        try:
            with Interrupt() as interrupt:
                report = self._run(requests, options, interrupt, alias)
        except KeyboardInterrupt:
            self.stderr.write("interrupted a second time: no report")
            sys.exit(INTERRUPTED)
        self.stdout.write(json.dumps(report) if options["as_json"] else text(report))
        if not is_success(report):
            sys.exit(1)

    def _announce(self, options: dict[str, Any], alias: str) -> None:
        """Say what will be done, and what it may wait for in vain."""
        if not options["verbosity"]:
            return
        self.stderr.write(_intention(options, alias), self.style.NOTICE)
        if options["wait"] and not is_served(options["queue"], using=alias):
            self.stderr.write(
                f"no worker serves the queue {options['queue']!r} now: the jobs wait "
                "until one does, so start manage.py relay_worker",
                self.style.WARNING,
            )
        self.stderr.flush()

    def _run(
        self,
        requests: Enqueuing,
        options: dict[str, Any],
        interrupt: Interrupt,
        alias: str,
    ) -> dict[str, Any]:
        outcome = self._drive(requests, options, interrupt)
        ended = None
        if options["wait"] and not outcome.is_interrupted:
            with explained(alias):
                ended = self._follow(requests.ids(), options, interrupt, alias)
        asked = {name: options[name] for name in ASKED}
        return document(asked, outcome, ended, batch=options["batch"])

    def _drive(
        self, requests: Enqueuing, options: dict[str, Any], interrupt: Interrupt
    ) -> Outcome:
        plan = Plan(
            requests=options["requests"],
            seconds=options["duration"],
            rate=options["rate"],
        )
        with ExitStack() as stack:
            bar = self._bar(options, stack)

            def watch(succeeded: int, failed: int, now: float) -> None:
                if bar is not None:
                    share = plan.share_done(succeeded + failed, now)
                    bar.show(share, f"{succeeded:,} requests, {failed:,} failed")

            try:
                return drive(
                    requests.connect,
                    plan,
                    clients=options["clients"],
                    watch=watch,
                    is_told_to_end=interrupt.is_set,
                )
            except DatabaseError as error:
                raise CommandError(
                    f"--clients {options['clients']}: not all of them can connect; ask "
                    f"for fewer, or raise the server's max_connections ({error})"
                ) from error

    def _follow(
        self,
        ids: bytearray,
        options: dict[str, Any],
        interrupt: Interrupt,
        alias: str,
    ) -> Ended:
        with ExitStack() as stack:
            bar = self._bar(options, stack)

            def watch(ended: int, all_jobs: int) -> None:
                if bar is not None:
                    bar.show(ended / all_jobs, f"{ended:,} of {all_jobs:,} jobs ended")

            return follow(
                ids,
                using=alias,
                seconds=options["wait"],
                watch=watch,
                is_told_to_end=interrupt.is_set,
            )

    def _bar(self, options: dict[str, Any], stack: ExitStack) -> Bar | None:
        if options["as_json"] or not options["verbosity"] or not self.stderr.isatty():
            return None
        return stack.enter_context(Bar(sys.stderr))


def _task(options: dict[str, Any]) -> Task[..., Any]:
    """Return the task that is meant, if the options for its arguments fit together."""
    if options["task"] is None:
        for name in ("args", "kwargs"):
            if options[f"task_{name}"] is not None:
                raise CommandError(
                    f"--{name} is for another task: name that by --task, or give the "
                    f"size of {noop.name}'s argument by --payload"
                )
        return noop
    if options["payload"] is not None:
        raise CommandError(
            f"--payload is for {noop.name}: give the arguments of {options['task']} by "
            "--args and --kwargs"
        )
    if not isinstance(options["task_args"], list | None):
        raise CommandError("--args: give a JSON list, such as '[42, \"a\"]'")
    if not isinstance(options["task_kwargs"], dict | None):
        raise CommandError("--kwargs: give a JSON object, such as '{\"number\": 42}'")
    try:
        return get_task(options["task"])
    except UnknownTask as error:
        raise CommandError(f"--task: {error}") from error


def _requests(task: Task[..., Any], options: dict[str, Any]) -> Enqueuing:
    """Return what makes the requests, once a job of them is known to be possible."""
    given, args = "--args, --kwargs", options["task_args"] or []
    payload = options["payload"]
    if payload is not None:
        given, args = f"--payload {payload}", ["x" * payload]
    requests = Enqueuing(
        task.using(queue=options["queue"]),
        args,
        options["task_kwargs"] or {},
        batch=options["batch"],
        keeps_ids=options["wait"] is not None,
    )
    try:
        requests.check()
    except RelayError as error:
        raise CommandError(f"{given}: {error}") from error
    return requests


def _check_queue(queue: str, alias: str) -> None:
    known = known_queues() | set(
        Queue.objects.using(alias).values_list("name", flat=True)
    )
    if queue not in known:
        raise CommandError(
            f"unknown queue {queue!r}: name it in RELAY['QUEUES'] or in a task; "
            f"known: {', '.join(sorted(known))}"
        )


def _intention(options: dict[str, Any], alias: str) -> str:
    size = (
        f"{options['requests']:,} requests"
        if options["requests"]
        else f"requests for {options['duration']:g} s"
    )
    rate = f" at {options['rate']:,g}/s" if options["rate"] else ""
    return (
        f"{options['clients']} clients make {size}{rate}, each of "
        f"{options['batch']:,} x {options['task']}, into the queue "
        f"{options['queue']!r} of {_place(alias)}; Ctrl-C ends it"
    )


def _place(alias: str) -> str:
    values = connections[alias].settings_dict
    host = f" on {values['HOST']}" if values["HOST"] else ""
    return f"DATABASES[{alias!r}] ({values['NAME']}{host})"


def _whole(least: int, most: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        if text.isascii() and text.isdigit() and least <= int(text) <= most:
            return int(text)
        raise argparse.ArgumentTypeError(
            f"{text!r} is no whole number from {least} to {most}"
        )

    return read


def _number(most: int) -> Callable[[str], float]:
    def read(text: str) -> float:
        try:
            number = float(text)
        except ValueError:
            number = math.nan
        if 0 < number <= most:
            return number
        raise argparse.ArgumentTypeError(
            f"{text!r} is no number above 0 and up to {most}"
        )

    return read


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is not JSON: {error}") from error


def _queue(text: str) -> str:
    try:
        return check_queue_name(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
