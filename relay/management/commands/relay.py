"""manage.py relay: the tree of verbs of relay.cli, in process."""

from __future__ import annotations

import argparse
import os
import sys
from typing import Any, NoReturn

from django.core.management.base import CommandError, CommandParser

from relay.cli import session, tree
from relay.cli.errors import CliError, UsageError
from relay.cli.local import Local
from relay.cli.verbs import all_verbs
from relay.management.console import RelayCommand


def _common_flags() -> argparse.ArgumentParser:
    """Return what all commands of Django take, for behind the verb too."""
    parser = argparse.ArgumentParser(add_help=False, argument_default=argparse.SUPPRESS)
    parser.add_argument("--settings", help=argparse.SUPPRESS)
    parser.add_argument("--pythonpath", help=argparse.SUPPRESS)
    parser.add_argument(
        "--traceback",
        action="store_true",
        default=argparse.SUPPRESS,
        help=argparse.SUPPRESS,
    )
    return parser


class Noun(tree.Noun, CommandParser):
    """As Django's parsers: from code it raises, and ends no process."""

    def error(self, message: str) -> NoReturn:
        if self.called_from_command_line:
            super().error(message)
        raise CommandError(f"Error: {message}", returncode=UsageError.exit_code)


class Command(RelayCommand):
    """Arguments and wiring; relay.cli has the logic."""

    help = tree.DESCRIPTION
    # Looking at a system that is not well must be possible: doctor runs them.
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        all_verbs(tree.root(parser, kind=Noun, parents=[_common_flags()]))

    def handle(self, *args: Any, **options: Any) -> None:
        given = argparse.Namespace(**options)
        endings = self.stdout.ending, self.stderr.ending
        tone = self.stderr.style_func
        # What is written here ends its lines itself; remarks are no errors.
        self.stdout.ending = self.stderr.ending = ""
        self.stderr.style_func = None
        try:
            session.run(
                given,
                connect=lambda: Local(reason=options.get("reason")),
                out=self.stdout,
                err=self.stderr,
                colour=not options["no_color"] and not os.environ.get("NO_COLOR"),
            )
        except CliError as error:
            raise CommandError(error.text, returncode=error.exit_code) from error
        except BrokenPipeError:
            session.forget_output()
            sys.exit(1)
        finally:
            self.stdout.ending, self.stderr.ending = endings
            self.stderr.style_func = tone
