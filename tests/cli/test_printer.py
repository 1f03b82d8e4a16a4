"""Tables, and what no terminal is to obey."""

from __future__ import annotations

import json
from io import BytesIO, StringIO, TextIOWrapper

from relay.cli.figures import ago, length
from relay.cli.printer import Column, Printer, cut_to, fields, inert, table

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


ID = "01890a5d-ac96-774b-bcce-b302099a805"
OTHER = "01890a5d-ac96-774c-bcce-b302099a8051"
WIDE = (
    Column("ID", lambda each: each["id"], is_id=True),
    Column("TASK", lambda each: each["task"], can_cut=True, keeps_end=True),
    Column("NOTE", lambda each: each["note"], can_cut=True, rank=1),
    Column("MORE", lambda each: each["more"], rank=2),
    Column("N", lambda each: each["n"], is_number=True),
)


def row(**values: object) -> dict[str, object]:
    made = {"id": f"{ID}1", "task": "app.tasks.send", "note": "", "more": "x", "n": 1}
    return {**made, **values}


def test_a_narrow_terminal_is_not_written_over_its_edge() -> None:
    rows = [row(note="a note", more="y" * 20), row(id=OTHER)]

    for width in (200, 70, 50, 34, 31):
        lines = list(table(WIDE, rows, width=width))
        assert max(map(len, lines)) <= width, width
        # What tells them apart stays.
        assert lines[1].split()[0] != lines[2].split()[0]


def test_ids_are_shortened_to_what_tells_them_apart() -> None:
    [_, one] = table(WIDE[:2], [row()], width=30)
    [_, first, second] = table(WIDE[:2], [row(), row(id=OTHER)], width=40)

    assert one.split()[0] == "01890a5d-ac96"
    assert first.split()[0] == "01890a5d-ac96-774b"
    assert second.split()[0] == "01890a5d-ac96-774c"
    [_, whole] = table(WIDE[:2], [row()], width=60)
    assert whole.split()[0] == f"{ID}1"
    assert one.endswith("app.tasks.send")


def test_a_column_is_left_out_where_nothing_stands_in_it_first() -> None:
    empty, full = (table(WIDE, [row(note=note)], width=34) for note in ("", "a note"))

    assert next(iter(empty)).split() == ["ID", "TASK", "MORE", "N"]
    assert next(iter(full)).split() == ["ID", "TASK", "NOTE", "N"]


def test_of_a_task_the_end_of_its_name_stays() -> None:
    assert cut_to("app.tasks.send_mail", 10, keeps_end=True) == "…send_mail"
    assert cut_to("日本語", 5, keeps_end=True) == "…本語"


def test_a_long_value_goes_on_in_the_next_line_of_a_terminal() -> None:
    pairs = [("name", "ada"), ("may", "cancel_job, edit_job, retry_job")]

    assert list(fields(pairs))[1] == "may   cancel_job, edit_job, retry_job"
    assert list(fields(pairs, width=24)) == [
        "name  ada",
        "may   cancel_job,",
        "      edit_job,",
        "      retry_job",
    ]
