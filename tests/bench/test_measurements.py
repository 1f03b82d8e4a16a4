"""The measurements at their smallest: they run, and say what they must."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from relay.standalone.postgres import EmbeddedPostgres

REPOSITORY = Path(__file__).resolve().parents[2]
JOBS = 30


@pytest.fixture(scope="module")
def run(postgres: EmbeddedPostgres | None, tmp_path_factory: Any) -> Any:
    """Return the table and the JSON of one run."""
    out = tmp_path_factory.mktemp("bench") / "latest.json"
    environment = dict(os.environ)
    environment.pop("DJANGO_SETTINGS_MODULE", None)
    if postgres is not None:
        environment["DATABASE_URL"] = postgres.dsn()
    done = subprocess.run(
        [
            *(sys.executable, "-m", "bench", "enqueue", "bulk", "drain", "latency"),
            *("--rounds", "1", "--jobs", str(JOBS), "--no-rivals", "--out", out),
        ],
        cwd=REPOSITORY,
        env=environment,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout, json.loads(out.read_text())


@pytest.mark.slow
def test_a_run_states_machine_versions_command_and_every_round(run: Any) -> None:
    _, report = run

    assert report["machine"].keys() >= {
        "at",
        "cores",
        "memory_gib",
        "kernel",
        "python",
        "django",
        "psycopg",
        "postgresql",
        "settings",
        "relay_commit",
    }
    assert report["machine"]["settings"]["synchronous_commit"] == "on"
    assert report["command"][:3] == ["python", "-m", "bench"]
    assert set(report["results"]) == {"enqueue", "bulk", "drain", "latency"}
    for result in report["results"].values():
        for row in result["rows"]:
            each = row["relay"]["each"]
            assert len(each) == 1
            assert min(each) <= row["relay"]["median"] <= max(each)
            # A job may start before its enqueue has returned to who measures.
            assert row["unit"] == "ms" or min(each) > 0


@pytest.mark.slow
def test_a_row_of_the_table_shows_relay_beside_the_ceiling(run: Any) -> None:
    printed, report = run

    lines = printed.splitlines()
    rows = [row for result in report["results"].values() for row in result["rows"]]

    assert lines[0].split()[:3] == ["work", "relay", "ceiling"]
    assert [line.split("  ")[0] for line in lines[1:]] == [row["work"] for row in rows]
    [single] = report["results"]["enqueue"]["rows"]
    ratio = single["ceiling"]["ratio"]["each"][0]
    assert ratio == pytest.approx(
        single["relay"]["each"][0] / single["ceiling"]["each"][0]
    )
    assert f"{single['ceiling']['ratio']['median']:.2f}" in lines[1]
