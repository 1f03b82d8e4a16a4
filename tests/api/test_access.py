"""Who may do what: each address by each role, and nobody by the host's settings."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.core.checks import run_checks
from django.db import connection
from django.test import Client
from django.urls import URLPattern, URLResolver, get_resolver
from rest_framework import authentication, permissions
from rest_framework.settings import api_settings

from relay.api.endpoints import Endpoint, endpoint_of
from relay.api.schema import METHODS
from relay.api.urls import ADDRESSES
from relay.ids import uuid7
from relay.models import Audit, Job
from relay.operations import PERMISSIONS, SCOPES
from tests.api.factory import Api, api, make_schedule, make_token, make_worker
from tests.api.needed import NEEDED
from tests.operations.factory import make_job

pytestmark = pytest.mark.django_db

OPEN = {"healthz"}


def said(response: Any) -> Any:
    return json.loads(response.content)


def routes() -> Iterator[tuple[str, str, Endpoint]]:
    """Yield the path, method and endpoint of each method of each address."""
    for path, view, _ in ADDRESSES:
        for method in METHODS:
            if (about := endpoint_of(view, method)) is not None:
                yield path, method.upper(), about


ROUTES = list(routes())


def filled(path: str) -> str:
    """Return a path with names and ids that nothing has."""
    for name in ("job_id", "bulk_id", "worker_id", "token_id"):
        path = path.replace("{" + name + "}", str(uuid7()))
    return path.replace("{queue}", "default").replace("{", "").replace("}", "")


# What each role may, by the permission that an address asks for.
MATRIX = {
    None: {"read", "payload", "submit", "operate", "admin"},
    "view_job": {"read", "operate", "admin"},
    "view_queue": {"read", "operate", "admin"},
    "view_worker": {"read", "operate", "admin"},
    "view_schedule": {"read", "operate", "admin"},
    "view_bulkoperation": {"read", "operate", "admin"},
    "view_metrics": {"read", "operate", "admin"},
    "view_audit": {"admin"},
    "add_audit": {"operate", "admin"},
    "view_apitoken": {"admin"},
    "manage_token": {"admin"},
    "enqueue_job": {"submit", "admin"},
    "cancel_job": {"operate", "admin"},
    "retry_job": {"operate", "admin"},
    "edit_job": {"operate", "admin"},
    "delete_job": {"operate", "admin"},
    "bulk_job": {"operate", "admin"},
    "manage_queue": {"operate", "admin"},
    "manage_worker": {"operate", "admin"},
    "manage_schedule": {"operate", "admin"},
    "run_schedule": {"operate", "admin"},
}


def test_every_address_is_in_the_table_and_declares_what_it_says() -> None:
    assert {
        (method, path): about.permission for path, method, about in ROUTES
    } == NEEDED


@pytest.mark.parametrize(
    ("path", "method", "about"), ROUTES, ids=[f"{m} {p}" for p, m, _ in ROUTES]
)
def test_each_role_may_what_its_scope_says_at_each_address(
    path: str, method: str, about: Endpoint
) -> None:
    allowed = MATRIX[NEEDED[method, path]]
    for scope in SCOPES:
        response = Api(make_token(scope)).send(method, filled(path), {})
        is_refused = response.status_code == 403
        if is_refused and scope in allowed:
            # A command, or the act of a bulk act, may be refused for itself.
            assert said(response)["code"] != "not_allowed", (scope, response.content)
        assert is_refused or scope in allowed, scope


@pytest.mark.parametrize(
    ("path", "method", "about"), ROUTES, ids=[f"{m} {p}" for p, m, _ in ROUTES]
)
def test_the_permissions_of_a_user_count_one_by_one(
    path: str, method: str, about: Endpoint
) -> None:
    user = User.objects.create_user("vera")
    needed = NEEDED[method, path]
    others = PERMISSIONS - {needed}
    user.user_permissions.set(
        Permission.objects.filter(content_type__app_label="relay", codename__in=others)
    )
    client = Client()
    client.force_login(user)

    response = client.generic(
        method, filled(path), b"{}", content_type="application/json"
    )

    assert (response.status_code == 403) == (needed is not None)


def everywhere(
    patterns: list[URLPattern | URLResolver], prefix: str = ""
) -> Iterator[str]:
    """Yield a path of each pattern under the root that relay has put there."""
    for each in patterns:
        text = prefix + str(each.pattern).lstrip("^").rstrip("$")
        if isinstance(each, URLResolver):
            if each.app_name != "admin":
                yield from everywhere(each.url_patterns, text)
        else:
            yield text


def test_a_stranger_finds_only_healthz_open() -> None:
    found: set[str] = set()
    for text in everywhere(get_resolver("relay.urls").url_patterns):
        path = text.replace("(?:/.*)?", "/x").replace("/?", "").replace("\\.", ".")
        while "(?P<" in path:
            before, _, rest = path.partition("(?P<")
            name, _, after = rest.partition(">[^/]+)")
            path = before + (str(uuid7()) if name.endswith("_id") else "x") + after
        for converter in ("<uuid:", "<str:", "<slug:", "<path:", "<int:"):
            while converter in path:
                before, _, rest = path.partition(converter)
                path = before + "1" + rest.partition(">")[2]
        found.add(path)
        for method in ("GET", "POST", "HEAD", "PUT", "PATCH", "DELETE", "OPTIONS"):
            status = Client().generic(method, f"/{path}").status_code
            if path in OPEN:
                assert status in (200, 405), (method, path)
            else:
                assert status in (401, 403, 404, 405, 302), (method, path, status)

    assert {"healthz", "readyz", "metrics", "v1/jobs", "v1/x"} <= found


def test_a_refusal_says_what_was_asked_for_and_what_is_missing() -> None:
    job = make_job("queued")

    refused = Api(make_token("read")).send("POST", f"/v1/jobs/{job.pk}/cancel", {})
    assert said(refused)["detail"].endswith(
        " may not cancel a job: the permission 'cancel_job' is missing"
    )
    for method, path, asked in (
        ("GET", "/v1/tokens", "list the tokens"),
        ("POST", "/v1/tokens", "make a token"),
        ("GET", "/v1/audit", "list what people and clients did"),
    ):
        refused = Api(make_token("read")).send(method, path, {})
        assert f" may not {asked}: the permission " in said(refused)["detail"]
    unknown = Client(headers={"Authorization": "Token rly_x"}).get("/v1/jobs")
    assert "Authorization: Bearer" in said(unknown)["detail"]


def test_a_user_whom_relay_allows_nothing_is_nobody_here() -> None:
    client = Client()
    client.force_login(User.objects.create_user("customer"))

    for path in ("/v1/version", "/v1/docs", "/v1/openapi.json", "/v1/x", "/readyz"):
        assert client.get(path).status_code == 403, path


class Anyone(authentication.BaseAuthentication):
    """The host's: everybody is a superuser."""

    def authenticate(self, request: Any) -> Any:
        user = User.objects.filter(is_superuser=True).first()
        return None if user is None else (user, None)


