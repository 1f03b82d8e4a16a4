"""What a campaign says is kept as it is said, and what it kept outlives a break."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chaos.report import Report, open_report


def begin(
    folder: Path, *, jobs: int = 5, seed: int | None = None, name: str = "kill"
) -> Report:
    return open_report(
        name,
        command="python -m tests.chaos kill",
        options={"jobs": str(jobs)},
        seed=seed,
        folder=folder,
    )


def text_of(report: Report) -> str:
    return (report.folder / "report.md").read_text(encoding="utf-8")


def test_a_report_has_the_command_the_seed_and_what_was_said(tmp_path: Path) -> None:
    report = begin(tmp_path / "out", seed=7)

    report.say("All is quiet.")
    report.table("Faults", ["kind", "count"], [["child", 3], ["a|b", 1]])
    report.violations([])
    report.end(True)

    text = text_of(report)
    assert "python -m tests.chaos kill" in text
    assert "- seed: 7" in text
    assert "All is quiet." in text
    assert "| kind | count |\n| --- | --- |\n| child | 3 |\n| a\\|b | 1 |" in text
    assert "Violations: none." in text
    assert "Verdict: PASS" in text


def test_a_report_shows_the_first_violations_only(tmp_path: Path) -> None:
    report = begin(tmp_path / "out")

    report.violations([f"J1: number {number}" for number in range(25)])
    report.end(False)

    text = text_of(report)
    assert "Violations: 25" in text
    assert "J1: number 19" in text
    assert "J1: number 20" not in text
    assert "… and 5 more" in text
    assert "Verdict: FAIL" in text


def test_a_report_that_did_not_end_says_so(tmp_path: Path) -> None:
    report = begin(tmp_path / "out")

    report.say("Still at it.")

    assert "Still at it." in text_of(report)
    assert "Verdict: did not end." in text_of(report)


def test_an_interrupted_campaign_goes_on_with_its_seed_and_what_it_kept(
    tmp_path: Path,
) -> None:
    first = begin(tmp_path / "out")
    first.keep("segment-0", {"jobs": 5})
    for number in range(2):
        (first.folder / f"segment-{number}").mkdir()

    second = begin(tmp_path / "out")

    assert second.seed == first.seed
    assert second.kept("segment-0") == {"jobs": 5}
    assert second.kept("segment-1") is None
    assert (second.folder / "segment-0").exists()
    assert not (second.folder / "segment-1").exists()


@pytest.mark.parametrize("change", ["ended", "other options", "other seed"])
def test_any_other_campaign_starts_anew(tmp_path: Path, change: str) -> None:
    first = begin(tmp_path / "out", seed=1)
    first.keep("segment-0", {"jobs": 5})
    if change == "ended":
        first.end(True)

    second = begin(
        tmp_path / "out",
        jobs=6 if change == "other options" else 5,
        seed=2 if change == "other seed" else None,
    )

    assert second.kept("segment-0") is None


def test_a_folder_of_somebody_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "letter.txt").write_text("dear all")

    with pytest.raises(SystemExit, match="not a campaign's"):
        begin(tmp_path)

    assert (tmp_path / "letter.txt").exists()
