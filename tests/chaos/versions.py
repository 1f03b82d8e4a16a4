"""Other versions of relay than the one that is checked out, each in a folder."""

from __future__ import annotations

import shutil
import subprocess
import tarfile
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Final

from tests.chaos.campaign import REPOSITORY

__all__ = ["Version", "head", "previous", "widened"]

MIGRATIONS: Final = "relay/migrations"
WIDER_NAME: Final = "9999_chaos_wider"
WIDER_INDEX: Final = "relay_job_chaos_idx"

# What a later release may do while this one runs: a column that may be NULL, and an
# index that is made concurrently.
_WIDER: Final = f'''
from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models


class Migration(migrations.Migration):
    atomic = False
    dependencies = [("relay", "{{last}}")]
    operations = [
        migrations.AddField("job", "chaos_note", models.TextField(null=True)),
        AddIndexConcurrently(
            "job",
            models.Index(
                fields=["chaos_note"],
                condition=models.Q(chaos_note__isnull=False),
                name="{WIDER_INDEX}",
            ),
        ),
    ]
'''


@dataclass(frozen=True, slots=True, kw_only=True)
class Version:
    """One version of relay.

    Attributes:
        code: the folder to import it from.
        about: what it is, for the report.
        migrations: their names, in order.
    """

    name: str
    code: Path
    about: str

    @property
    def migrations(self) -> list[str]:
        return sorted(path.stem for path in (self.code / MIGRATIONS).glob("[0-9]*.py"))


def head() -> Version:
    """Return relay as it is checked out."""
    return Version(name="new", code=REPOSITORY, about="the code that is checked out")


def previous(revision: str | None, folder: Path) -> Version | None:
    """Put an earlier version into a folder; None where there is no history to take it.

    Args:
        revision: of git; None takes the newest with fewer migrations than now.

    Raises:
        ValueError: the revision that was named is not there.
    """
    if revision is None:
        added = _git("log", "-1", "--diff-filter=A", "--format=%H", "--", MIGRATIONS)
        found = added and _git("rev-parse", "--verify", "-q", f"{_text(added)}^")
    else:
        found = _git("rev-parse", "--verify", "-q", f"{revision}^{{commit}}")
        if not found:
            raise ValueError(f"git knows no revision {revision!r}")
    archive = found and _git("archive", _text(found), "relay")
    if not found or not archive:
        return None
    with tarfile.open(fileobj=BytesIO(archive)) as tar:
        tar.extractall(folder, filter="data")
    about = _git("log", "-1", "--format=%h of %ad, “%s”", "--date=short", _text(found))
    return Version(name="old", code=folder, about=_text(about or found))


def widened(version: Version, folder: Path) -> Version:
    """Copy a version and give the copy one migration more, as a later release has."""
    shutil.copytree(
        version.code / "relay",
        folder / "relay",
        ignore=shutil.ignore_patterns("__pycache__"),
    )
    path = folder / MIGRATIONS / f"{WIDER_NAME}.py"
    path.write_text(_WIDER.format(last=version.migrations[-1]), encoding="utf-8")
    return Version(
        name="wider",
        code=folder,
        about=f"{version.name} with a column and an index more on relay_job",
    )


def _text(output: bytes) -> str:
    return output.decode().strip()


def _git(*arguments: str) -> bytes | None:
    """Return what git prints, or None where it fails or is not there."""
    try:
        done = subprocess.run(
            ["git", *arguments], cwd=REPOSITORY, capture_output=True, check=False
        )
    except FileNotFoundError:
        return None
    return None if done.returncode else done.stdout
