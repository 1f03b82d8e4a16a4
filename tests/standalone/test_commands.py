"""python -m relay.standalone.postgres."""

from __future__ import annotations

import stat
from pathlib import Path

import psycopg
import pytest

from relay.standalone.postgres import EmbeddedPostgres, binaries
from tests.standalone.processes import (
    command,
    kill,
    leave,
    postmaster_of,
    spawn_user,
    store,
)


@pytest.mark.slow
def test_started_by_hand_it_stays_until_stopped_by_hand(root: Path) -> None:
    running = EmbeddedPostgres(root)

    assert command("status", "--root", root)[0] == 3
    assert command("start", "--root", root)[0] == 0
    user = spawn_user(root)
    postmaster_of(user)
    refused = command("stop", "--root", root)
    command("start", "--root", root)
    leave(user)
    status = command("status", "--root", root)
    assert running.is_running()
    assert command("stop", "--root", root)[:2] == (0, "stopped\n")

    assert refused[0] == 1
    assert "in use" in refused[2]
    assert status[0] == 0
    assert "runs until `stop`" in status[1]
    assert running.postmaster_pid() is None


@pytest.mark.slow
def test_stop_with_force_stops_it_under_its_users(root: Path) -> None:
    user = spawn_user(root)
    postmaster_of(user)

    assert command("status", "--root", root)[0] == 0
    assert command("stop", "--force", "--root", root)[0] == 0

    assert EmbeddedPostgres(root).postmaster_pid() is None
    leave(user)


def test_status_tells_of_a_server_whose_user_was_killed(root: Path) -> None:
    user = spawn_user(root)
    postmaster_of(user)
    kill(user)

    code, output, _ = command("status", "--root", root)

    assert code == 0
    assert "last user was killed" in output


def test_status_and_stop_of_a_folder_that_is_not_there(folder: Path) -> None:
    assert command("status", "--root", folder / "none")[0] == 3
    assert command("stop", "--root", folder / "none")[0] == 0
    assert not (folder / "none").exists()


def test_status_shows_database_url_without_its_password(folder: Path) -> None:
    _, output, _ = command(
        "status",
        "--root",
        folder,
        DATABASE_URL="postgresql://me:secret@db/jobs",
    )

    assert "jobs on db" in output
    assert "secret" not in output


def test_backup_can_be_restored(root: Path, folder: Path) -> None:
    target = folder / "copy.dump"
    with EmbeddedPostgres(root) as running:
        running.binaries.program("pg_restore")
        store(running, "committed")

        assert command("backup", "--root", root, target)[0] == 0
        running.create_database("restored")
        code, output = binaries.run(
            [
                running.binaries.program("pg_restore"),
                f"--dbname={running.dsn('restored')}",
                target,
            ]
        )

        assert code == 0, output
        with psycopg.connect(running.dsn("restored")) as connection:
            row = connection.execute("SELECT text FROM kept").fetchone()
        with psycopg.connect(running.dsn(), autocommit=True) as connection:
            connection.execute("DROP DATABASE restored")
    assert row == ("committed",)
    assert stat.S_IMODE(target.stat().st_mode) == 0o600


def test_a_failed_backup_leaves_no_file(root: Path, folder: Path) -> None:
    code, _, _ = command(
        "backup", "--root", root, "--database", "none", folder / "copy.dump"
    )

    assert code != 0
    assert list(folder.glob("copy*")) == []


def test_shell_runs_psql(root: Path) -> None:
    code, output, error = command(
        "shell", "--root", root, "--", "-At", "-c", "SELECT 'answer'"
    )

    assert (code, output) == (0, "answer\n"), error
