"""Who gets in, and what a request of somebody else's making can do: nothing."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone

from relay.models import ApiToken, Job
from relay.operations import PERMISSIONS
from tests.api.factory import Api, make_token
from tests.operations.factory import make_job
from tests.security.rows import make_rows
from tests.security.surfaces import browser_of, content_of, filled, held, routes

pytestmark = pytest.mark.django_db

VIEWS = sorted(each for each in PERMISSIONS if each.startswith("view_"))
# What a form or a list may be sent to have something done, by what it is about.
ACTIONS = {
    "job": ("cancel", "retry", "replay", "run_now", "delete", "export_csv"),
    "queue": ("pause", "resume", "fifo", "order_fifo", "purge"),
    "worker": ("quiet", "resume", "stop", "shut_down"),
    "schedule": ("run", "run_now", "pause", "enable", "disable", "delete"),
    "bulk": ("cancel",),
}
FORM = {
    **{
        "answer": "yes",
        "confirmed": "yes",
        "typed": "1",
        "name": "x",
        "cron": "* * * * *",
    },
    **{"task": "testproject.tasks.echo", "args": "[1]", "kwargs": "{}", "post": "yes"},
    **{
        "filter": "state:failed",
        "priority": "1",
        "timezone": "UTC",
        "queue": "default",
    },
}
REFUSED = {302, 403, 404, 405}


def acts(rows: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each address of admin and dashboard with what may make it do something."""
    for route in routes():
        if route.startswith("v1/"):
            continue
        address = filled(route, rows)
        key = [str(rows[kind]) for kind in rows if f"/relay/{kind}/" in address]
        picked = {"_selected_action": key[:1], "job": [str(rows["job"])]}
        is_list = re.fullmatch(r"admin/relay/\w+/", route)
        if is_list or route.endswith(("act/", "all/")):
            [kind] = [each for each in ACTIONS if each in route] or ["bulk"]
            for action in ACTIONS[kind]:
                yield address, {**FORM, **picked, "action": action}
        else:
            yield address, {**FORM, **picked}


def test_a_stranger_is_led_to_the_login_by_every_page() -> None:
    rows = make_rows("x")
    before = held()

    for route in routes():
        address = filled(route, rows)
        for method in ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"):
            response = Client().generic(method, address)
            if route == "healthz":
                continue
            assert response.status_code in {*REFUSED, 401}, (method, address)
            if response.status_code == 302 and route != "dashboard":
                assert response["Location"].startswith("/admin/login/?next=/")

    assert held() == before


def test_staff_without_a_permission_of_relays_is_let_in_nowhere() -> None:
    rows = make_rows("x")
    browser = browser_of()

    for route in routes():
        address = filled(route, rows)
        if route in ("healthz", "dashboard"):
            continue
        for method in ("GET", "POST"):
            response = browser.generic(method, address)
            if response.status_code == 302:  # what Django once called a row's page
                assert response["Location"] == f"{address}change/"
            else:
                assert response.status_code in (403, 405), (method, address)


def test_who_may_look_at_everything_changes_nothing() -> None:
    rows = make_rows("x")
    browser = browser_of(*VIEWS)
    before = held()
    tried = 0

    for address, values in acts(rows):
        response = browser.post(address, values)
        assert response.status_code in {*REFUSED, 200}, (address, values)
        tried += 1

    assert held() == before
    assert tried > 80


def test_no_get_changes_anything_on_any_surface() -> None:
    rows = make_rows("x")
    browser = browser_of(*PERMISSIONS, is_superuser=True)
    before = held()

    for route in routes():
        if not route.startswith("v1/"):  # whose own test does
            browser.get(filled(route, rows), {**FORM, "action": "delete"})

    assert held() == before


def test_no_forged_post_changes_anything_on_any_surface() -> None:
    rows = make_rows("x")
    browser = Client(enforce_csrf_checks=True)
    browser.force_login(User.objects.create_superuser("root"))
    before = held()

    for address, values in acts(rows):
        response = browser.post(address, values)
        assert response.status_code in (403, 404, 405), (address, values)

    assert held() == before


@pytest.mark.parametrize("how", ["X-HTTP-Method-Override", "X-Method-Override", "body"])
def test_a_method_cannot_be_smuggled_in(how: str) -> None:
    job = make_job("failed")
    client = Api(make_token("admin"))
    path = f"/v1/jobs/{job.pk}"
    headers = {} if how == "body" else {how.replace("-", "_"): "DELETE"}

    by_post = client.post(path, {"_method": "DELETE"}, **headers)
    by_get = client.get(f"{path}/cancel?_method=POST", **headers)

    assert (by_post.status_code, by_get.status_code) == (405, 405)
    assert Job.objects.get().state == "failed"


# --- sessions and tokens that are over -----------------------------------------------

LOOKS = ("/v1/jobs", "/readyz", "/metrics", "/dashboard/jobs/", "/admin/relay/job/")


@pytest.mark.parametrize("how", ["disabled", "deleted", "logged out"])
def test_a_session_ends_with_its_user(how: str) -> None:
    browser = browser_of(*PERMISSIONS)
    assert {browser.get(path).status_code for path in LOOKS} == {200}

    if how == "disabled":
        User.objects.update(is_active=False)
    elif how == "deleted":
        User.objects.get().delete()
    else:
        browser.logout()

    assert {browser.get(path).status_code for path in LOOKS} == {302, 401}


