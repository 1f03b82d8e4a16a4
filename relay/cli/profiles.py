"""Servers and their tokens by name, in a file that only its owner may read."""

from __future__ import annotations

import json
import os
import stat
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from relay.cli.errors import CliError, MissingError

__all__ = ["Profile", "Profiles", "file_of"]


@dataclass(frozen=True, slots=True)
class Profile:
    """One server; its token is shown nowhere."""

    server: str
    token: str | None = field(default=None, repr=False)


def file_of(environment: Mapping[str, str]) -> Path:
    """Return where profiles are kept: $XDG_CONFIG_HOME or ~/.config."""
    base = environment.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
    return Path(base) / "relay" / "profiles.json"


class Profiles:
    """The profiles of one file, and which of them is in use."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.used: str | None = None
        self.by_name: dict[str, Profile] = {}
        self._read()

    def _read(self) -> None:
        try:
            with self.file.open(encoding="utf-8") as opened:
                self._check_private(os.fstat(opened.fileno()).st_mode)
                document: Any = json.load(opened)
            self.used = document["used"]
            self.by_name = {
                name: Profile(each["server"], each["token"])
                for name, each in document["profiles"].items()
            }
        except FileNotFoundError:
            return
        except OSError as error:
            raise CliError(f"{self.file} cannot be read: {error.strerror}") from error
        except (ValueError, KeyError, TypeError, AttributeError):
            raise CliError(
                f"{self.file} is no file of profiles: remove it, and add them again"
            ) from None

    def _check_private(self, mode: int) -> None:
        if os.name == "posix" and mode & (stat.S_IRWXG | stat.S_IRWXO):
            raise CliError(
                f"{self.file} holds tokens and can be read by others: chmod 600 it"
            )

    def get(self, name: str) -> Profile:
        """Return a profile.

        Raises:
            MissingError: there is none of this name.
        """
        found = self.by_name.get(name)
        if found is None:
            known = ", ".join(sorted(self.by_name)) or "none"
            raise MissingError(f"no profile {name!r}: there are {known}")
        return found

    def save(self) -> None:
        """Write the file, for its owner alone; never half of it.

        Raises:
            CliError: it cannot be written.
        """
        document = {
            "used": self.used,
            "profiles": {
                name: {"server": each.server, "token": each.token}
                for name, each in sorted(self.by_name.items())
            },
        }
        try:
            self.file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            # mkstemp makes it 0600.
            number, path = tempfile.mkstemp(dir=self.file.parent, prefix=".profiles")
            with os.fdopen(number, "w", encoding="utf-8") as opened:
                json.dump(document, opened, indent=2)
            Path(path).replace(self.file)
        except OSError as error:
            raise CliError(
                f"{self.file} cannot be written: {error.strerror}"
            ) from error
