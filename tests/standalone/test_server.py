"""The life of the embedded server: who uses it, its crashes, its folder."""

from __future__ import annotations

import contextlib
import os
import signal
import stat
import threading
import time
from pathlib import Path

import psycopg
import pytest

from relay.exceptions import StandaloneError
from relay.standalone.postgres import EmbeddedPostgres, binaries, cluster, server
from tests.standalone.processes import (
    WAIT_SECONDS,
    kill,
    leave,
    on_linux,
    postmaster_of,
    renamed,
    spawn,
    spawn_user,
    store,
    value,
)


@pytest.mark.slow
def test_racing_starters_make_one_cluster_with_one_server(folder: Path) -> None:
    users = [spawn_user(folder / "postgres") for _ in range(5)]

    postmasters = {postmaster_of(user) for user in users}

    assert len(postmasters) == 1
    for user in users:
        leave(user)


def test_the_last_user_to_leave_stops_the_server(root: Path) -> None:
    running = EmbeddedPostgres(root)
    first, last = spawn_user(root), spawn_user(root)
    assert postmaster_of(first) == postmaster_of(last)

    leave(first)
    stayed = running.is_running()
    leave(last)

    assert stayed
    assert not running.is_running()
    assert running.postmaster_pid() is None


def test_a_killed_user_does_not_count(root: Path) -> None:
    running = EmbeddedPostgres(root)
    killed = spawn_user(root)
    postmaster = postmaster_of(killed)

    kill(killed)
    assert running.postmaster_pid() == postmaster
    last = spawn_user(root)
    assert postmaster_of(last) == postmaster
    leave(last)

    assert running.postmaster_pid() is None


def test_a_forked_child_neither_counts_nor_stops_the_server(root: Path) -> None:
    forking = spawn(
        "-c",
        """
import os, sys
from relay.standalone.postgres import EmbeddedPostgres
server = EmbeddedPostgres(sys.argv[1]).start()
if os.fork() == 0:
    sys.exit()  # runs what is registered at exit
os.wait()
print(server.is_running(), flush=True)
if os.fork() == 0:
    sys.stdin.readline()  # outlives its parent
    os._exit(0)
""",
        root,
    )
    assert forking.stdin is not None
    assert forking.stdout is not None

    running_after_child = forking.stdout.readline()
    forking.wait(timeout=WAIT_SECONDS)

    assert running_after_child == "True\n"
    assert not EmbeddedPostgres(root).is_running()
    forking.communicate("\n", timeout=WAIT_SECONDS)


@on_linux
def test_the_server_inherits_no_lock(root: Path) -> None:
    with EmbeddedPostgres(root) as running:
        descriptors = Path(f"/proc/{running.postmaster_pid()}/fd")
        opened = {entry.readlink().name for entry in descriptors.iterdir()}

    assert not opened & {"users.lock", "start.lock"}


@pytest.mark.slow
def test_a_killed_server_starts_again_with_what_was_committed(root: Path) -> None:
    with EmbeddedPostgres(root) as running:
        store(running, "committed")
        killed = running.postmaster_pid()

        assert running.kill()
        assert not running.is_running()
        running.start(stop_at_exit=False)

        assert running.postmaster_pid() != killed
        assert value(running, "SELECT text FROM kept") == "committed"


@pytest.mark.parametrize("mode", ["fast", "immediate"])
def test_restart_brings_back_what_was_committed(
    root: Path, mode: server.StopMode
) -> None:
    with EmbeddedPostgres(root) as running:
        store(running, "committed")
        before = running.postmaster_pid()

        running.restart(mode)

        assert running.postmaster_pid() != before
        assert value(running, "SELECT text FROM kept") == "committed"


def test_leaving_after_the_server_was_killed_is_no_error(root: Path) -> None:
    running = EmbeddedPostgres(root).start()
    running.kill()

    assert running.stop_if_last() is False


@pytest.mark.slow
def test_a_killed_starter_leaves_a_folder_the_next_can_use(folder: Path) -> None:
    root = folder / "postgres"
    starter = spawn_user(root)
    deadline = time.monotonic() + WAIT_SECONDS
    while not (root / "data.new").exists():
        assert time.monotonic() < deadline

    kill(starter)  # its initdb goes on, and holds the turn

    with EmbeddedPostgres(root) as running:
        assert value(running, "SELECT 1") == 1
    assert not (root / "data.new").exists()


