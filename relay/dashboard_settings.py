"""What settings.RELAY["DASHBOARD"] says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from string import Formatter
from typing import Final
from urllib.parse import urlsplit

from relay.exceptions import SettingsError

__all__ = ["COLOURS", "PLACES", "DashboardSettings"]

# What the stylesheet has for the banner: no page may carry a style of its own.
COLOURS: Final = ("red", "amber", "green", "blue", "grey")
# What an address of a link may hold of a job.
PLACES: Final = ("job_id", "trace_id", "start", "end")
_LONGEST: Final = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class DashboardSettings:
    """What settings.RELAY["DASHBOARD"] says. An attribute is its key in lower case."""

    # Which environment this is, above every page: a word and one of COLOURS.
    env: tuple[str, str] | None = None
    # On a job's page, by what each is called: addresses of its logs and traces, with
    # {job_id}, {trace_id}, {start} and {end}.
    links: Mapping[str, str] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        if self.env is not None:
            object.__setattr__(self, "env", _read_env(self.env))
        object.__setattr__(self, "links", _read_links(self.links))


def _refused(key: str, value: object, remedy: str) -> SettingsError:
    return SettingsError(f"RELAY['DASHBOARD']{key} is {value!r}: {remedy}")


def _is_label(value: object) -> bool:
    return (
        isinstance(value, str)
        and 0 < len(value.strip()) <= _LONGEST
        and value.isprintable()
    )


def _read_env(value: object) -> tuple[str, str]:
    match value:
        case (str(name), str(colour)) if _is_label(name) and colour in COLOURS:
            return name, colour
    raise _refused(
        "['ENV']",
        value,
        f"give a word of up to {_LONGEST} characters and one of {', '.join(COLOURS)}, "
        "such as ('production', 'red'); or None",
    )


def _read_links(value: object) -> dict[str, str]:
    if not isinstance(value, Mapping):
        raise _refused("['LINKS']", value, "give a dict of names and addresses")
    for name, address in value.items():
        if not _is_label(name):
            raise _refused("['LINKS']", value, f"{name!r} cannot name a link")
        if not _is_address(address):
            places = ", ".join(f"{{{place}}}" for place in PLACES)
            raise _refused(
                f"['LINKS'][{name!r}]",
                address,
                "give an address that begins with https:// or http:// and a host, in "
                f"which only {places} stand in braces",
            )
    return dict(value)


def _is_address(text: object) -> bool:
    """Tell whether only a job's places vary in it, and none of them where it leads."""
    if not isinstance(text, str) or not text.isprintable() or " " in text:
        return False
    try:
        parts = list(Formatter().parse(text))
        found = urlsplit(text)
    except ValueError:
        return False
    is_plain = all(
        place is None or (place in PLACES and not spec and not conversion)
        for _, place, spec, conversion in parts
    )
    is_fixed = bool(found.hostname) and not {*"{}\\@"} & {*found.netloc}
    return is_plain and is_fixed and text.startswith(("https://", "http://"))
