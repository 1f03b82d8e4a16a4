"""The demo as a user starts it: in a process of its own, in a folder of its own."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest
from PIL import Image

from relay.exceptions import StandaloneError
from relay.standalone.demo.files import SAMPLES, find_files
from relay.standalone.demo.terminal import printable
from relay.standalone.postgres import EmbeddedPostgres
from tests.waiting import until

REPOSITORY = Path(__file__).resolve().parents[2]
# For a machine at its slowest: of the jobs, and of a whole run.
BUDGET_SECONDS = 150
WAIT_SECONDS = 240


@pytest.fixture
def place() -> Iterator[Path]:
    """A short folder to start the demo in; nothing may be left running in it."""
    made = Path(tempfile.mkdtemp(prefix="relay-demo-")).resolve()
    yield made
    shutil.rmtree(made)


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """A run of the demo on its own files that served the admin until SIGINT.

    Attributes:
        taken_port: asked for, but in use.
        page: what the dashboard's address led to, the admin's login.
    """

    place: Path
    code: int
    output: str
    errors: str
    taken_port: int
    page: str


@pytest.fixture(scope="module")
def first_run() -> Iterator[Served]:
    made = Path(tempfile.mkdtemp(prefix="relay-demo-")).resolve()
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with started(made, "--port", str(port)) as process:
            written(made / "output", r"^admin +(\S+)$", process)
            address = written(made / "output", r"^dashboard +(\S+)$", process)
            written(made / "output", r"^password +(\S{12,})$", process)
            with urllib.request.urlopen(address, timeout=60) as answer:
                page = answer.read().decode()
            process.send_signal(signal.SIGINT)
            code = process.wait(WAIT_SECONDS)
    yield Served(
        place=made,
        code=code,
        output=(made / "output").read_text(),
        errors=(made / "errors").read_text(),
        taken_port=port,
        page=page,
    )
    shutil.rmtree(made)


def environment() -> dict[str, str]:
    kept = {
        name: value
        for name, value in os.environ.items()
        if name not in ("DATABASE_URL", "DJANGO_SETTINGS_MODULE")
    }
    return {**kept, "PYTHONPATH": str(REPOSITORY)}


def command(*arguments: str) -> list[str]:
    budget = ("--budget", str(BUDGET_SECONDS))
    return [sys.executable, "-m", "relay.standalone.demo", *budget, *arguments]


def run(place: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(*arguments),
        capture_output=True,
        check=False,
        text=True,
        cwd=place,
        env=environment(),
        timeout=WAIT_SECONDS,
    )


def left_over(place: Path) -> list[str]:
    """Return the processes whose command line or environment names the folder."""
    found: list[str] = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if process.name == str(os.getpid()):
                continue
            text = process.joinpath("cmdline").read_bytes()
            text += process.joinpath("environ").read_bytes()
            if os.fsencode(place) in text:
                found.append(f"{process.name} {text!r}")
    return found


def written(output: Path, pattern: str, process: subprocess.Popen[bytes]) -> str:
    """Wait for a line of the running demo's; return the group of the pattern."""

    def look() -> str | None:
        is_running = process.poll() is None
        found = re.search(pattern, output.read_text(), re.MULTILINE)
        assert found or is_running, (output.parent / "errors").read_text()
        return found[1] if found else None

    return until(look, seconds=WAIT_SECONDS, what=pattern)