@pytest.mark.slow
def test_half_a_cluster_is_made_anew(folder: Path) -> None:
    unfinished = folder / "data.new"
    unfinished.mkdir()
    (unfinished / "PG_VERSION").write_text("18\n")

    with EmbeddedPostgres(folder) as running:
        assert value(running, "SELECT 1") == 1


@pytest.mark.slow
@on_linux
@pytest.mark.parametrize("is_hidden", [False, True], ids=["seen", "hidden"])
def test_a_number_that_names_another_process_does_not_block_the_start(
    root: Path, monkeypatch: pytest.MonkeyPatch, is_hidden: bool
) -> None:
    if is_hidden:  # as process 1 of a container, even from root
        monkeypatch.setattr(Path, "readlink", refuse)
    with EmbeddedPostgres(root) as running:
        running.kill()
        for name in ("data/postmaster.pid", ".s.PGSQL.5432.lock"):
            rest = (root / name).read_text().partition("\n")[2]
            (root / name).write_text(f"{os.getppid()}\n{rest}")

        running.start(stop_at_exit=False)

        assert value(running, "SELECT 1") == 1


def refuse(path: Path) -> Path:
    raise PermissionError(13, "Permission denied", str(path))


def test_data_of_another_major_version_is_refused_and_left_alone(root: Path) -> None:
    version = root / "data" / "PG_VERSION"
    before = version.read_text()
    version.write_text("9\n")
    names = {path.name for path in (root / "data").iterdir()}

    with pytest.raises(StandaloneError, match=r"made by PostgreSQL 9, but .*RELAY_PG"):
        EmbeddedPostgres(root).start()

    assert {path.name for path in (root / "data").iterdir()} == names
    assert not EmbeddedPostgres(root).is_in_use()
    version.write_text(before)


def test_a_server_that_cannot_start_is_an_error_with_its_log(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "RETRY_SECONDS", 0)

    with pytest.raises(StandaloneError, match="no_such_option"):
        EmbeddedPostgres(root, options={"no_such_option": 1}).start()

    assert not EmbeddedPostgres(root).is_in_use()


def test_a_long_path_takes_a_short_private_socket_folder(root: Path) -> None:
    with renamed(root, "long" * 30) as long, EmbeddedPostgres(long) as running:
        socket_folder = Path(str(running.django_settings()["HOST"]))
        mode = stat.S_IMODE(socket_folder.stat().st_mode)
        running.restart()
        answer = value(running, "SELECT 1")

    assert not socket_folder.exists()
    assert len(str(socket_folder)) < 40
    assert mode == 0o700
    assert answer == 1


def test_a_socket_folder_laid_out_by_others_is_refused(root: Path) -> None:
    elsewhere = root.parent / "elsewhere"
    elsewhere.mkdir(mode=0o700)
    with renamed(root, "long" * 30) as long:
        running = EmbeddedPostgres(long)
        socket_folder = Path(str(running.django_settings()["HOST"]))
        socket_folder.symlink_to(elsewhere)

        with pytest.raises(StandaloneError, match="mode 0700"):
            running.start()
        socket_folder.unlink()
        socket_folder.mkdir()
        socket_folder.chmod(0o755)
        with pytest.raises(StandaloneError, match="mode 0700"):
            running.start()
        socket_folder.rmdir()


@pytest.mark.parametrize("name", ["with space", 'quote\'s "two"', "a,b", "50%+$HOME"])
def test_any_name_of_a_folder_will_do(root: Path, name: str) -> None:
    with renamed(root, name) as named, EmbeddedPostgres(named) as running:
        settings = running.django_settings()
        with psycopg.connect(
            host=settings["HOST"], user=settings["USER"], dbname=settings["NAME"]
        ) as connection:
            folder = connection.execute("SHOW data_directory").fetchone()

        assert folder == (str(named / "data"),)
        assert value(running, "SELECT 1") == 1