def test_no_setting_of_the_host_opens_anything(
    monkeypatch: pytest.MonkeyPatch, settings: Any
) -> None:
    User.objects.create_superuser("root")
    settings.REST_FRAMEWORK = {
        "DEFAULT_PERMISSION_CLASSES": ["rest_framework.permissions.AllowAny"],
        "DEFAULT_AUTHENTICATION_CLASSES": [f"{__name__}.Anyone"],
        "DEFAULT_THROTTLE_CLASSES": ["rest_framework.throttling.AnonRateThrottle"],
        "DEFAULT_THROTTLE_RATES": {"anon": "1/day"},
        "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.BrowsableAPIRenderer"],
        "DEFAULT_PARSER_CLASSES": ["rest_framework.parsers.FormParser"],
        "DEFAULT_VERSIONING_CLASS": "rest_framework.versioning.AcceptHeaderVersioning",
        "EXCEPTION_HANDLER": f"{__name__}.broken",
        "UNAUTHENTICATED_USER": None,
        "URL_FORMAT_OVERRIDE": "format",
        "NON_FIELD_ERRORS_KEY": "oops",
        "COERCE_DECIMAL_TO_STRING": False,
        "DATETIME_FORMAT": "%s",
        "STRICT_JSON": False,
        "PAGE_SIZE": 1,
    }
    assert permissions.AllowAny in api_settings.DEFAULT_PERMISSION_CLASSES
    for path, method, _ in ROUTES:
        response = Client().generic(method, filled(path))
        assert response.status_code == 401, path
        assert response["Content-Type"] == "application/problem+json"
    client = api()

    made = client.post("/v1/jobs", {"task": "testproject.tasks.echo", "args": [1]})
    wrong = client.post("/v1/jobs?x=1", {"task": 7})
    listed = client.get("/v1/jobs?format=api")

    assert made.status_code == 201
    assert made["Content-Type"] == "application/json"
    assert said(made)["created_at"].endswith("Z")
    assert wrong.status_code == 400
    assert listed.status_code == 400