@contextlib.contextmanager
def started(place: Path, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """Start the demo with its output in place/output; killed if it is left running."""
    with (place / "output").open("wb") as output, (place / "errors").open("wb") as bad:
        process = subprocess.Popen(
            command(*arguments),
            stdout=output,
            stderr=bad,
            cwd=place,
            env=environment(),
        )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()


# --- the whole demo ------------------------------------------------------------------


@pytest.mark.slow
def test_every_job_completes_though_a_worker_is_killed(
    first_run: Served,
) -> None:
    told = first_run.output

    assert first_run.code == 0, told + first_run.errors
    verdict = re.search(
        r"^(\d+) jobs enqueued, (\d+) completed, 0 lost$", told, re.MULTILINE
    )
    assert verdict is not None, told
    assert verdict[1] == verdict[2]
    assert re.search(r"kill: SIGKILL to worker-[ab]-1", told)
    assert re.search(r"takeover: worker-[ab]-1 completed .* after the kill", told)
    assert re.search(r"retry: list_files .* failed at attempt 1 \(OnPurpose", told)
    # Its second attempt may have been in the killed worker's hands.
    assert re.search(
        r"retry: list_files .* completed at attempt \d"
        r"|takeover: .* completed list_files .*, attempt \d",
        told,
    )
    assert "schedule: due " in told
    assert first_run.errors == ""
    assert left_over(first_run.place) == []


@pytest.mark.slow
def test_the_output_is_plain_lines_where_there_is_no_terminal(
    first_run: Served,
) -> None:
    assert first_run.output.isascii()
    assert not re.search(r"[\x00-\x09\x0b-\x1f]", first_run.output)


@pytest.mark.slow
def test_thumbnails_fit_their_sizes(first_run: Served) -> None:
    made = sorted((first_run.place / ".relay" / "demo" / "thumbnails").iterdir())

    assert len(made) == 8 * 4
    for path in made:
        with Image.open(path) as image:
            assert max(image.size) == int(path.name.split(".")[-2])


@pytest.mark.slow
def test_one_small_file_is_enough_for_a_takeover(place: Path) -> None:
    (place / "files").mkdir()
    (place / "files" / "note.txt").write_text("text")

    done = run(place, "--once", "--folder", "files")

    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"kill: SIGKILL to worker-[ab]-1", done.stdout)
    assert re.search(r"(\d+) jobs enqueued, \1 completed, 0 lost$", done.stdout, re.M)


@pytest.mark.slow
def test_a_second_run_reuses_the_data_and_never_writes_to_the_folder(
    first_run: Served,
) -> None:
    place = first_run.place
    folder = place / "files"
    folder.mkdir()
    shutil.copy(SAMPLES / "sea.jpg", folder)
    (folder / "no-image.jpg").write_text("text")
    (folder / "damaged.png").write_bytes((SAMPLES / "night.png").read_bytes()[:2000])
    before = {path: path.stat().st_mtime_ns for path in (folder, *folder.iterdir())}

    done = run(place, "--once", "--folder", "files")

    assert done.returncode == 0, done.stdout + done.stderr
    assert "(reused)" in done.stdout
    assert re.search(r"reused: the database has \d+ jobs of earlier runs", done.stdout)
    assert "3, 2 of them images" in done.stdout
    assert "damaged.png is damaged" in done.stdout
    assert re.search(r"completed, 0 lost, 4 failed$", done.stdout, re.MULTILINE)
    assert before == {
        path: path.stat().st_mtime_ns for path in (folder, *folder.iterdir())
    }
    assert left_over(place) == []


@pytest.mark.slow
def test_schedules_that_a_user_added_are_not_counted_and_take_no_time(
    first_run: Served,
) -> None:
    place = first_run.place
    (place / "one").mkdir()
    shutil.copy(SAMPLES / "sea.jpg", place / "one")
    add_schedules(place)

    done = run(place, "--once", "--folder", "one")

    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"^6 jobs by the demo, \d+ by its", done.stdout, re.MULTILINE)
    verdict = re.search(
        r"^(\d+) jobs enqueued, (\d+) completed, 0 lost$", done.stdout, re.MULTILINE
    )
    assert verdict is not None, done.stdout
    assert verdict[1] == verdict[2]
    killed = re.search(r"killed with (\d+) jobs? in hand.* (\d+) of", done.stdout)
    assert killed is not None, done.stdout
    assert killed[1] == killed[2]


def add_schedules(place: Path) -> None:
    """Add what a user may: jobs that nobody runs, that fail, and very many of them."""
    [data] = (place / ".relay" / "demo" / "postgres").glob("*/data")
    task = "relay.standalone.demo.tasks"
    with (
        EmbeddedPostgres(data.parent) as server,
        psycopg.connect(server.dsn("demo"), autocommit=True) as session,
    ):
        for name, function, queue, catch_up in (
            ("nobody", "count", "elsewhere", "latest"),
            ("failing", "thumbnail", "demo", "latest"),
            ("flood", "checksum", "demo", "all"),
        ):
            session.execute(
                "INSERT INTO relay_schedule (id, name, task, args, cron, seconds, "
                "catch_up, queue, next_due_at) VALUES (gen_random_uuid(), %s, %s, "
                "'{}', '* * * * * *', true, %s, %s, now() - interval '40 minutes')",
                (name, f"{task}.{function}", catch_up, queue),
            )


