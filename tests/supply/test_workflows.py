"""What publishes a release is pinned as firmly as what it publishes."""

from __future__ import annotations

import re

from requirements.locks import FOLDER

WORKFLOWS = FOLDER.parent / ".github" / "workflows"


def test_each_action_of_a_workflow_is_one_commit() -> None:
    used = [
        line
        for workflow in WORKFLOWS.glob("*.yml")
        for line in workflow.read_text().splitlines()
        if "uses:" in line
    ]

    assert used
    for line in used:
        assert re.fullmatch(r" +- uses: [\w-]+/[\w-]+@[0-9a-f]{40} # v[\d.]+", line)


def test_the_job_with_an_identity_runs_nothing_of_the_repository() -> None:
    text = (WORKFLOWS / "release.yml").read_text()

    before, publish = text.split("\n  publish:\n")

    assert "id-token: write" in publish
    assert "id-token" not in before
    assert "run:" not in publish
    assert "checkout" not in publish
