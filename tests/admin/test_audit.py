"""The record in the admin: found by an index, changed by nobody."""

from __future__ import annotations

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from relay.admin import audit
from relay.models import Audit
from relay.queries import reading
from tests.admin.test_jobs import XSS, client_of, said
from tests.admin.test_plans import looked_at, scans

LIST = "/admin/relay/audit/"
FILL = """
INSERT INTO relay_audit (operation, subject, target, actor, source, at)
SELECT 'cancel_jobs', 'job', 'job-' || n, 'ada', 'api', now()
FROM generate_series(1, 50000) AS n
"""


def make(**values: str) -> Audit:
    given = {
        "operation": "cancel_jobs",
        "subject": "job",
        "target": "t",
        "actor": "ada",
    }
    return Audit.objects.create(**{**given, "source": "api", **values})


def listed(browser: Client, query: str) -> list[int]:
    response = browser.get(LIST + query)
    assert response.status_code == 200
    return [row.pk for row in response.context["cl"].result_list]


def test_acts_are_listed_newest_first_and_found_by_what_they_were_done_to(
    browser: Client,
) -> None:
    first = make(target="job-1")
    queue = make(subject="queue", target="mail", operation="pause_queue", source="cli")
    last = make(target="mail")

    assert listed(browser, "") == [last.pk, queue.pk, first.pk]
    assert listed(browser, "?q=mail") == [last.pk, queue.pk]
    assert listed(browser, "?q=mail&subject=queue") == [queue.pk]
    assert listed(browser, "?operation=pause_queue") == [queue.pk]
    assert listed(browser, "?source=cli&subject=queue") == [queue.pk]
    assert listed(browser, "?q=mai") == []


def test_an_act_has_a_page_that_leads_to_its_target(browser: Client) -> None:
    queue = make(subject="queue", target="mail", reason="a deploy", detail={"a": "b-9"})
    schedule = make(subject="schedule", target="nightly")

    text = browser.get(f"{LIST}{queue.pk}/change/").text

    assert 'href="/admin/relay/queue/mail/change/"' in text
    for shown in ("a deploy", "b-9", "ada"):
        assert shown in text
    assert "nightly" in browser.get(f"{LIST}{schedule.pk}/change/").text


def test_nobody_adds_changes_or_deletes(browser: Client) -> None:
    act = make()

    assert browser.get(f"{LIST}add/").status_code == 403
    assert browser.post(f"{LIST}{act.pk}/change/", {"actor": "x"}).status_code == 403
    assert browser.post(f"{LIST}{act.pk}/delete/", {"post": "yes"}).status_code == 403
    assert 'name="_save"' not in browser.get(f"{LIST}{act.pk}/change/").text
    assert Audit.objects.get().actor == "ada"


def test_the_record_needs_its_permission(db: None) -> None:
    act = make()

    assert client_of("view_job").get(LIST).status_code == 403
    assert Client().get(f"{LIST}{act.pk}/change/").status_code == 302


@pytest.mark.parametrize(
    "query", ["?subject=x", "?operation=%00", "?source=&q=x", "?actor=x", "?q=%00"]
)
def test_failure_136_a_bad_value_never_breaks_the_list(
    browser: Client, query: str
) -> None:
    response = browser.get(LIST + query, follow=True)

    assert response.status_code == (400 if "actor" in query else 200)


def test_failure_016_what_is_on_record_is_shown_as_text(browser: Client) -> None:
    act = make(
        operation=XSS, subject=XSS, target=XSS, actor=XSS, reason=XSS, request_id=XSS
    )

    for address in (LIST, f"{LIST}{act.pk}/change/"):
        assert "<img src=x" not in browser.get(address).text


def test_the_list_goes_by_an_index_with_few_queries(
    browser: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit, "NEWEST", 10_000)
    with connection.cursor() as cursor:
        cursor.execute(FILL)
        cursor.execute("ANALYZE relay_audit")
    queries = ("", "?q=job-77", "?q=none", "?subject=queue", "?source=cli&subject=job")

    for query in queries:
        with CaptureQueriesContext(connection) as captured:
            assert browser.get(LIST + query).status_code == 200
        statements = [one["sql"] for one in captured if "relay_audit" in one["sql"]]
        assert len(statements) == 2, query
        for statement in statements:
            bounded = reading.bounded_read("default", bitmaps="q=" in query)
            with bounded, connection.cursor() as cursor:
                cursor.execute(f"EXPLAIN (ANALYZE, FORMAT JSON) {statement}")
                [(plan,)] = cursor.fetchall()
            for scan in scans(plan[0]["Plan"]):
                assert scan["Node Type"] != "Seq Scan", query
                assert looked_at(scan) <= 10_001, query


def test_said_of_an_unknown_act(browser: Client) -> None:
    response = browser.get(f"{LIST}{10**30}/change/", follow=True)

    assert "Perhaps it was deleted?" in said(response)


def test_the_list_counts_records(browser: Client) -> None:
    assert "0 audit records" in browser.get("/admin/relay/audit/").content.decode()
