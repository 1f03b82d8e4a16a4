"""relay.logs: the lines of one attempt."""

from __future__ import annotations

import contextvars
import io
import logging
import sys
import threading
from collections.abc import Callable
from contextlib import redirect_stdout
from typing import Any

import pytest

from relay import logs
from relay.logs import Capture, JobLog


def captured(
    act: Callable[[], Any], *, limit_bytes: int = 10_000, with_stdout: bool = False
) -> str:
    """Run act as an attempt that is captured; return its text."""
    capture = Capture(limit_bytes=limit_bytes, with_stdout=with_stdout)

    def run() -> str:
        logs.begin(capture)
        try:
            act()
        finally:
            text = logs.end(capture)
        return text

    return contextvars.copy_context().run(run)


def test_records_of_the_context_are_kept_with_time_level_and_logger() -> None:
    text = captured(lambda: logging.getLogger("shop").warning("paid %d", 42))

    assert text.endswith("Z WARNING shop: paid 42")
    assert logs._handler not in logging.getLogger().handlers


def test_a_thread_that_shares_the_context_is_heard_and_another_is_not() -> None:
    def log_in_thread(run: Callable[..., Any], text: str) -> None:
        thread = threading.Thread(target=run, args=(logging.warning, text))
        thread.start()
        thread.join()

    def act() -> None:
        log_in_thread(contextvars.copy_context().run, "within")
        log_in_thread(contextvars.Context().run, "without")

    text = captured(act)

    assert "within" in text
    assert "without" not in text


def test_two_attempts_at_once_keep_their_own_lines() -> None:
    inner: list[str] = []

    def act() -> None:
        logging.warning("outer")
        other = contextvars.Context()
        inner.append(other.run(captured, lambda: logging.warning("inner")))
        logging.warning("outer again")

    outer = captured(act)

    assert ["inner" in inner[0], "outer" in inner[0]] == [True, False]
    assert outer.count("outer") == 2
    assert "inner" not in outer


def test_of_too_much_the_first_and_the_last_is_kept() -> None:
    def act() -> None:
        for number in range(1_000):
            logging.warning("line %d", number)

    text = captured(act, limit_bytes=2_000)
    lines = text.splitlines()

    assert len(text.encode()) < 2_100
    assert lines[0].endswith("line 0")
    assert lines[-1].endswith("line 999")
    [gap] = [line for line in lines if "lines left out" in line]
    assert int(gap.split()[1].replace(",", "")) == 1_000 - (len(lines) - 1)


def test_of_too_many_lines_the_first_and_the_last_are_kept() -> None:
    def act() -> None:
        logging.warning("\n".join(["x"] * 10_000))

    lines = captured(act, limit_bytes=1_000_000).splitlines()

    assert len(lines) == logs.LINES_LIMIT + 1


def test_one_huge_line_is_cut_and_what_no_row_can_hold_is_shown_escaped() -> None:
    long = "a\x00\ud800" + "x" * 100_000
    text = captured(lambda: logging.warning(long), limit_bytes=100_000)

    assert len(text) == logs.LINE_LIMIT
    assert len(captured(lambda: logging.warning(long), limit_bytes=1_000)) == 125
    assert "a\\x00\\ud800" in text


def test_a_traceback_is_kept() -> None:
    def act() -> None:
        try:
            raise ValueError("bad")
        except ValueError:
            logging.exception("failed")

    assert "ValueError: bad" in captured(act)


def test_a_record_that_cannot_be_formatted_harms_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(logging, "raiseExceptions", False)

    def act() -> None:
        logging.getLogger("shop").warning("%d", "no number")
        logging.getLogger("shop").warning("after")

    assert captured(act).endswith("after")


def test_prints_are_kept_where_that_is_asked_for_and_printed_all_the_same(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def act() -> None:
        print("one\ntwo", end="")  # noqa: T201 - what is tested
        print(" and more")  # noqa: T201
        print("no end", end="")  # noqa: T201

    own = sys.stdout
    text = captured(act, with_stdout=True)

    lines = [line.split(" PRINT ")[1] for line in text.splitlines()]
    assert lines == ["stdout: one", "stdout: two and more", "stdout: no end"]
    assert sys.stdout is own
    assert captured(act) == ""
    assert capsys.readouterr().out == 2 * "one\ntwo and more\nno end"


def test_a_print_is_kept_once_though_a_redirection_outlived_an_earlier_attempt() -> (
    None
):
    own, elsewhere = sys.stdout, io.StringIO()
    redirection = redirect_stdout(elsewhere)
    try:
        captured(redirection.__enter__, with_stdout=True)
        redirection.__exit__(None, None, None)

        text = captured(lambda: print("once"), with_stdout=True)  # noqa: T201 - what is tested

        assert text.count("once") == 1
        assert sys.stdout is own
    finally:
        sys.stdout = own


def test_the_job_s_own_log_is_captured_whatever_the_level_of_the_project_s() -> None:
    log = JobLog({"job_id": "7"})
    log.logger.setLevel(logging.ERROR)
    try:

        def act() -> None:
            log.info("paid %d", 42)
            log.debug("too much")
            log.error("gone")
            try:
                raise ValueError("bad")
            except ValueError as error:
                log.info("tried", exc_info=error)

        text = captured(act)
        assert not log.isEnabledFor(logging.INFO)
    finally:
        log.logger.setLevel(logging.NOTSET)

    assert "INFO relay.job: paid 42" in text
    assert "too much" not in text
    assert text.count("gone") == 1
    assert "ValueError: bad" in text


def test_the_job_s_own_log_says_which_job_it_is(
    caplog: pytest.LogCaptureFixture,
) -> None:
    JobLog({"job_id": "7"}).warning("late", extra={"order": 42})

    [record] = caplog.records
    fields = vars(record)
    assert (fields["job_id"], fields["order"], record.name) == ("7", 42, "relay.job")


def test_what_is_printed_where_no_stdout_is_left_is_captured_still(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "stdout", None)

    text = captured(lambda: print("to nobody"), with_stdout=True)  # noqa: T201 - what is tested

    assert "to nobody" in text
