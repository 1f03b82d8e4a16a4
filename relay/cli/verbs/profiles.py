"""Profiles: servers and their tokens by name; of the console script alone."""

from __future__ import annotations

import getpass
import os

from relay.cli import flags
from relay.cli.errors import CliError
from relay.cli.http import Http
from relay.cli.printer import Column
from relay.cli.profiles import Profile, Profiles, file_of
from relay.cli.session import Session
from relay.cli.tree import Branch

__all__ = ["grow"]

_COLUMNS = (
    Column("PROFILE", lambda each: each["name"]),
    Column("SERVER", lambda each: each["server"]),
    Column("TOKEN", lambda each: each["has_token"]),
    Column("USED", lambda each: each["used"]),
)


def grow(root: Branch) -> None:
    """Add the noun profile."""
    profile = root.noun("profile", "list, add, use and remove servers by name")
    named, dry = flags.name_of("profile"), flags.dry_flags()
    profile.verb("ls", _list, "list profiles")
    add = profile.verb(
        "add",
        _add,
        "add a profile, or change it",
        named,
        dry,
        details="Add a profile. Its token is asked for, or read from standard input.",
    )
    add.add_argument("url", metavar="URL", help="where the server is")
    profile.verb("use", _use, "talk to this server from now on", named, dry)
    profile.verb("rm", _remove, "remove a profile, with its token", named, dry)


def _profiles() -> Profiles:
    return Profiles(file_of(os.environ))


def _list(session: Session) -> None:
    profiles = _profiles()
    results = [
        {
            "name": name,
            "server": each.server,
            "has_token": each.token is not None,
            "used": name == profiles.used,
        }
        for name, each in profiles.by_name.items()
    ]
    session.show_list(results, _COLUMNS, id_name="name", none="no profile")


def _add(session: Session) -> None:
    options = session.options
    profiles = _profiles()
    url = Http(options.url).url
    if session.is_dry:
        session.would(f"have profile {options.name} be {url}")
        return
    if session.source.isatty():
        try:
            token = getpass.getpass("token (none with Enter): ")
        except EOFError:
            raise CliError("nothing was changed", code="declined") from None
    else:
        token = session.source.readline()
    profiles.by_name[options.name] = Profile(url, token.strip() or None)
    profiles.save()
    session.say(f"profile {options.name} is {url}; in use by relay profile use")


def _use(session: Session) -> None:
    profiles = _profiles()
    profile = profiles.get(session.options.name)
    if session.is_dry:
        session.would(f"talk to {profile.server} from then on")
        return
    profiles.used = session.options.name
    profiles.save()
    session.say(f"from now on: {profile.server}")


def _remove(session: Session) -> None:
    profiles = _profiles()
    profiles.get(session.options.name)
    if session.is_dry:
        session.would(f"remove profile {session.options.name}")
        return
    del profiles.by_name[session.options.name]
    if profiles.used == session.options.name:
        profiles.used = None
    profiles.save()
    session.say(f"profile {session.options.name} is removed")
