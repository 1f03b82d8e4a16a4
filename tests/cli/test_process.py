"""The real programs: manage.py relay and the console script, as people run them."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest
from django.db import connection

from relay.ids import uuid7
from relay.models import Job
from tests.operations.factory import make_job
from tests.waiting import WAIT_SECONDS, until

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.slow]

ROOT = Path(__file__).parent.parent.parent
MANAGE = (sys.executable, "-m", "testproject", "relay")
SCRIPT = (sys.executable, "-m", "relay.cli")


def environment(folder: Path) -> dict[str, str]:
    ours = {"RELAY_SERVER", "RELAY_PROFILE", "RELAY_TOKEN", "NO_COLOR"}
    return {
        **{name: value for name, value in os.environ.items() if name not in ours},
        "DJANGO_SETTINGS_MODULE": "testproject.settings",
        "RELAY_TEST_DATABASE": connection.settings_dict["NAME"],
        "XDG_CONFIG_HOME": str(folder),
        "COLUMNS": "100",
        "TERM": "xterm",
    }


def run(
    folder: Path, *words: object, program: tuple[str, ...] = MANAGE
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*program, *map(str, words)],
        cwd=ROOT,
        env=environment(folder),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.parametrize("program", [MANAGE, SCRIPT], ids=["manage.py", "relay"])
def test_exit_codes_and_streams_are_for_scripts(
    tmp_path: Path, program: tuple[str, ...]
) -> None:
    job = make_job("queued")

    lines = [("jobs", "-q"), ("job", uuid7()), ("jobs", "--colour"), ("rm", job.pk)]
    with ThreadPoolExecutor(len(lines)) as beside:
        results = beside.map(lambda line: run(tmp_path, *line, program=program), lines)
    found, missing, unknown, unsure = results

    assert (found.returncode, found.stdout) == (0, f"{job.pk}\n")
    assert found.stderr == ""
    assert (missing.returncode, missing.stdout) == (3, "")
    assert (unknown.returncode, unknown.stdout) == (2, "")
    assert (unsure.returncode, unsure.stdout) == (2, "")
    assert "--yes" in unsure.stderr
    assert Job.objects.count() == 1


def test_a_reader_who_goes_away_ends_it_without_a_word(tmp_path: Path) -> None:
    Job.objects.bulk_create(Job(task="x", state="queued") for _ in range(1_500))
    command = f"{' '.join(MANAGE)} export | head -1"

    done = subprocess.run(
        ["bash", "-c", command],
        cwd=ROOT,
        env=environment(tmp_path),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )

    assert len(done.stdout.splitlines()) == 1
    assert done.stderr == ""


@pytest.mark.parametrize(
    ("streams", "code", "said"),
    [
        (">/dev/full", 1, "relay: the output cannot be written: No space left"),
        ("<&- >&-", 0, ""),
        ("| true", 0, ""),
    ],
)
def test_streams_that_are_closed_or_full_end_it_without_a_trace(
    tmp_path: Path, streams: str, code: int, said: str
) -> None:
    values = environment(tmp_path)
    del values["DJANGO_SETTINGS_MODULE"]

    done = subprocess.run(
        ["bash", "-c", f"{' '.join(SCRIPT)} version {streams}"],
        cwd=ROOT,
        env=values,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )

    assert done.returncode == code
    assert done.stderr.startswith(said)
    assert len(done.stderr.splitlines()) == (1 if said else 0)


def _mind_ctrl_c() -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)


class Terminal:
    """A program on a terminal of its own."""

    def __init__(self, folder: Path, *words: object) -> None:
        self._main, other = pty.openpty()
        self.process = subprocess.Popen(
            [*MANAGE, *map(str, words)],
            cwd=ROOT,
            env=environment(folder),
            stdin=other,
            stdout=other,
            stderr=other,
            start_new_session=True,
            # Who runs the tests in the background may have SIGINT ignored.
            preexec_fn=_mind_ctrl_c,
        )
        os.close(other)
        os.set_blocking(self._main, False)
        self.text = ""
        self._bytes = b""

    def read(self) -> str:
        with suppress(OSError):  # there is nothing left, or nobody any more
            while piece := os.read(self._main, 65_536):
                self._bytes += piece
        self.text = self._bytes.decode(errors="ignore")
        return self.text

    def type(self, text: str) -> None:
        os.write(self._main, text.encode())

    def wait(self) -> int:
        until(lambda: self.read() is None or self.process.poll() is not None)
        self.read()
        return self.process.wait(WAIT_SECONDS)

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._main)


@pytest.fixture
def terminals() -> Iterator[list[Terminal]]:
    started: list[Terminal] = []
    yield started
    for each in started:
        each.end()


@pytest.mark.parametrize(("answer", "code", "left"), [("y", 0, 0), ("n", 1, 1)])
def test_on_a_terminal_it_asks(
    tmp_path: Path, terminals: list[Terminal], answer: str, code: int, left: int
) -> None:
    job = make_job("completed")
    terminal = Terminal(tmp_path, "rm", job.pk)
    terminals.append(terminal)
    until(lambda: "[y/N]" in terminal.read())

    terminal.type(f"{answer}\n")

    assert terminal.wait() == code
    assert Job.objects.count() == left
    assert "delete 1 job, of DATABASES['default']" in terminal.text


def test_a_list_has_colours_on_a_terminal_and_is_cut_to_it(
    tmp_path: Path, terminals: list[Terminal]
) -> None:
    make_job("failed", task="x" * 200)
    terminal = Terminal(tmp_path, "jobs")
    terminals.append(terminal)

    assert terminal.wait() == 0
    assert "\x1b[31mfailed" in terminal.text
    assert "…" in terminal.text


def test_a_watch_ends_by_ctrl_c(tmp_path: Path, terminals: list[Terminal]) -> None:
    make_job("failed")
    terminal = Terminal(tmp_path, "jobs", "--watch", "--interval", "0.1s")
    terminals.append(terminal)
    until(lambda: terminal.read().count("failed") >= 2)

    terminal.process.send_signal(signal.SIGINT)

    assert terminal.wait() == 130
    assert "Traceback" not in terminal.text


def test_top_is_drawn_until_q(tmp_path: Path, terminals: list[Terminal]) -> None:
    terminal = Terminal(tmp_path, "top", "--interval", "0.1s")
    terminals.append(terminal)
    until(lambda: terminal.read().count("slots busy") >= 2)

    terminal.type("q")

    assert terminal.wait() == 0
    # The screen that was there before is back.
    assert terminal.text.rstrip().endswith("\x1b[?1049l")