@pytest.mark.slow
def test_closed_parent_folders_stay_closed(folder: Path) -> None:
    parent = folder / "parent"
    parent.mkdir(mode=0o700)

    with EmbeddedPostgres(parent / "a" / "b") as running:
        assert value(running, "SELECT 1") == 1

    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE(parent.stat().st_mode) == 0o700
    assert stat.S_IMODE((parent / "a" / "b").stat().st_mode) == 0o700


@pytest.mark.slow
def test_several_clusters_run_side_by_side_with_their_own_options(
    root: Path, folder: Path
) -> None:
    with (
        EmbeddedPostgres(root) as one,
        EmbeddedPostgres(folder / "two", options={"max_connections": 7}) as two,
    ):
        assert value(one, "SHOW max_connections") == "200"
        assert value(two, "SHOW max_connections") == "7"


def test_durability_is_on_and_no_port_is_open(root: Path) -> None:
    with EmbeddedPostgres(root) as running:
        names = ("fsync", "synchronous_commit", "full_page_writes", "listen_addresses")
        assert [value(running, f"SHOW {name}") for name in names] == [
            "on",
            "on",
            "on",
            "",
        ]


def test_variables_of_libpq_do_not_move_the_server(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGPORT", "5999")
    monkeypatch.setenv("PGDATA", "/nonexistent")

    with EmbeddedPostgres(root):
        assert (root / ".s.PGSQL.5432").exists()


def test_a_server_without_a_free_connection_still_runs(root: Path) -> None:
    options = {
        "max_connections": 2,
        "superuser_reserved_connections": 0,
        "reserved_connections": 0,
        "max_wal_senders": 0,
        "autovacuum": "off",
    }
    if binaries.find_binaries().major < 16:
        del options["reserved_connections"]

    with (
        EmbeddedPostgres(root, options=options) as running,
        contextlib.ExitStack() as s,
    ):
        for _ in range(2):
            s.enter_context(psycopg.connect(running.dsn()))
        with pytest.raises(psycopg.OperationalError, match="too many clients"):
            psycopg.connect(running.dsn())

        assert running.is_running()


def test_a_long_log_is_cut_and_its_end_kept(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster, "LOG_BYTES", 1_000)
    (root / "postgres.log").write_text("~" * 2_000 + "the end\n")

    with EmbeddedPostgres(root) as running:
        assert "~" not in running.log.read_text()

    assert (root / "postgres.log.1").read_text().endswith("~the end\n")


def test_create_database_is_repeatable(root: Path) -> None:
    with EmbeddedPostgres(root) as running:
        made = [running.create_database('odd"name') for _ in range(2)]

        with psycopg.connect(running.dsn('odd"name')) as connection:
            name = connection.execute("SELECT current_database()").fetchone()
        with psycopg.connect(running.dsn(), autocommit=True) as connection:
            connection.execute('DROP DATABASE "odd""name"')

    assert made == [True, False]
    assert name == ('odd"name',)


def test_a_starter_waits_for_its_turn_and_gives_up_with_a_reason(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "TURN_SECONDS", 0.1)
    with server.FileLock(root / "start.lock") as turn:
        assert turn.take()

        with pytest.raises(StandaloneError, match="another process has been starting"):
            EmbeddedPostgres(root).stop()


def test_threads_may_start_one_server_each(root: Path) -> None:
    users = [EmbeddedPostgres(root) for _ in range(3)]
    threads = [threading.Thread(target=user.start) for user in users]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len({user.postmaster_pid() for user in users}) == 1
    assert [user.stop_if_last() for user in users] == [False, False, True]


def test_a_terminated_user_leaves_the_server_to_the_next(root: Path) -> None:
    user = spawn_user(root)
    postmaster = postmaster_of(user)

    user.send_signal(signal.SIGTERM)
    user.communicate(timeout=WAIT_SECONDS)

    with EmbeddedPostgres(root) as running:
        assert running.postmaster_pid() == postmaster
    assert running.postmaster_pid() is None


def test_a_lock_is_not_held_by_a_forked_child(folder: Path) -> None:
    lock = server.FileLock(folder / "lock")
    assert lock.take()

    child = os.fork()
    if child == 0:
        os._exit(1 if lock.is_open else 0)

    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert lock.is_open
    lock.release()
