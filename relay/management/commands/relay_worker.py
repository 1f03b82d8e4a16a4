"""manage.py relay_worker: run jobs until told to stop."""

from __future__ import annotations

import argparse
import contextlib
import logging
import signal
import sys
from datetime import timedelta
from functools import partial
from typing import Any, Final

from django.core.management.base import CommandError, CommandParser
from django.db import connections

from relay.checks.at_start import log_findings
from relay.conf import check_queue_name, get_settings
from relay.engine.weight import LARGEST_WEIGHT
from relay.management.console import RelayCommand, show_logs
from relay.management.database import check_vendor, explained, when_it_answers
from relay.management.probing import add_probe_arguments, bind_probes, clear_metrics
from relay.models import Queue
from relay.tasks import known_queues
from relay.worker.options import LoopOptions
from relay.worker.parent import Parent

logger = logging.getLogger("relay.worker")

# Besides, each child 1 and one for each slot that uses the ORM.
# Source: docs/howto/workers.md, "Connections".
KEEPER_SESSIONS: Final = 2


class Command(RelayCommand):
    """Arguments and wiring; relay.worker has the logic."""

    help = "Run jobs. SIGTERM drains; a second signal stops at once."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "-q",
            "--queues",
            type=_queues,
            metavar="NAME[:WEIGHT],…",
            help="queues to serve, each claimed first as often as its weight says "
            "(default: every known queue)",
        )
        parser.add_argument(
            "--strict",
            action="store_true",
            help="always look at the queues in the order given, whatever their weights",
        )
        parser.add_argument(
            "-c",
            "--concurrency",
            type=_positive,
            help="jobs that each child runs at once (default: RELAY['CONCURRENCY'])",
        )
        parser.add_argument(
            "--processes",
            type=_positive,
            default=1,
            help="child processes (default: %(default)s)",
        )
        self._add_life(parser)
        add_probe_arguments(parser)
        parser.add_argument(
            "--reload",
            action="store_true",
            help="for development: restart when the code changes",
        )

    def _add_life(self, parser: CommandParser) -> None:
        parser.add_argument("--name", help="label of this worker (default: host-pid)")
        parser.add_argument(
            "--grace",
            type=_seconds,
            metavar="SECONDS",
            help="how long running jobs may go on after SIGTERM "
            "(default: RELAY['GRACE'])",
        )
        parser.add_argument(
            "--max-jobs",
            type=_positive,
            metavar="N",
            help="replace a child after N jobs",
        )
        parser.add_argument(
            "--max-memory",
            type=_positive,
            metavar="MIB",
            help="replace a child whose resident memory is larger",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        show_logs(options["verbosity"])
        if options["reload"]:
            from relay.worker.reload import run_with_reload  # only development needs it

            sys.exit(run_with_reload())
        relay = get_settings()
        for name in ("concurrency", "grace"):
            if options[name] is None:
                options[name] = getattr(relay, name)
        alias = relay.database
        check_vendor(alias)
        with explained(alias):
            queues = self._checked(options["queues"])
        self._warn_of_sessions(options["concurrency"], options["processes"])
        clear_metrics()
        memory = options["max_memory"]
        parent = Parent(
            LoopOptions(
                queues=queues,
                is_strict=options["strict"],
                concurrency=options["concurrency"],
                max_jobs=options["max_jobs"],
                max_memory_bytes=None if memory is None else memory * 1024 * 1024,
            ),
            processes=options["processes"],
            grace=options["grace"],
            name=options["name"],
            probes=bind_probes(options["probe_port"]),
            probe_file=options["probe_file"],
            look=partial(log_findings, alias),
        )
        if options["verbosity"]:
            self._say_what_runs(queues, options)
        code = parent.run()
        # Python takes its own handlers away as it ends: a second signal must not kill.
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        sys.exit(code)

    def _say_what_runs(self, queues: dict[str, int], options: dict[str, Any]) -> None:
        # There may be no stdout, or a full disk behind it.
        with contextlib.suppress(AttributeError, OSError, ValueError):
            self.stdout.write(
                f"serving {', '.join(queues)}: {options['processes']} x "
                f"{options['concurrency']} jobs at once; Ctrl-C drains for up to "
                f"{options['grace'].total_seconds():g} s, a second one stops at once"
            )
            self.stdout.flush()  # or each process forked from here would write it again

    def _warn_of_sessions(self, concurrency: int, processes: int) -> None:
        """Say so where this worker alone may need more sessions than there are."""
        needed = KEEPER_SESSIONS + processes * (1 + concurrency)
        there_are = when_it_answers(_read_session_limit, get_settings().database)
        if needed > there_are:
            logger.warning(
                "this worker may need %d database sessions and the server has %d: "
                "jobs that find none free are handed back and tried again; lower "
                "--concurrency or --processes, or raise max_connections",
                needed,
                there_are,
            )

    def _checked(self, asked: dict[str, int] | None) -> dict[str, int]:
        """Return the queues to serve; refuse a name that nobody knows."""
        rows = when_it_answers(_read_queues, get_settings().database)
        known = known_queues() | set(rows)
        if asked is None:
            return {name: max(1, rows.get(name, 1)) for name in sorted(known)}
        for name in asked:
            queue, _, weight = name.rpartition(":")
            if name not in known and queue in known:
                raise CommandError(
                    f"weight {weight!r} of queue {queue!r}: give a whole number from 1 "
                    f"to {LARGEST_WEIGHT}"
                )
            if name not in known:
                raise CommandError(
                    f"unknown queue {name!r}: name it in RELAY['QUEUES'] or in a task; "
                    f"known: {', '.join(sorted(known))}"
                )
        return asked


def _read_queues(alias: str) -> dict[str, int]:
    return dict(Queue.objects.using(alias).values_list("name", "weight"))


def _read_session_limit(alias: str) -> int:
    with connections[alias].cursor() as cursor:
        cursor.execute("SELECT current_setting('max_connections')::int")
        limit: int = cursor.fetchone()[0]
        return limit


def _queues(text: str) -> dict[str, int]:
    queues: dict[str, int] = {}
    for item in text.split(","):
        name, colon, weight = item.strip().rpartition(":")
        if not (colon and weight.isascii() and weight.isdigit()):
            name, weight = item.strip(), "1"
        try:
            check_queue_name(name)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from error
        if not 1 <= int(weight) <= LARGEST_WEIGHT:
            raise argparse.ArgumentTypeError(
                f"weight {weight} of queue {name!r} is not in 1..{LARGEST_WEIGHT}"
            )
        if name in queues:
            raise argparse.ArgumentTypeError(f"queue {name!r} is named twice")
        queues[name] = int(weight)
    return queues


def _positive(text: str) -> int:
    if text.isascii() and text.isdigit() and 1 <= int(text) <= 1_000_000:
        return int(text)
    raise argparse.ArgumentTypeError(f"{text!r} is no whole number from 1 to 1000000")


def _seconds(text: str) -> timedelta:
    try:
        seconds = float(text)
        if 0 <= seconds <= 86_400:
            return timedelta(seconds=seconds)
    except ValueError:
        pass
    raise argparse.ArgumentTypeError(
        f"{text!r} is no number of seconds from 0 to 86400"
    )
