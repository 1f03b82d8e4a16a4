"""Who may look and act, and what every answer tells the browser."""

from __future__ import annotations

import gzip
import hashlib
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from django.http import HttpRequest
from django.test import Client
from django.urls import set_script_prefix

import relay
from relay.dashboard.assets import asset_name
from relay.ids import uuid7
from relay.models import Audit, Job
from relay.operations import PERMISSIONS
from tests.dashboard.pages import NAMES, PAGES, addresses, shown, url
from tests.operations.factory import make_job

FOLDER = Path(relay.__file__).parent / "static" / "relay" / "dashboard"
ASSETS = ("relay.css", "relay.js", "htmx.min.js", "icon.svg")


def everybody(request: HttpRequest) -> set[str]:
    """What RELAY["ACCESS"] may name: a host without Django's accounts."""
    return {"view_job"} if request.headers.get("X-Known") else set()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("method", ["get", "post"])
@pytest.mark.django_db
def test_who_is_not_logged_in_is_sent_to_the_login(name: str, method: str) -> None:
    where = addresses()[name]

    answer = getattr(Client(), method)(where)

    assert answer.status_code == 302
    assert answer["Location"].startswith("/admin/login/?next=/ops/dashboard/")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("method", ["get", "post"])
def test_who_has_no_permission_sees_nothing(
    browser_of: Callable[..., Client], name: str, method: str
) -> None:
    answer = getattr(browser_of(), method)(addresses()[name])

    assert answer.status_code == 403
    assert "relay.view_job" in answer.content.decode()


@pytest.mark.django_db
def test_a_live_region_of_who_is_logged_out_leads_the_page_to_the_login() -> None:
    answer = Client().get(url("jobs", query="part=jobs"))

    assert answer.status_code == 204
    assert answer["HX-Redirect"].startswith("/admin/login/?next=")


@pytest.mark.django_db
def test_a_project_without_accounts_says_itself_who_may(settings: Any) -> None:
    settings.RELAY = {"ACCESS": "tests.dashboard.test_access.everybody"}

    assert Client().get(url("jobs")).status_code == 302
    page = shown(Client(headers={"X-Known": "yes"}).get(url("jobs")))

    assert ">Jobs</a>" in page
    assert ">Queues</a>" not in page


@pytest.mark.parametrize("name", [*NAMES, "nothing"])
def test_every_answer_is_closed_to_scripts_frames_and_robots(
    browser: Client, name: str
) -> None:
    where = addresses().get(name) or url("job", uuid7())

    for answer in (browser.get(where), browser.post(where), Client().get(where)):
        policy = answer["Content-Security-Policy"]
        assert "default-src 'none'" in policy
        assert "script-src 'self'; style-src 'self';" in policy
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        assert answer["Referrer-Policy"] == "same-origin"
        assert "noindex" in answer["X-Robots-Tag"]
        assert answer["Cache-Control"] == "no-store" or name == "asset"


def test_a_host_with_a_policy_of_its_own_does_not_change_ours(
    browser: Client, settings: Any
) -> None:
    pytest.importorskip("django.middleware.csp")
    settings.MIDDLEWARE = [
        *settings.MIDDLEWARE,
        "django.middleware.csp.ContentSecurityPolicyMiddleware",
    ]
    settings.SECURE_CSP = {"default-src": ["https://example.org"]}

    policy = browser.get(url("overview"))["Content-Security-Policy"]

    assert "example.org" not in policy


@pytest.mark.parametrize("name", PAGES)
def test_no_page_has_a_script_style_or_handler_in_it(
    browser: Client, name: str
) -> None:
    page = shown(browser.get(url(name)))

    assert re.findall(r"<script(?![^>]* src=)", page) == []
    assert re.findall(r"<style|\sstyle=|\son[a-z]+=|javascript:", page) == []
    assert re.findall(r"(?:src|href|action)=\"(?:https?:)?//", page) == []


def test_a_post_needs_the_token_of_its_page(ada: Any) -> None:
    client = Client(enforce_csrf_checks=True)
    client.force_login(ada)
    job = make_job("queued")

    answer = client.post(url("act_on_job", job.pk), {"action": "cancel"})

    assert answer.status_code == 403
    assert Job.objects.get(pk=job.pk).state == "queued"


def test_a_token_is_asked_for_without_the_projects_middleware_too(
    ada: Any, settings: Any
) -> None:
    settings.MIDDLEWARE = [each for each in settings.MIDDLEWARE if "Csrf" not in each]
    client = Client(enforce_csrf_checks=True)
    client.force_login(ada)
    job = make_job("failed")

    answer = client.post(url("act_on_job", job.pk), {"action": "retry"})

    assert answer.status_code == 403
    assert Job.objects.get(pk=job.pk).state == "failed"


