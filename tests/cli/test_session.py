"""What is told of several things when it goes wrong between them."""

from __future__ import annotations

import argparse
import json
from io import StringIO
from typing import NoReturn
from unittest.mock import Mock

import pytest

from relay.cli.errors import UnreachableError
from relay.cli.printer import Document, Printer
from relay.cli.session import Session
from relay.cli.transport import Transport, all_pages
from relay.cli.verbs.waiting import deadline, wait_for


def nobody() -> NoReturn:
    raise AssertionError("nobody is asked")


@pytest.mark.parametrize("broken", [UnreachableError("gone"), KeyboardInterrupt()])
def test_what_was_done_before_it_broke_off_is_told(broken: BaseException) -> None:
    out = StringIO()
    session = Session(
        options=argparse.Namespace(),
        connect=nobody,
        printer=Printer(out, mode="json"),
        notes=Printer(StringIO()),
        source=StringIO(),
    )

    def act(name: str) -> Document:
        if name == "b":
            raise broken
        return {"id": name}

    with pytest.raises(type(broken)):
        session.each(["a", "b", "c"], act, verb="paused")

    assert json.loads(out.getvalue()) == {"results": [{"id": "a"}], "errors": []}


class Terminal(StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("told", "drawn"),
    [
        ({"percent": 45.0}, "45% 45 of 100"),
        ({"percent": 50.0, "done": 1, "total": 2}, "50% 1 of 2"),
        ("•••", ""),
        (None, ""),
    ],
)
def test_a_wait_shows_how_far_the_job_is(told: object, drawn: str) -> None:
    states = iter(["running", "completed"])
    notes = Terminal()

    def looked(job_id: str, seconds: float) -> Document:
        return {"id": job_id, "state": next(states), "progress": told}

    session = Session(
        options=argparse.Namespace(),
        connect=lambda: Mock(spec=Transport, wait_for=looked),
        printer=Printer(StringIO()),
        notes=Printer(notes),
        source=StringIO(),
    )

    job = wait_for(session, "x", deadline(None))

    assert job["state"] == "completed"
    assert drawn in notes.getvalue()
    assert bool(notes.getvalue()) is bool(drawn)


def test_a_list_of_many_pages_is_whole() -> None:
    pages = {
        None: {"results": [{"id": 1}], "next": "x"},
        "x": {"results": [{"id": 2}], "next": None},
    }

    found = all_pages(pages.__getitem__)

    assert [each["id"] for each in found["results"]] == [1, 2]
    assert found["next"] is None
