"""Marks: made, on record, and read."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.db import connection

from relay import operations, queries
from relay.exceptions import ArgumentError, NotAllowed
from relay.models import Audit
from relay.operations import Actor
from relay.queries import marks
from relay.queries.reading import bounded_read

pytestmark = pytest.mark.django_db

ADA = Actor(name="ada", source="cli", reason="a new release")
HOUR = timedelta(hours=1)


def test_a_mark_is_a_row_of_the_record() -> None:
    assert operations.mark(ADA, " deploy 1.4 ") == "deploy 1.4"

    [row] = Audit.objects.all()
    assert (row.operation, row.subject, row.actor) == ("mark", "mark", "ada")
    assert (row.detail, row.reason) == ({"label": "deploy 1.4"}, "a new release")
    [found] = queries.list_marks(ADA)["results"]
    assert (found["label"], found["actor"]) == ("deploy 1.4", "ada")
    [told] = queries.list_audit(ADA, subject="mark")["results"]
    assert told["at"] == found["at"]


@pytest.mark.parametrize("label", ["", "  ", "x" * 101, "two\nlines", "nul\x00"])
def test_a_label_is_one_short_line(label: str) -> None:
    with pytest.raises(ArgumentError, match="label="):
        operations.mark(ADA, label)

    assert not Audit.objects.exists()


def test_who_may_steer_queues_may_not_mark_by_that() -> None:
    steers = Actor(name="s", source="api", permissions=frozenset({"manage_queue"}))
    marks = Actor(name="m", source="api", permissions=frozenset({"add_audit"}))

    with pytest.raises(NotAllowed):
        operations.mark(steers, "deploy")
    operations.mark(marks, "deploy")
    with pytest.raises(NotAllowed):
        queries.list_marks(marks)


def test_the_latest_come_first_and_old_ones_not_at_all() -> None:
    for label in ("first", "second"):
        operations.mark(ADA, label)

    labels = [each["label"] for each in queries.list_marks(ADA)["results"]]

    assert labels == ["second", "first"]
    assert queries.list_marks(ADA, span=timedelta(microseconds=1)) == {"results": []}


@pytest.mark.parametrize("span", [timedelta(0), timedelta(days=91)])
def test_a_span_is_something_up_to_90_days(span: timedelta) -> None:
    with pytest.raises(ArgumentError, match="90 days"):
        queries.list_marks(ADA, span=span)


def test_marks_are_read_by_the_index_however_much_else_is_on_record() -> None:
    Audit.objects.bulk_create(
        Audit(operation="retry_jobs", subject="job", target=f"{n}", actor="a")
        for n in range(2_000)
    )
    operations.mark(ADA, "deploy")
    values = {"target": marks.MARKED, "most": 200, "span": HOUR}

    with connection.cursor() as cursor:
        cursor.execute("ANALYZE relay_audit")
    with bounded_read("default", bitmaps=True), connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN {marks.MARKS}", values)
        plan = "\n".join(line for [line] in cursor.fetchall())

    assert "relay_audit_target_idx" in plan
    assert "Seq Scan" not in plan
