"""Live regions: what somebody has done to a page stays through renewals."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING
from urllib.parse import urlencode

import pytest
from django.utils import timezone

from relay.models import Attempt, History, Job
from tests.operations.factory import make_job

if TYPE_CHECKING:
    from playwright.sync_api import Page

STALE = "document.querySelector('.stale:has(+ #jobs)')"
# What is asked for with the word in its address is answered 503, or not at all.
FAIL = """word => {
  const sound = window.sound ??= window.fetch, isDead = word === "part=";
  const failing = new Response("", {status: 503});
  window.fetch = (where, how) => !where.includes(word) ? sound(where, how)
    : isDead ? Promise.reject(new TypeError("Failed to fetch"))
    : Promise.resolve(failing.clone());
}"""
OPEN = "document.querySelector('details[id^=traceback]').open"


def renew(page: Page, part: str) -> None:
    """Have a region ask for itself, and wait until it has what is new."""
    with page.expect_response(lambda answer: f"part={part}" in answer.url):
        page.evaluate(
            "document.querySelectorAll('[data-live]').forEach("
            "each => each.dispatchEvent(new Event('relay:tick')))"
        )


def test_ticks_and_typed_text_stay(
    open_page: Callable[..., Page], log_in: Callable[[Page], None]
) -> None:
    jobs = [make_job("failed") for _ in range(3)]
    page = open_page()
    log_in(page)
    page.goto("jobs/?state=failed")
    page.evaluate("localStorage.setItem('relay.every', '0')")
    page.check(f"#tick-{jobs[1].pk}")
    page.fill("#search", "task:half a wo")

    for _ in range(2):
        new = make_job("failed")
        renew(page, "jobs")
        page.wait_for_selector(f"#job-{new.pk}")
        assert page.is_checked(f"#tick-{jobs[1].pk}")
        assert not page.is_checked(f"#tick-{new.pk}")
        assert page.input_value("#search") == "task:half a wo"
        assert page.evaluate("document.activeElement.id") == "search"

    page.click("button:text-is('Retry 1 job')")
    page.wait_for_selector("text=1 job is ready again")
    assert Job.objects.get(pk=jobs[1].pk).state == "queued"
    assert Job.objects.filter(state="failed").count() == 4


def test_what_was_opened_stays_open(
    open_page: Callable[..., Page], log_in: Callable[[Page], None]
) -> None:
    job = make_job("retrying", attempt=1, run_at=timezone.now())
    Attempt.objects.create(
        job=job, attempt=1, outcome="retry", error_class="E", traceback="Traceback"
    )
    page = open_page()
    log_in(page)
    page.goto(f"jobs/{job.pk}/?show=past")
    page.evaluate("localStorage.setItem('relay.every', '0')")
    page.click("summary:text('Traceback')")

    for number in (1, 2):
        History.objects.create(job=job, event=f"event {number}")
        renew(page, "job")
        page.wait_for_selector(f"text=event {number}")
        assert page.evaluate(OPEN) is True


def test_a_page_renews_itself_and_rests_when_told(
    open_page: Callable[..., Page], log_in: Callable[[Page], None]
) -> None:
    page = open_page()
    log_in(page)
    page.goto("jobs/")
    page.select_option("#live-every", "2")

    with page.expect_response(lambda answer: "part=jobs" in answer.url):
        pass
    page.keyboard.press("r")

    assert page.input_value("#live-every") == "0"
    page.reload()
    assert page.input_value("#live-every") == "0"


def test_a_region_without_news_is_not_sent_and_its_ages_go_on(
    open_page: Callable[..., Page], log_in: Callable[[Page], None]
) -> None:
    job = make_job("failed", finished_at=timezone.now())
    page = open_page()
    log_in(page)
    page.goto("jobs/")
    page.evaluate("localStorage.setItem('relay.every', '0')")
    old = page.inner_text(f"#job-{job.pk} time.ago >> nth=1")

    assert status_of_renewal(page) == 304
    page.wait_for_function(
        "([at, old]) => document.querySelectorAll(at)[1].textContent !== old",
        arg=[f"#job-{job.pk} time.ago", old],
    )
    make_job("failed")

    assert status_of_renewal(page) == 200
    assert status_of_renewal(page) == 304


def status_of_renewal(page: Page) -> int:
    with page.expect_response(lambda answer: "part=jobs" in answer.url) as found:
        page.evaluate(
            "document.querySelector('#jobs').dispatchEvent(new Event('relay:tick'))"
        )
    status: int = found.value.status
    # The next one is asked for once this one is through.
    page.wait_for_function("!document.querySelector('#jobs.htmx-request')")
    return status


def test_a_line_for_a_shell_is_copied(
    open_page: Callable[..., Page], log_in: Callable[[Page], None]
) -> None:
    job = make_job("failed", args={"args": ["it's <b>"], "kwargs": {}})
    page = open_page()
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    log_in(page)
    page.goto(f"jobs/{job.pk}/")
    page.click("#shell summary")

    page.click("[data-copy=curl-look]")
    page.wait_for_selector("[data-copy=curl-look][data-copied]")

    copied = page.evaluate("navigator.clipboard.readText()")
    assert copied == page.text_content("#curl-look")
    assert str(job.pk) in copied


def test_keys_lead_through_the_pages_and_may_be_switched_off(
    open_page: Callable[..., Page], log_in: Callable[[Page], None]
) -> None:
    page = open_page()
    log_in(page)
    page.goto("./")

    page.keyboard.type("gj")
    page.wait_for_selector("h1:text('Jobs')")
    page.keyboard.type("/gq")
    assert page.input_value("#search") == "gq"
    page.evaluate("document.activeElement.blur()")
    page.keyboard.type("t")
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
    page.keyboard.type("?")
    page.uncheck("#use-keys")
    page.click("button:text-is('Close')")
    page.keyboard.type("gj")
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
    page.keyboard.type("t")
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"


def test_a_question_is_a_dialog_that_escape_leaves(
    open_page: Callable[..., Page], log_in: Callable[[Page], None]
) -> None:
    job = make_job("queued")
    page = open_page()
    log_in(page)
    page.goto(f"jobs/{job.pk}/")
    page.click("button:text-is('Cancel')")
    page.wait_for_selector("dialog:modal")

    page.keyboard.press("Escape")

    page.wait_for_selector("h2:text('Its way')")
    assert Job.objects.get(pk=job.pk).state == "queued"


@pytest.mark.parametrize("javascript", [True, False])
def test_failure_016_hostile_texts_do_nothing(
    open_page: Callable[..., Page], log_in: Callable[[Page], None], javascript: bool
) -> None:
    bad = '<img src=x onerror="document.title=1"><script>document.title=1</script>'
    job = make_job(
        "failed",
        task=bad,
        args={"args": [bad], "kwargs": {bad: bad}},
        error_class=bad,
        error_message=bad,
    )
    Attempt.objects.create(job=job, attempt=1, outcome="fail", traceback=bad)
    page = open_page(javascript=javascript)
    log_in(page)

    for where in (
        "./",
        "jobs/",
        "failures/",
        f"jobs/{job.pk}/?show=past",
        f"jobs/{job.pk}/",
    ):
        page.goto(where)
        assert page.locator("img[src=x]").count() == 0
        assert page.title() != "1"
    page.goto(f"jobs/?{urlencode({'q': bad})}")
    assert page.locator("img[src=x]").count() == 0


def test_each_region_says_that_it_could_not_be_renewed(
    open_page: Callable[..., Page], log_in: Callable[[Page], None]
) -> None:
    page = open_page()
    page.clock.install()
    log_in(page)
    page.goto("jobs/")
    page.evaluate(FAIL, "part=jobs")

    page.clock.run_for(11_000)  # a list asks every 10 s

    page.wait_for_function(f"() => {STALE}.textContent.includes('may be out of date')")
    assert page.get_attribute(".stale:has(+ #jobs)", "aria-live") == "polite"
    assert page.text_content(".stale:has(+ #tabs)") == ""

    page.wait_for_function("() => !document.querySelector('.htmx-request')")
    page.evaluate(FAIL, "part=")
    page.clock.run_for(31_000)
    assert seconds_since_news(page) >= 30

    page.evaluate("() => { window.fetch = window.sound; }")
    page.clock.run_for(11_000)
    page.wait_for_function(f"() => !{STALE}.textContent")
    page.clock.run_for(2_000)
    page.wait_for_function(
        "() => parseInt(document.querySelector('#live-note').textContent.split(' ')[1])"
        " < 10"
    )


def seconds_since_news(page: Page) -> int:
    word, seconds, *_ = str(page.text_content("#live-note")).split()
    assert word == "updated"
    return int(seconds)