def test_a_right_that_was_taken_away_is_gone_from_the_next_request_on() -> None:
    browser = browser_of(*PERMISSIONS)
    assert browser.get("/v1/jobs").status_code == 200

    User.objects.get().user_permissions.clear()

    assert {browser.get(path).status_code for path in LOOKS} == {403}


@pytest.mark.parametrize("how", ["revoked", "expired", "deleted"])
def test_a_token_that_is_over_opens_no_surface(how: str) -> None:
    secret = make_token("admin")
    client = Api(secret)
    assert client.get("/metrics").status_code == 200
    rows = ApiToken.objects.all()
    past = timezone.now() - timedelta(seconds=1)

    if how == "deleted":
        rows.delete()
    else:
        rows.update(**{"revoked_at" if how == "revoked" else "expires_at": past})

    for path in ("/v1/jobs", "/v1/whoami", "/readyz", "/metrics"):
        assert client.get(path).status_code == 401, path


def test_a_token_opens_neither_the_dashboard_nor_the_admin() -> None:
    client = Api(make_token("admin"))

    for path in ("/dashboard/jobs/", "/admin/relay/job/"):
        assert client.get(path).status_code == 302


def test_no_surface_takes_a_token_from_anywhere_but_its_header() -> None:
    secret = make_token("admin")
    client = Client()
    client.cookies["token"] = secret

    for path in ("/v1/jobs", "/metrics"):
        for query in ("token", "access_token", "api_key"):
            assert client.get(f"{path}?{query}={secret}").status_code == 401


def test_a_token_is_in_no_log_answer_row_or_page(
    caplog: pytest.LogCaptureFixture,
) -> None:
    secret = make_token("admin")
    client = Api(secret)
    root = browser_of(*PERMISSIONS)

    with caplog.at_level("DEBUG"):
        answers = [
            client.get("/v1/whoami"),
            client.get("/v1/jobs?x=1"),
            client.get(f"/v1/jobs/{secret[10:]}"),
            client.post("/v1/jobs", {"task": "testproject.tasks.echo", "args": [1]}),
            root.get("/v1/audit"),
            root.get("/dashboard/system/"),
            root.get("/admin/relay/audit/"),
        ]

    assert secret not in caplog.text
    assert not [each for each in answers if secret in content_of(each)]
    assert secret not in json.dumps(list(ApiToken.objects.values()), default=str)
    assert secret.encode() not in bytes(ApiToken.objects.get().digest)


@pytest.mark.parametrize("scope", ["read", "payload"])
def test_a_scope_that_reads_changes_nothing_by_any_address(scope: str) -> None:
    rows = make_rows("x")
    client = Api(make_token(scope))
    before = held()

    for route in routes():
        if route.startswith("v1/"):
            address = filled(route, rows)
            client.send("DELETE", address)
            client.post(address, {})
            client.patch(address, {"priority": 1})

    assert held() == before


# --- where it is reached -------------------------------------------------------------


def test_another_host_is_in_no_answer(settings: Any) -> None:
    settings.ALLOWED_HOSTS = ["*"]
    rows = make_rows("x")
    browser = browser_of(*PERMISSIONS)

    for route in routes():
        address = filled(route, rows)
        response = browser.get(address, headers={"Host": "evil.example"})
        # But for the lines for a shell, whose reader is there by this name.
        told = re.sub(r"http://evil.example/v1/.*?</pre>", "", content_of(response))
        assert "evil.example" not in told, address


def test_a_host_that_is_not_the_projects_is_refused() -> None:
    browser = browser_of(*PERMISSIONS)

    for path in LOOKS:
        response = browser.get(path, headers={"Host": "evil.example"})
        assert response.status_code == 400, path


@pytest.mark.parametrize(
    "back",
    [
        *("https://evil.example/", "//evil.example", "/dashboard/../../evil"),
        *("\\\\evil.example", "/\\evil.example", "javascript:alert(1)"),
        *("/dashboard/\r\nSet-Cookie: x=1", "/dashboard/" + "x" * 5_000),
    ],
)
def test_no_act_leads_out_of_the_dashboard(back: str) -> None:
    browser = browser_of(*PERMISSIONS)
    make_rows("x")

    response = browser.post(
        "/dashboard/queues/default/act/", {"action": "pause", "back": back}
    )

    assert response.status_code in (302, 400)
    if response.status_code == 302:
        where = response["Location"]
        assert where.startswith("/dashboard/")
        assert "\n" not in where
    assert "Set-Cookie: x" not in str(response.headers)


# --- what browsers and proxies are told ----------------------------------------------


def test_no_private_answer_is_kept_framed_or_taken_for_another_type() -> None:
    rows = make_rows("x")
    browser = browser_of(*PERMISSIONS)

    for route in routes():
        response = browser.get(filled(route, rows))
        if response.status_code != 200 or "assets" in route:
            continue
        kept = response["Cache-Control"]
        assert "no-store" in kept, route
        assert response["X-Content-Type-Options"] == "nosniff", route
        if not route.startswith("admin/"):  # its headers are the project's
            assert response.get("Referrer-Policy", "same-origin") == "same-origin"
        if route.startswith(("dashboard", "v1")):
            policy = response["Content-Security-Policy"]
            assert "default-src 'none'" in policy, route
            assert "frame-ancestors 'none'" in policy, route
            assert "unsafe" not in policy, route
            assert response["Cross-Origin-Resource-Policy"] == "same-origin"
        assert not response.cookies.keys() - {"messages", "csrftoken"}, route
