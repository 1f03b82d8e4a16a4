"""Names that there are not."""

from __future__ import annotations

from relay.nearest import meant, nearest, unknown

KNOWN = ("priority", "queue", "run_at")


def test_a_slip_is_told_what_was_meant() -> None:
    assert meant("prioritty", KNOWN) == " (did you mean priority?)"
    assert meant("colour", KNOWN) == ""
    assert meant("priority" * 10_000, KNOWN) == ""


def test_the_nearest_one_is_told_if_it_is_as_near_as_asked_for() -> None:
    assert nearest("runat", KNOWN) == "run_at"
    assert nearest("rat", KNOWN, alike=0.9) is None


def test_each_unknown_name_stands_before_those_that_there_are() -> None:
    assert unknown({"queu", 7}, KNOWN) == (
        "7, queu (did you mean queue?): there are priority, queue, run_at"
    )
