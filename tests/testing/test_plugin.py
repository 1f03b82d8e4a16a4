"""The pytest plugin, in a run of pytest of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.docs.pages import blocks

ROOT = Path(__file__).resolve().parent.parent.parent
PAGE = ROOT / "docs" / "howto" / "test-your-jobs.md"

TESTS = """
import pytest
from relay.engine import enqueue

plain = enqueue.insert

def test_no_test_is_touched_that_asks_for_nothing():
    assert enqueue.insert.__module__ == "relay.engine.enqueue"

@pytest.mark.django_db
def test_the_fixture_leaves_jobs_to_drain(relay):
    from tests.testing import tasks
    job = tasks.note.enqueue(1)
    relay.assert_enqueued(tasks.note, args={"value": 1})
    relay.travel(hours=1)
    assert relay.drain().completed == 1

@pytest.mark.django_db
@pytest.mark.relay("inline")
def test_the_marker_says_the_mode():
    from tests.testing import tasks
    assert tasks.note.enqueue(1).state == "completed"

@pytest.mark.django_db
@pytest.mark.relay("inline")
def test_the_marker_is_stronger_than_the_fixture(relay):
    from tests.testing import tasks
    assert tasks.note.enqueue(1).state == "completed"
"""


@pytest.mark.slow
def test_the_fixture_and_the_marker_work_and_touch_no_other_test(
    tmp_path: Path, postgres: object
) -> None:
    (tmp_path / "test_with_plugin.py").write_text(TESTS)
    (tmp_path / "shop").mkdir()
    for block in blocks(PAGE):
        if block.file:
            (tmp_path / block.file).write_text(block.text)
    (tmp_path / "shop" / "tests.py").unlink()
    name = os.environ.get("RELAY_TEST_DATABASE", "relay") + "_plugin"

    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "--strict-markers",
            "-p",
            "relay.pytest_plugin",
            "-p",
            "no:cacheprovider",
            "-c",
            str(ROOT / "pyproject.toml"),
            "--rootdir",
            str(ROOT),
            str(tmp_path),
        ],
        cwd=ROOT,
        env=os.environ
        | {
            "RELAY_TEST_DATABASE": name,
            "PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT)]),
        },
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )

    assert "7 passed" in done.stdout, done.stdout + done.stderr


def test_pytest_finds_the_plugin_of_an_installed_relay() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

    # One name for both ways of loading it, so that they are the same plugin.
    assert project["entry-points"]["pytest11"] == {
        "relay.pytest_plugin": "relay.pytest_plugin"
    }
