"""The types of the public names, checked by running mypy and pyright on samples."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent


def mypy(sample: Path) -> dict[int, set[str]]:
    """Run mypy on the sample: the codes of its errors by line."""
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "mypy",
            "--no-pretty",
            "--show-error-codes",
            "--hide-error-context",
            "--no-error-summary",
            str(sample),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode in (0, 1), done.stdout + done.stderr
    errors: dict[int, set[str]] = {}
    for line in done.stdout.splitlines():
        found = re.match(r"(.*?):(\d+): error: .*\[([a-z-]+)\]$", line)
        if found and Path(found[1]).name == sample.name:
            errors.setdefault(int(found[2]), set()).add(found[3])
    return errors


def pyright(sample: Path) -> dict[int, str]:
    """Run pyright on the sample: its complaints by line."""
    done = subprocess.run(
        [
            *(sys.executable, "-m", "basedpyright", "--outputjson"),
            *("--pythonpath", sys.executable, str(sample)),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode in (0, 1), done.stdout + done.stderr
    said = json.loads(done.stdout)
    assert said["summary"]["filesAnalyzed"] == 1
    return {
        each["range"]["start"]["line"] + 1: each["message"]
        for each in said["generalDiagnostics"]
    }


CHECKERS = {"mypy": ("mypy", mypy), "pyright": ("basedpyright", pyright)}


@pytest.mark.slow
@pytest.mark.parametrize("checker", CHECKERS)
def test_what_is_right_passes(checker: str) -> None:
    module, check = CHECKERS[checker]
    pytest.importorskip(module, reason="the group types is not installed")

    assert check(HERE / "accepted.py") == {}


@pytest.mark.slow
def test_what_is_wrong_is_refused_where_it_stands() -> None:
    pytest.importorskip("mypy", reason="the group types is not installed")
    sample = HERE / "refused.py"
    wanted = {
        number: set(line.rpartition("# E: ")[2].split())
        for number, line in enumerate(sample.read_text().splitlines(), start=1)
        if "# E: " in line
    }

    assert mypy(sample) == wanted


@pytest.mark.slow
def test_pyright_refuses_the_same_lines() -> None:
    pytest.importorskip("basedpyright", reason="the group types is not installed")
    sample = HERE / "refused.py"
    lines = enumerate(sample.read_text().splitlines(), start=1)

    assert list(pyright(sample)) == [n for n, line in lines if "# E: " in line]
