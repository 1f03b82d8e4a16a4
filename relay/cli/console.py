"""The console script `relay`: to a server over HTTP, or to a Django project."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Final
from urllib.parse import urlsplit

from relay.cli import session
from relay.cli.errors import CliError, UsageError
from relay.cli.flags import connection_flags
from relay.cli.http import Http
from relay.cli.profiles import Profile, Profiles, file_of
from relay.cli.remote import Remote
from relay.cli.transport import Transport
from relay.cli.tree import DESCRIPTION, root
from relay.cli.verbs import all_verbs, profiles

__all__ = ["main", "make_parser"]

PROGRAM: Final = "relay"
_LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1"})
_NOWHERE: Final = (
    "nobody to talk to: give --server URL or RELAY_SERVER, add a profile (relay "
    "profile add), or set DJANGO_SETTINGS_MODULE to the settings of a project"
)


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of the whole tree."""
    parser = argparse.ArgumentParser(
        prog=PROGRAM,
        description=DESCRIPTION,
        parents=[connection_flags()],
        allow_abbrev=False,
    )
    parser.add_argument(
        "--no-color",
        action="store_true",
        default=argparse.SUPPRESS,
        help="no colours, as with NO_COLOR in the environment",
    )
    branch = root(parser, parents=[connection_flags()])
    all_verbs(branch)
    profiles.grow(branch)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Do what a command line says; return the exit code."""
    _open_streams()
    try:
        options = make_parser().parse_args(argv)
        session.run(
            options,
            connect=lambda: _connected(options, os.environ),
            out=sys.stdout,
            err=sys.stderr,
            colour=not getattr(options, "no_color", False)
            and not os.environ.get("NO_COLOR"),
        )
    except CliError as error:
        sys.stderr.write(f"{PROGRAM}: {error.text}\n")
        return error.exit_code
    except BrokenPipeError:
        session.forget_output()
        return 1
    return 0


def _open_streams() -> None:
    """Have something to read and write where a stream is closed, as under cron."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            opened = open(os.devnull, mode, encoding="utf-8")  # noqa: SIM115 - to the end
            setattr(sys, name, opened)


def _connected(
    options: argparse.Namespace, environment: Mapping[str, str]
) -> Transport:
    profile = _profile(options, environment)
    if profile is not None:
        _warn_of_plain_http(profile)
        reason = getattr(options, "reason", None)
        return Remote(Http(profile.server, token=profile.token, reason=reason))
    if not environment.get("DJANGO_SETTINGS_MODULE"):
        raise UsageError(_NOWHERE)
    return _in_process(options)


def _profile(
    options: argparse.Namespace, environment: Mapping[str, str]
) -> Profile | None:
    """Return the server of the flags, else of the environment, else the used one."""
    if (server := getattr(options, "server", None)) is not None:
        return _of_server(server, environment)
    known = Profiles(file_of(environment))
    name: str | None = getattr(options, "profile", None)
    if name is None and (server := environment.get("RELAY_SERVER")):
        return _of_server(server, environment)
    name = name or environment.get("RELAY_PROFILE") or known.used
    if name is None:
        return None
    found = known.get(name)
    return found if found.token else Profile(found.server, _token(environment))


def _of_server(server: str, environment: Mapping[str, str]) -> Profile:
    """Return a server with its token, of the environment or else of a profile of it."""
    if token := _token(environment):
        return Profile(server, token)
    for each in Profiles(file_of(environment)).by_name.values():
        if each.server == server.strip().rstrip("/"):
            return each
    return Profile(server)


def _token(environment: Mapping[str, str]) -> str | None:
    return environment.get("RELAY_TOKEN", "").strip() or None


def _warn_of_plain_http(profile: Profile) -> None:
    parts = urlsplit(profile.server)
    if profile.token and parts.scheme == "http" and parts.hostname not in _LOOPBACK:
        sys.stderr.write(f"{PROGRAM}: the token goes to {parts.hostname} unencrypted\n")


def _in_process(options: argparse.Namespace) -> Transport:
    # Only here: a server is asked without it.
    import django
    from django.core.exceptions import ImproperlyConfigured

    sys.path.insert(0, os.getcwd())  # as manage.py has it
    try:
        django.setup()
        from relay.cli.local import Local  # needs the apps
    except (ImportError, ImproperlyConfigured, OSError, RuntimeError) as error:
        module = os.environ["DJANGO_SETTINGS_MODULE"]
        raise UsageError(f"DJANGO_SETTINGS_MODULE={module}: {error}") from error
    return Local(reason=getattr(options, "reason", None))
