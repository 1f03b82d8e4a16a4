"""Why a job does not run, and what happened to it, as its page says it."""

from __future__ import annotations

import html
from datetime import timedelta

import pytest
from django.test import Client
from django.utils import timezone, translation

from relay.models import BulkOperation, History, Queue
from tests.dashboard.pages import shown, url
from tests.dashboard.test_pages import make_worker
from tests.operations.factory import make_job

HOSTILE = "<script>alert('{0} {why} %s')</script>"


def test_it_is_said_in_the_viewers_language(browser: Client) -> None:
    Queue.objects.create(name="mail", paused_at=timezone.now())
    job = make_job("queued", queue="mail")

    with translation.override("de"):
        page = html.unescape(shown(browser.get(url("job", job.pk))))

    assert "Die Queue 'mail' ist angehalten, bis sie fortgesetzt wird." in page
    assert "Setzen Sie die Queue fort." in page
    assert "is paused" not in page


def test_sentences_within_sentences_are_said_too(browser: Client) -> None:
    make_worker(concurrency=1)
    make_job("queued", priority=5)
    job = make_job("queued")

    with translation.override("fr"):
        page = shown(browser.get(url("job", job.pk)))

    assert "Il attend son tour : 1 job de sa file passe avant." in page


def test_a_time_is_one_that_the_script_knows(browser: Client) -> None:
    job = make_job("scheduled", run_at=timezone.now() + timedelta(days=1))

    page = shown(browser.get(url("job", job.pk)))

    assert 'It is scheduled for <time datetime="' in page


def test_hostile_words_of_an_error_are_inert(browser: Client) -> None:
    job = make_job(
        "failed",
        finished_at=timezone.now(),
        error_class=HOSTILE,
        error_message=HOSTILE,
    )

    page = shown(browser.get(url("job", job.pk)))

    assert "<script>alert" not in page
    assert page.count(html.escape(HOSTILE)) >= 3


@pytest.mark.parametrize(("language", "text"), [("en", "No worker"), ("ja", "実行中")])
def test_a_bulk_operation_says_it_too(
    browser: Client, language: str, text: str
) -> None:
    job = make_job("queued", task="relay.bulk")
    bulk = BulkOperation.objects.create(
        action="retry", filter="state:failed", actor="a", job_id=job.pk
    )

    with translation.override(language):
        page = shown(browser.get(url("bulk_one", bulk.pk)))

    assert text in page


def test_all_of_a_long_detail_of_the_history_is_there(browser: Client) -> None:
    job = make_job("queued")
    tags = [f"tag number {number}" for number in range(40)]
    History.objects.create(job=job, event="edit", detail={"tags": tags})
    History.objects.create(job=job, event="retry", detail={"reason": "E"})

    past = shown(browser.get(url("job", job.pk, query="show=past")))

    assert "tag number 39" in past
    assert past.count('<details id="detail-') == 1
