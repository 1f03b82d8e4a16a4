from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.scale import scale, scaled

REPOSITORY = Path(__file__).resolve().parents[2]

# The suite's own conftest, with a program that no machine has.
CONFTEST = """
import tests.conftest
from tests.conftest import *

tests.conftest.NEEDS["pgbouncer"] = tests.conftest.Need(
    program="no-such-program", package="the-package"
)
"""
TESTS = """
import pytest
from tests.scale import scaled

@pytest.mark.pgbouncer
def test_that_needs_a_program(): ...

def test_of_a_size():
    assert scaled(1000) == SIZE
"""


def run(
    folder: Path, *arguments: str, size: int = 100, **environment: str
) -> tuple[int, str]:
    (folder / "conftest.py").write_text(CONFTEST)
    (folder / "test_it.py").write_text(TESTS.replace("SIZE", str(size)))
    inherited = {
        key: value
        for key, value in os.environ.items()
        if key not in ("RELAY_REQUIRE_ALL", "RELAY_TEST_SCALE")
    }
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            f"--config-file={REPOSITORY / 'pyproject.toml'}",
            f"--rootdir={folder}",
            "-pno:cacheprovider",
            str(folder),
            *arguments,
        ],
        capture_output=True,
        check=False,
        text=True,
        cwd=REPOSITORY,
        env={**inherited, **environment},
        timeout=180,
    )
    return done.returncode, done.stdout + done.stderr


def test_what_needs_a_missing_program_is_left_out_and_said(tmp_path: Path) -> None:
    code, output = run(tmp_path)

    assert code == 0, output
    line = "left out: 1 test needs no-such-program (apt-get install the-package)"
    assert line in output.splitlines()
    assert "1 passed, 1 deselected" in output.splitlines()[-1]


def test_a_run_that_requires_all_fails_when_something_is_left_out(
    tmp_path: Path,
) -> None:
    code, output = run(tmp_path, RELAY_REQUIRE_ALL="1")

    assert code == 1
    assert "RELAY_REQUIRE_ALL is set: the run fails" in output
    assert "1 passed, 1 deselected" in output.splitlines()[-1]


def test_full_runs_at_full_size(tmp_path: Path) -> None:
    code, output = run(tmp_path, "--full", size=1000)

    assert code == 0, output
    assert "RELAY_TEST_SCALE: 1" in output


def test_a_run_at_no_whole_scale_is_refused(tmp_path: Path) -> None:
    code, output = run(tmp_path, RELAY_TEST_SCALE="half")

    assert code == pytest.ExitCode.USAGE_ERROR
    assert "give a whole number" in output


def test_the_scale_divides_sizes_down_to_the_least(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("RELAY_TEST_SCALE", "4")

    assert scaled(1000) == 250
    assert scaled(1000, least=300) == 300


@pytest.mark.parametrize("written", ["0", "-1", "half", ""])
def test_a_scale_that_is_no_whole_number_is_refused(
    monkeypatch: pytest.MonkeyPatch, written: str
) -> None:
    monkeypatch.setenv("RELAY_TEST_SCALE", written)

    with pytest.raises(ValueError, match="give a whole number"):
        scale()
