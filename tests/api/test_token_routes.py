"""Tokens over REST: made with a secret that is told once, listed, revoked."""

from __future__ import annotations

import hashlib
import logging
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.db import connection
from django.test import Client

from relay.ids import uuid7
from relay.models import ApiToken, Audit
from relay.operations import SCOPES
from tests.api.factory import Api, api

pytestmark = pytest.mark.django_db
BODY = {"name": "ci", "scopes": ["submit", "read"]}


def tables() -> str:
    """Return all that is kept of tokens, requests and acts."""
    with connection.cursor() as cursor:
        texts = []
        for table in ("relay_token", "relay_request", "relay_audit"):
            cursor.execute(f"SELECT jsonb_agg(to_jsonb(t))::text FROM {table} AS t")
            texts.append(str(cursor.fetchone()))
    return "".join(texts)


def test_a_token_is_made_with_a_secret_that_is_told_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    client = api()

    made = client.post("/v1/tokens", {**BODY, "queues": ["mail"]}, Relay_Reason="new")
    one = client.get(made["Location"]).json()
    listed = client.get("/v1/tokens").json()["results"]

    secret = made.json()["secret"]
    token = ApiToken.objects.get(name="ci")
    assert made.status_code == 201
    assert made["Cache-Control"] == "no-store"
    assert made.json() == {**one, "secret": secret}
    assert listed[0] == one
    assert bytes(token.digest) == hashlib.sha256(secret.encode()).digest()
    assert (one["scopes"], one["queues"]) == (["read", "submit"], ["mail"])
    assert (one["state"], one["last_used_at"]) == ("active", None)
    assert one["created_by"].startswith("token tests rly_")
    assert Api(secret).get("/v1/whoami").json()["queues"] == ["mail"]
    logged = repr([record.__dict__ for record in caplog.records])
    assert secret[10:] not in tables() + logged
    assert Audit.objects.get(target=token.pk).reason == "new"


def test_what_a_host_compresses_holds_no_secret(settings: Any) -> None:
    gzip = "django.middleware.gzip.GZipMiddleware"
    settings.MIDDLEWARE = [gzip, *settings.MIDDLEWARE]
    client = api()

    made = client.post("/v1/tokens", BODY, Accept_Encoding="gzip")
    listed = client.get("/v1/tokens", Accept_Encoding="gzip")

    assert made["Content-Encoding"] == "identity"
    assert made.json()["secret"].startswith("rly_")
    assert listed["Content-Encoding"] == "gzip"


def test_a_token_is_revoked_once_and_stays_on_record() -> None:
    client = api()
    made = client.post("/v1/tokens", BODY).json()
    path = f"/v1/tokens/{made['id']}"

    revoked = client.post(f"{path}/revoke")
    again = client.post(f"{path}/revoke")

    assert (revoked.status_code, again.status_code) == (200, 409)
    assert revoked.json()["state"] == "revoked"
    assert client.get(path).json() == revoked.json()
    assert Api(made["secret"]).get("/v1/whoami").status_code == 401
    subjects = client.get("/v1/audit?subject=token").json()["results"]
    assert [each["operation"] for each in subjects[:2]] == [
        "revoke_token",
        "create_token",
    ]
    for text in (str(uuid7()), "7"):
        assert client.get(f"/v1/tokens/{text}").status_code == 404
        assert client.post(f"/v1/tokens/{text}/revoke").status_code == 404


def test_a_token_ends_when_it_is_told_to() -> None:
    client = api()

    def made(**values: Any) -> ApiToken:
        document = client.post("/v1/tokens", {**BODY, **values}).json()
        return ApiToken.objects.get(pk=document["id"])

    usual, short, never = made(), made(expires_in="2h"), made(expires_in=None)

    assert usual.expires_at == usual.created_at + timedelta(days=90)
    assert short.expires_at == short.created_at + timedelta(hours=2)
    assert never.expires_at is None
    ApiToken.objects.filter(pk=short.pk).update(expires_at=short.created_at)
    assert client.get(f"/v1/tokens/{short.pk}").json()["state"] == "expired"


@pytest.mark.parametrize(
    ("values", "pointer"),
    [
        ({"name": ""}, "/name"),
        ({"name": "a\nb"}, "/name"),
        ({"name": " a"}, "/name"),
        ({"scopes": []}, "/scopes"),
        ({"scopes": ["root"]}, "/scopes/0"),
        ({"queues": []}, "/queues"),
        ({"queues": ["; drop"]}, "/queues"),
        ({"expires_in": 0}, "/expires_in"),
        ({"expires_in": "soon"}, "/expires_in"),
        ({"secret": "rly_mine"}, "/secret"),
    ],
)
def test_what_can_be_no_token_is_refused_by_field(
    values: dict[str, Any], pointer: str
) -> None:
    response = api().post("/v1/tokens", {**BODY, **values})

    assert response.status_code == 400
    assert pointer in {each["pointer"] for each in response.json()["errors"]}
    assert ApiToken.objects.count() == 1


def test_nobody_makes_a_token_that_may_more_than_they() -> None:
    user = User.objects.create_user("vera")
    names = {"manage_token", *SCOPES["read"]}
    user.user_permissions.set(Permission.objects.filter(codename__in=names))
    client = Client()
    client.force_login(user)

    def post(*scopes: str) -> Any:
        body = {"name": "v", "scopes": scopes}
        return client.post("/v1/tokens", body, content_type="application/json")

    refused, made = post("submit"), post("read")

    assert (refused.status_code, made.status_code) == (403, 201)
    assert made.json()["created_by"] == "vera"  # who may not look at others'
    assert client.get("/v1/tokens").status_code == 403
    assert client.get(made["Location"]).status_code == 403


def test_a_token_for_some_queues_makes_and_sees_no_tokens() -> None:
    client = api("admin", queues=["mail"])

    for response in (client.get("/v1/tokens"), client.post("/v1/tokens", BODY)):
        assert response.status_code == 403
    assert ApiToken.objects.count() == 1


def test_no_answer_with_a_secret_is_kept_for_an_idempotency_key() -> None:
    response = api().post("/v1/tokens", BODY, Idempotency_Key="k")

    assert response.status_code == 400
    assert response.json()["errors"][0]["pointer"] == "Idempotency-Key"
    assert ApiToken.objects.count() == 1


def test_tokens_are_listed_page_by_page() -> None:
    client = api()
    for name in ("a", "b", "c"):
        client.post("/v1/tokens", {**BODY, "name": name})

    first = client.get("/v1/tokens?limit=2").json()
    second = client.get(first["next"]).json()

    names = [each["name"] for each in first["results"] + second["results"]]
    assert sorted(names) == ["a", "b", "c", "tests"]
    assert second["next"] is None
