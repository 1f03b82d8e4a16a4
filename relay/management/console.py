"""What the commands share: flags from the environment, and log lines."""

from __future__ import annotations

import logging
from typing import Any, Final

from django.core.management.base import BaseCommand, CommandError

from relay.cli.variables import flags_of
from relay.conf import get_settings
from relay.exceptions import SettingsError

__all__ = ["ExtraFormatter", "RelayCommand", "show_logs"]

_ALWAYS: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime"}


# Flags of all commands of Django.
_DJANGOS: Final = frozenset(
    {"verbosity", "settings", "pythonpath", "traceback", "no_color", "force_color"}
) | {"skip_checks", "version"}


class RelayCommand(BaseCommand):
    """A command that reads settings.RELAY.

    Each flag of its own is read from the environment too: --concurrency of
    relay_worker from RELAY_WORKER_CONCURRENCY.
    """

    def run_from_argv(self, argv: list[str]) -> None:
        """Run a command line, and what the environment adds to it."""
        program, name, *given = argv
        self._called_from_command_line = True  # errors end it, with the usage
        parser = self.create_parser(program, name)
        try:
            more = flags_of(parser, name.upper(), given, without=_DJANGOS)
        except ValueError as error:
            parser.error(str(error))
        super().run_from_argv([program, name, *more, *given])

    def execute(self, *args: Any, **options: Any) -> str | None:
        """Run the command, unless settings.RELAY cannot be used.

        Raises:
            CommandError: it cannot; in one line, before the system checks tell more.
        """
        try:
            get_settings()
        except SettingsError as error:
            raise CommandError(str(error)) from error
        return super().execute(*args, **options)


class ExtraFormatter(logging.Formatter):
    """Adds each value of extra as name=value."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        values = (
            f" {name}={value}"
            for name, value in vars(record).items()
            if name not in _ALWAYS
        )
        return super().formatMessage(record) + "".join(values)


def show_logs(verbosity: int) -> None:
    """Write relay's log to stderr where LOGGING leaves it without a handler.

    Without this, Python writes warnings alone, and of those the bare message: no job,
    no reason. A project that handles the log itself is left as it is.

    Args:
        verbosity: of the command: 1 shows warnings, 2 every job and every fire.
    """
    names = [n for n in logging.root.manager.loggerDict if n.startswith("relay.")]
    if any(logging.getLogger(name).hasHandlers() for name in ["relay", *names]):
        return
    handler = logging.StreamHandler()
    handler.setFormatter(ExtraFormatter("{asctime} {levelname} {message}", style="{"))
    logger = logging.getLogger("relay")
    logger.addHandler(handler)
    if logger.level == logging.NOTSET:
        logger.setLevel(logging.INFO if verbosity > 1 else logging.WARNING)
