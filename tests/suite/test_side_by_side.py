"""Runs of the tests beside each other."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]


@pytest.mark.usefixtures("db")
def test_a_second_run_on_the_same_database_is_refused() -> None:
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-pno:cacheprovider"),
            "tests/engine/test_labels.py",
        ],
        capture_output=True,
        check=False,
        text=True,
        cwd=REPOSITORY,
        timeout=180,
    )

    said = done.stdout + done.stderr
    assert "other tests run on the database" in said
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