def broken(error: Exception, context: Any) -> Any:
    raise AssertionError("the host's exception handler was asked")


# --- sessions ------------------------------------------------------------------------


@pytest.fixture
def browser() -> Client:
    client = Client(enforce_csrf_checks=True)
    client.force_login(User.objects.create_superuser("ada"))
    return client


@pytest.mark.parametrize(
    ("path", "method"),
    [(path, method) for path, method, _ in ROUTES if method != "GET"],
)
def test_what_changes_something_needs_the_token_against_forged_requests(
    browser: Client, path: str, method: str
) -> None:
    response = browser.generic(
        method, filled(path), b"{}", content_type="application/json"
    )

    assert response.status_code == 403
    assert said(response)["code"] == "csrf_failed"


def test_a_session_with_its_csrf_token_acts_in_its_users_name(browser: Client) -> None:
    browser.get("/admin/login/")
    page = browser.get("/admin/")
    cookie = browser.cookies.get("csrftoken")
    assert cookie is not None, page.status_code

    response = browser.post(
        "/v1/jobs",
        json.dumps({"task": "testproject.tasks.echo", "args": [1]}),
        content_type="application/json",
        headers={"X-CSRFToken": cookie.value},
    )

    assert response.status_code == 201, response.content
    assert Audit.objects.get(operation="enqueue_job").actor == "ada"


def test_a_token_counts_and_not_the_cookies_that_come_with_it(browser: Client) -> None:
    browser.defaults["HTTP_AUTHORIZATION"] = "Bearer rly_wrong"
    wrong = browser.get("/v1/jobs")
    browser.defaults["HTTP_AUTHORIZATION"] = f"Bearer {make_token('read')}"
    right = browser.get("/v1/whoami")

    assert wrong.status_code == 401
    assert said(right)["name"].startswith("token tests rly_")
    assert set(said(right)["permissions"]) == SCOPES["read"]


class Proxy(authentication.BaseAuthentication):
    """The host's: who a proxy says it is."""

    def authenticate(self, request: Any) -> Any:
        name = request.headers.get("X-Remote-User")
        return None if name is None else (User.objects.get(username=name), None)


def test_the_hosts_own_classes_say_who_calls_if_settings_name_them(
    browser: Client, settings: Any
) -> None:
    User.objects.create_superuser("grace")
    settings.RELAY = {"API": {"AUTHENTICATION_CLASSES": [f"{__name__}.Proxy"]}}

    by_proxy = Client(headers={"X-Remote-User": "grace"}).get("/v1/whoami")
    by_session = browser.get("/v1/whoami")

    assert said(by_proxy)["name"] == "grace"
    assert by_session.status_code == 401


def test_read_only_leaves_the_looks(settings: Any) -> None:
    job, client = make_job(), api()
    settings.RELAY = {"READ_ONLY": True}

    assert client.get("/v1/jobs").status_code == 200
    assert client.post(f"/v1/jobs/{job.pk}/cancel").status_code == 403
    assert "enqueue_job" not in said(client.get("/v1/whoami"))["permissions"]


def database() -> dict[str, str]:
    """Return all that relay's tables hold, but for when tokens were used."""
    found: dict[str, str] = {}
    with connection.cursor() as cursor:
        tables = connection.introspection.table_names(cursor)
        for table in sorted(each for each in tables if each.startswith("relay_")):
            cursor.execute(
                f"SELECT md5(coalesce(jsonb_agg(to_jsonb(t) - 'last_used_at' "
                f"ORDER BY t::text)::text, '')) FROM {table} AS t"
            )
            found[table] = str(cursor.fetchone())
    return found


def test_no_get_changes_anything() -> None:
    job, worker = make_job("failed", error_class="E"), make_worker()
    make_schedule(name="name")
    client = api()
    before = database()

    for path, method, _ in ROUTES:
        if method == "GET":
            path = path.replace("{job_id}", str(job.pk)).replace(
                "{worker_id}", str(worker.pk)
            )
            client.get(filled(path))
    client.get("/metrics")
    client.get("/readyz")

    assert database() == before
    assert Job.objects.count() == 1


@pytest.mark.parametrize(
    "relay",
    [
        {"API": {"AUTHENTICATION_CLASSES": ["shop.none.Proxy"]}},
        {"ACCESS": "shop.none.access"},
    ],
)
def test_e012_finds_what_cannot_tell_who_calls(settings: Any, relay: Any) -> None:
    assert "relay.E012" not in {each.id for each in run_checks()}

    settings.RELAY = relay

    [found] = [each for each in run_checks() if each.id == "relay.E012"]
    assert "shop.none" in found.msg