@pytest.mark.slow
def test_the_dashboard_and_the_admin_are_served_until_a_signal_on_the_next_free_port(
    first_run: Served,
) -> None:
    assert f"port {first_run.taken_port} is in use" in first_run.output
    assert 'name="username"' in first_run.page
    assert first_run.code == 0


@pytest.mark.slow
@pytest.mark.parametrize("mark", ["^ .*(start: worker-a)", "^ .*(kill: SIGKILL)"])
def test_a_signal_in_between_stops_everything(place: Path, mark: str) -> None:
    with started(place, "--once") as process:
        written(place / "output", mark, process)
        process.send_signal(signal.SIGTERM)
        code = process.wait(WAIT_SECONDS)

    assert code == 130
    assert "stopped: PostgreSQL" in (place / "output").read_text()
    assert left_over(place) == []


@pytest.mark.slow
def test_too_small_a_budget_fails(place: Path) -> None:
    done = run(place, "--once", "--budget", "1")

    assert done.returncode == 1
    assert "not finished in time" in done.stdout
    assert left_over(place) == []


# --- what is refused -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("folder", "reason"),
    [
        ("missing", "No such file"),
        ("empty", "has no file"),
        ("file", "Not a directory"),
    ],
)
def test_a_folder_without_files_is_refused_before_anything_starts(
    place: Path, folder: str, reason: str
) -> None:
    (place / "empty").mkdir()
    (place / "file").write_text("")

    done = run(place, "--once", "--folder", folder)

    assert done.returncode == 1
    assert done.stdout == ""
    assert reason in done.stderr
    assert "Traceback" not in done.stderr
    assert not (place / ".relay").exists()


def test_a_second_demo_on_the_same_data_is_refused(place: Path) -> None:
    data = place / "data"
    data.mkdir()
    holder = (
        "import sys; from pathlib import Path\n"
        "from relay.standalone.postgres.locks import FileLock\n"
        "lock = FileLock(Path(sys.argv[1])); print(lock.take(), flush=True)\n"
        "sys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", holder, str(data / "demo.lock")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment(),
    ) as other:
        assert other.stdout is not None
        other.stdout.readline()
        done = run(place, "--once", "--data", "data")
        other.kill()

    assert done.returncode == 1
    assert "another demo is using" in done.stderr


# --- files ---------------------------------------------------------------------------


def test_hidden_files_and_folders_do_not_count(tmp_path: Path) -> None:
    (tmp_path / ".hidden").write_text("")
    (tmp_path / "folder").mkdir()
    for name in ("b.txt", "a.txt", "c.txt"):
        (tmp_path / name).write_text(name)

    files = find_files(tmp_path, limit=2, tell=pytest.fail)

    assert [path.name for path in files.taken] == ["a.txt", "b.txt"]
    assert files.found == 3
    assert files.images == frozenset()


def test_a_file_that_cannot_be_opened_is_left_out_and_told(tmp_path: Path) -> None:
    told: list[str] = []
    (tmp_path / "gone.txt").write_text("")
    bad_name = os.fsdecode(b"\xff.txt")
    (tmp_path / bad_name).write_text("")

    files = find_files(tmp_path, limit=10, tell=told.append)

    assert [path.name for path in files.taken] == ["gone.txt"]
    assert told == ["?.txt is left out: its name is not UTF-8"]


def test_a_folder_that_may_not_be_read_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(os, "scandir", refuse)  # root may read every folder

    with pytest.raises(StandaloneError, match="Permission denied"):
        find_files(tmp_path, limit=1, tell=pytest.fail)


def test_a_name_moves_no_cursor() -> None:
    assert printable("a\x1b[2Jb\n") == "a?[2Jb?"
    assert len(printable("x" * 200)) == 32
