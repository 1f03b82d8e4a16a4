"""Encrypt sensitive arguments and results anew, by the current key."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.core.management.base import CommandError, CommandParser

from relay.conf import get_settings
from relay.engine.reseal import BATCH, reseal
from relay.exceptions import MissingKey, SettingsError
from relay.management.console import RelayCommand

__all__ = ["Command"]


class Command(RelayCommand):
    help = (
        "Encrypt the sensitive arguments and results of all jobs by the first key of "
        "RELAY['ENCRYPTION_KEYS']. Afterwards the other keys can be removed."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--batch",
            type=int,
            default=BATCH,
            help=f"rows looked at in one go, {BATCH}",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        if options["batch"] < 1:
            raise CommandError("--batch: give a number of at least 1")
        using, after, changed = get_settings().database, None, 0
        unreadable: list[UUID] = []
        while True:
            try:
                done = reseal(after=after, batch=options["batch"], using=using)
            except (MissingKey, SettingsError) as error:
                raise CommandError(str(error)) from error
            changed += done.changed
            unreadable += done.unreadable
            if done.last is None:
                break
            after = done.last
        self.stdout.write(f"{changed} jobs encrypted anew.")
        if unreadable:
            listed = ", ".join(map(str, unreadable[:10]))
            raise CommandError(
                f"{len(unreadable)} jobs cannot be decrypted, as they were altered or "
                f"moved: {listed}"
            )
