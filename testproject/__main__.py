"""python -m testproject COMMAND: the project's manage.py, which brings its database."""

from __future__ import annotations

import os
import sys

from django.conf import settings
from django.core.management import execute_from_command_line

from relay.exceptions import StandaloneError
from relay.standalone.postgres import serve

WITHOUT_DATABASE = {
    "check",
    "collectstatic",
    "compilemessages",
    "diffsettings",
    "findstatic",
    "help",
    "makemessages",
    "startapp",
    "version",
}


def needs_database(arguments: list[str]) -> bool:
    """Tell whether the command line is of a command that asks the database."""
    if not arguments or {"-h", "--help", "--version"} & set(arguments):
        return False
    if arguments[0] == "makemigrations" and {"--check", "--dry-run"} & set(arguments):
        return False
    return arguments[0] not in WITHOUT_DATABASE


def main() -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "testproject.settings")
    arguments = sys.argv[1:]
    if needs_database(arguments):
        try:
            server = serve(settings.POSTGRES_ROOT)
        except StandaloneError as error:
            sys.exit(str(error))
        if server is not None and server.was_started_here:
            sys.stderr.write(f"{server.describe()}\n")
    execute_from_command_line(["python -m testproject", *arguments])


if __name__ == "__main__":
    main()