@pytest.mark.parametrize(
    ("action", "state", "permission"),
    [
        ("cancel", "queued", "cancel_job"),
        ("retry", "failed", "retry_job"),
        ("replay", "failed", "retry_job"),
        ("run_now", "scheduled", "retry_job"),
        ("delete", "failed", "delete_job"),
    ],
)
def test_a_button_is_drawn_for_who_may_press_it_and_the_server_checks_again(
    browser_of: Callable[..., Client], action: str, state: str, permission: str
) -> None:
    job = make_job(state)
    others = sorted(PERMISSIONS - {permission})
    may, may_not = browser_of("view_job", permission), browser_of(*others)
    button = f'name="action" value="{action}"'
    answer = {"action": action, "answer": "yes", "typed": "1"}

    refused = may_not.post(url("act_on_job", job.pk), answer)
    assert refused.status_code == 403
    assert Job.objects.get(pk=job.pk).state == state
    assert not Audit.objects.exists()
    assert button not in shown(may_not.get(url("job", job.pk)))
    assert button in shown(may.get(url("job", job.pk)))
    assert may.post(url("act_on_job", job.pk), answer).status_code == 302
    assert Audit.objects.get().source == "dashboard"


@pytest.mark.parametrize("name", PAGES)
def test_read_only_draws_no_button(browser: Client, name: str, settings: Any) -> None:
    make_job("failed")
    settings.RELAY = {"READ_ONLY": True}

    page = shown(browser.get(url(name)))

    assert "read only" in page
    assert 'name="action"' not in page


def test_read_only_refuses_every_act(browser: Client, settings: Any) -> None:
    job = make_job("failed")
    settings.RELAY = {"READ_ONLY": True}

    answer = browser.post(url("act_on_job", job.pk), {"action": "retry"})

    assert answer.status_code == 403
    assert "READ_ONLY" in answer.content.decode()
    assert Job.objects.get(pk=job.pk).state == "failed"


@pytest.fixture
def below(settings: Any) -> Iterator[str]:
    """Serve the project below a path of the server's, as a proxy may."""
    settings.FORCE_SCRIPT_NAME = "/below"
    set_script_prefix("/below/")
    yield "/below/ops/dashboard/"
    set_script_prefix("/")


@pytest.mark.parametrize("name", PAGES)
def test_every_address_on_a_page_is_below_where_it_is_mounted(
    browser: Client, below: str, name: str
) -> None:
    make_job("failed", error_class="ValueError", error_message="no")
    path = url(name).removeprefix("/below")

    page = shown(browser.get(path))

    found = re.findall(r"(?:href|src|action|hx-get)=\"([^\"]*)\"", page)
    assert found
    own = [each for each in found if not each.startswith(("?", "#"))]
    assert [each for each in own if not each.startswith(below)] == []


# --- the files -----------------------------------------------------------------------


@pytest.mark.parametrize("file", ASSETS)
def test_a_file_has_its_contents_name_and_is_kept_for_a_year(
    browser: Client, file: str
) -> None:
    where = url("asset", asset_name(file))

    plain = browser.get(where)
    packed = browser.get(where, headers={"Accept-Encoding": "gzip"})
    again = browser.get(where, headers={"If-None-Match": plain["ETag"]})

    assert plain["Cache-Control"] == "private, max-age=31536000, immutable"
    assert gzip.decompress(packed.content) == plain.content
    assert packed["Content-Encoding"] == "gzip"
    assert (again.status_code, again.content) == (304, b"")
    assert browser.get(url("asset", file)).status_code == 404


def test_the_files_are_small(browser: Client) -> None:
    sizes = {
        file: len(browser.get(url("asset", asset_name(file))).content)
        for file in ASSETS
    }

    assert sizes["relay.js"] <= 5 * 1024
    assert sizes["relay.css"] <= 20 * 1024


@pytest.mark.parametrize("name", PAGES)
def test_a_first_load_is_at_most_60_kb(browser: Client, name: str) -> None:
    for _ in range(50):
        make_job("failed", error_class="ValueError", error_message="no")
    page = browser.get(url(name)).content

    size = len(gzip.compress(page))
    for file in ASSETS:
        where = url("asset", asset_name(file))
        assert where.encode() in page
        size += len(browser.get(where, headers={"Accept-Encoding": "gzip"}).content)

    assert size <= 60 * 1024


def test_htmx_is_the_file_that_was_released() -> None:
    content = (FOLDER / "htmx.min.js").read_bytes()
    said = (FOLDER / "htmx.min.js.sha256").read_text()

    assert said.split() == [hashlib.sha256(content).hexdigest(), "htmx.min.js"]
    assert "Zero-Clause BSD" in (FOLDER / "htmx.LICENSE").read_text()


def test_a_name_that_turns_the_direction_of_writing_stands_alone() -> None:
    [rule] = re.findall(
        r":is\(([^)]*)\) { unicode-bidi: isolate; }", (FOLDER / "relay.css").read_text()
    )

    assert {"a", "code", "span", "summary"} <= set(rule.split(", "))
