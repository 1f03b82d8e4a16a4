"""Names that there are not."""

from __future__ import annotations

from relay.nearest import meant, unknown

KNOWN = ("priority", "queue", "run_at")


def test_a_slip_is_told_what_was_meant() -> None:
    assert meant("prioritty", KNOWN) == " (did you mean priority?)"
    assert meant("colour", KNOWN) == ""
    assert meant("priority" * 10_000, KNOWN) == ""


def test_each_unknown_name_stands_before_those_that_there_are() -> None:
    assert unknown({"queu", 7}, KNOWN) == (
        "7, queu (did you mean queue?): there are priority, queue, run_at"
    )
