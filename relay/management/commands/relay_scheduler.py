"""manage.py relay_scheduler: fire schedules; any number of processes may do so."""

from __future__ import annotations

from functools import partial
from typing import Any
from uuid import UUID

from django.core.management.base import CommandError, CommandParser
from django.db import DatabaseError, connections

from relay import metrics
from relay.checks.at_start import log_findings
from relay.conf import get_settings
from relay.engine.connection import is_outage
from relay.management.console import RelayCommand, show_logs
from relay.management.database import check_vendor, explained
from relay.management.probing import add_probe_arguments, bind_probes, show_gauges
from relay.models import Occurrence, Schedule
from relay.probes import run_beside, serve
from relay.scheduler.process import SchedulerHealth, StopSignal, run
from relay.scheduler.registry import sync_declared


class Command(RelayCommand):
    help = (
        "Fire schedules until SIGTERM or SIGINT. Any number of schedulers may run: "
        "each occurrence becomes one job."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--sync",
            action="store_true",
            help="bring the rows of schedules declared in code up to date, and end",
        )
        parser.add_argument(
            "--database",
            default=None,
            metavar="ALIAS",
            help="alias in DATABASES; RELAY['DATABASE'] unless given",
        )

        add_probe_arguments(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        alias = options["database"] or get_settings().database
        if alias not in connections:
            raise CommandError(f"--database {alias}: DATABASES has no such alias")
        check_vendor(alias)
        if options["sync"]:
            with explained(alias):
                counts = sync_declared(alias)
            said = ", ".join(f"{n} {what}" for what, n in counts._asdict().items())
            self.stdout.write(f"schedules declared in code: {said}")
            return
        show_logs(options["verbosity"])
        _check_tables(alias)
        health = SchedulerHealth(alias)
        if metrics.is_available():
            show_gauges(alias)
        with StopSignal() as stop:
            serve(health, bind_probes(options["probe_port"]), options["probe_file"])
            self.stdout.write(f"firing the schedules of {alias}; Ctrl-C stops")
            self.stdout.flush()
            run_beside("relay-checks", partial(log_findings, alias))
            run(alias, stop, health=health)


def _check_tables(alias: str) -> None:
    """Refuse a database without relay's tables; one that is away is waited for later.

    Raises:
        CommandError: tables or columns are missing.
    """
    with explained(alias):
        try:
            Schedule.objects.using(alias).filter(pk=UUID(int=0)).first()
            Occurrence.objects.using(alias).filter(pk=0).first()
        except DatabaseError as error:
            if not is_outage(error):
                raise
        finally:
            connections[alias].close()
