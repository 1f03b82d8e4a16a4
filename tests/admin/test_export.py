"""Jobs of a list as a file."""

from __future__ import annotations

import csv
import json
from typing import Any

import pytest
from django.test import Client

from relay.admin import export
from tests.admin.test_jobs import client_of, make_job, press, press_all, said


def lines_of(response: Any) -> list[str]:
    assert response.status_code == 200
    assert "attachment" in response["Content-Disposition"]
    assert "no-store" in response["Cache-Control"]
    return b"".join(response.streaming_content).decode().splitlines()


def test_ticked_jobs_are_sent_as_lines_of_json(browser: Client) -> None:
    one, _ = make_job(args={"args": [7], "kwargs": {"password": "s3cret"}}), make_job()

    response = press(browser, "export_jsonl", one)

    assert response["Content-Type"] == "application/jsonl; charset=utf-8"
    [document] = [json.loads(line) for line in lines_of(response)]
    assert (document["id"], document["args"]) == (str(one.pk), [7])
    assert document["kwargs"] == {"password": "•••"}


def test_all_that_match_are_sent_page_by_page_up_to_a_limit(
    browser: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = {str(make_job("failed").pk) for _ in range(5)}
    make_job()
    monkeypatch.setattr(export, "PAGE", 2)

    whole = lines_of(press_all(browser, "export_jsonl", "?state=failed"))
    monkeypatch.setattr(export, "MOST_EXPORTED", 3)
    some = lines_of(press_all(browser, "export_jsonl", "?state=failed"))
    told = browser.get("/admin/relay/job/")

    assert {json.loads(line)["id"] for line in whole} == ids
    assert len(some) == 3
    assert "Only the first 3 jobs are in the file." in said(told)


def test_a_table_has_a_head_and_no_formulas(browser: Client) -> None:
    for task in ("=cmd|'/c calc'!A0", "+1", "-1", "@x", "\uff1d1", "plain"):
        make_job(task=task)

    response = press_all(browser, "export_csv", "")

    rows = list(csv.DictReader(lines_of(response)))
    assert {row["task"] for row in rows} == {
        *("'=cmd|'/c calc'!A0", "'+1", "'-1", "'@x", "'\uff1d1", "plain")
    }
    assert all(row["state"] == "queued" for row in rows)


def test_an_empty_table_is_its_head(browser: Client) -> None:
    [head] = lines_of(press_all(browser, "export_csv", "?state=failed"))

    assert head.startswith("id,task,")


@pytest.mark.parametrize("action", ["export_jsonl", "export_csv"])
def test_payloads_are_masks_without_their_permission(db: None, action: str) -> None:
    client = client_of("view_job")
    job = make_job(
        "completed", args={"args": ["canary"], "kwargs": {}}, result="canary"
    )

    text = "\n".join(lines_of(press(client, action, job)))

    assert "canary" not in text
    assert "•••" in text


def test_a_filter_that_sees_arguments_needs_to_see_payloads(db: None) -> None:
    client = client_of("view_job")
    make_job(args={"args": ["canary"], "kwargs": {}})

    response = press_all(client, "export_jsonl", "?q=args.0:canary")

    assert "view_payload" in said(response)
