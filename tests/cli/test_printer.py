"""Tables, and what no terminal is to obey."""

from __future__ import annotations

import json
from io import BytesIO, StringIO, TextIOWrapper

from relay.cli.printer import Column, Printer, fields, inert, table
from relay.cli.shown import ago, length

COLUMNS = (
    Column("NAME", lambda each: each["name"], can_cut=True),
    Column("N", lambda each: each["n"], is_number=True),
)


class Terminal(StringIO):
    def isatty(self) -> bool:
        return True


def test_columns_stand_under_their_titles() -> None:
    rows = [{"name": "a", "n": 1}, {"name": "long name", "n": 12_345}]

    assert list(table(COLUMNS, rows)) == [
        "NAME            N",
        "a               1",
        "long name  12,345",
    ]


def test_only_a_terminal_cuts() -> None:
    rows = [{"name": "x" * 50, "n": 1}]

    [_, whole] = table(COLUMNS, rows)
    [_, cut] = table(COLUMNS, rows, width=20)

    assert "x" * 50 in whole
    assert cut == "x" * 16 + "…  1"


def test_wide_signs_take_two_columns() -> None:
    rows = [{"name": "日本", "n": 1}, {"name": "abcd", "n": 2}]

    assert list(table(COLUMNS, rows))[1:] == ["日本  1", "abcd  2"]


def test_what_a_terminal_would_obey_is_written_as_escapes() -> None:
    hostile = "\x1b]0;owned\x07\x1b[31mred\r\nnext\x9b2J\u202egnp\ud800"

    [_, shown] = table(COLUMNS, [{"name": hostile, "n": 1}])

    assert shown.isprintable()
    assert inert(hostile).isprintable()
    assert "\\x1b" in shown


def test_json_is_inert_too_and_says_all() -> None:
    out = StringIO()

    Printer(out, mode="json").document({"name": "\x1b[31m\x9b日"})

    assert out.getvalue().replace("\n", "").isprintable()
    assert json.loads(out.getvalue()) == {"name": "\x1b[31m\x9b日"}


def test_states_have_colours_on_a_terminal_alone() -> None:
    rows = [("state", "failed")]

    assert list(fields(rows)) == ["state  failed"]
    assert "\x1b[31m" in next(iter(fields(rows, colour=True)))
    assert Printer(Terminal()).has_colour
    assert not Printer(Terminal(), colour=False).has_colour
    assert not Printer(StringIO()).has_colour


def test_a_stream_that_cannot_hold_a_sign_gets_an_escape() -> None:
    raw = BytesIO()
    out = TextIOWrapper(raw, encoding="ascii")

    Printer(out).line("é")
    out.flush()

    assert raw.getvalue() == b"\\xe9\n"


def test_spans_are_short() -> None:
    assert [length(each) for each in (None, 0, 0.25, 1.5, 59, 90, 3_600, 90_061)] == [
        "",
        "0s",
        "250ms",
        "1.5s",
        "59s",
        "1m30s",
        "1h",
        "1d1h",
    ]
    assert ago(None) == ""
    assert ago("2999-01-01T00:00:00Z").startswith("+")
