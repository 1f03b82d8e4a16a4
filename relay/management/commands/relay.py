"""manage.py relay: the tree of verbs of relay.cli, in process."""

from __future__ import annotations

import argparse
import os
import sys
from typing import Any

from django.core.management.base import CommandError, CommandParser

from relay.cli import session, tree
from relay.cli.errors import CliError
from relay.cli.local import Local
from relay.cli.printer import inert
from relay.cli.verbs import all_verbs
from relay.management.console import RelayCommand


class Noun(tree.Noun, CommandParser):
    """As Django's parsers: from code it raises, and ends no process."""


class Command(RelayCommand):
    """Arguments and wiring; relay.cli has the logic."""

    help = tree.DESCRIPTION
    # Looking at a system that is not well must be possible: doctor runs them.
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        all_verbs(tree.root(parser, kind=Noun))

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
            raise CommandError(inert(str(error)), returncode=error.exit_code) from error
        except BrokenPipeError:
            session.forget_output()
            sys.exit(1)
        finally:
            self.stdout.ending, self.stderr.ending = endings
            self.stderr.style_func = tone
