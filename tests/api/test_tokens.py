"""API tokens: what of them is kept, what they open, and until when."""

from __future__ import annotations

import hashlib
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.db.models import F
from django.test import Client

from relay import operations
from relay.exceptions import ArgumentError, Conflict, NotAllowed, NotFound
from relay.ids import uuid7
from relay.models import ApiToken, Audit, Job
from relay.operations import SCOPES, caller_of_token, create_token, revoke_token
from tests.api.factory import ROOT, Api, api, make_token
from tests.operations.factory import actor, make_job

pytestmark = pytest.mark.django_db


def rows() -> str:
    with connection.cursor() as cursor:
        cursor.execute("SELECT jsonb_agg(to_jsonb(t))::text FROM relay_token AS t")
        return str(cursor.fetchone())


def test_of_a_secret_only_the_hash_and_a_few_characters_are_kept() -> None:
    made = create_token(ROOT, "ci", scopes=["read"])

    token = ApiToken.objects.get()
    assert made.secret.startswith("rly_")
    assert len(made.secret) == 47
    assert bytes(token.digest) == hashlib.sha256(made.secret.encode()).digest()
    assert token.prefix == made.secret[:10]
    assert made.secret not in rows()
    assert made.secret[10:] not in rows() + repr(made)


def test_making_and_revoking_is_on_record_without_the_secret() -> None:
    made = create_token(ROOT, "ci", scopes=["submit", "read"], queues=["mail"])
    revoke_token(ROOT, made.token.pk)

    records = Audit.objects.order_by("id").values_list("operation", "target", "detail")
    target = str(made.token.pk)
    limits = {"queues": ["mail"], "tasks": None}
    detail = {"name": "ci", "scopes": ["read", "submit"], **limits}
    assert list(records) == [
        ("create_token", target, detail),
        ("revoke_token", target, {"name": "ci"}),
    ]


def test_a_token_ends_after_ninety_days_unless_told_otherwise() -> None:
    usual = create_token(ROOT, "a", scopes=["read"]).token
    other = create_token(ROOT, "b", scopes=["read"], expires_in=None).token

    assert usual.expires_at == usual.created_at + timedelta(days=90)
    assert other.expires_at is None


@pytest.mark.parametrize("end", ["expired", "revoked", "deleted", "altered"])
def test_a_token_that_is_over_opens_nothing(end: str) -> None:
    secret = make_token("read")
    token = ApiToken.objects.get()
    assert Api(secret).get("/v1/jobs").status_code == 200
    if end == "expired":
        ApiToken.objects.update(expires_at=F("created_at") - timedelta(seconds=1))
    elif end == "revoked":
        revoke_token(ROOT, token.pk)
    elif end == "deleted":
        token.delete()
    else:
        secret = secret[:-1] + ("A" if secret[-1] != "A" else "B")

    response = Api(secret).get("/v1/jobs")

    assert response.status_code == 401
    assert b'"invalid_token"' in response.content
    assert response["WWW-Authenticate"].startswith("Bearer")


@pytest.mark.parametrize("secret", ["", "rly_", "rly_" + "x" * 43, "é", "a b c"])
def test_what_is_no_token_opens_nothing(secret: str) -> None:
    client = Client(headers={"Authorization": f"Bearer {secret}"})

    assert client.get("/v1/jobs").status_code == 401
    assert client.get("/metrics").status_code == 401
    assert client.get("/readyz").status_code == 401


def test_the_last_use_is_written_once_a_minute() -> None:
    client = api("read")
    client.get("/v1/version")
    first = ApiToken.objects.get().last_used_at
    client.get("/v1/version")
    again = ApiToken.objects.get().last_used_at
    ApiToken.objects.update(last_used_at=F("last_used_at") - timedelta(minutes=2))
    client.get("/v1/version")
    later = ApiToken.objects.get().last_used_at

    assert first is not None
    assert again == first
    assert later is not None
    assert later >= first


def test_a_scope_is_a_set_of_permissions_and_admin_is_all() -> None:
    for scope, permissions in SCOPES.items():
        caller = caller_of_token(make_token(scope))
        assert caller is not None
        assert caller.permissions == permissions
        assert permissions <= operations.PERMISSIONS
    assert SCOPES["admin"] == operations.PERMISSIONS


def test_nobody_makes_a_token_that_may_more_than_they() -> None:
    asker = actor("manage_token", *SCOPES["read"])

    create_token(asker, "fine", scopes=["read"])
    with pytest.raises(NotAllowed, match="enqueue_job"):
        create_token(asker, "more", scopes=["read", "submit"])
    with pytest.raises(NotAllowed, match="manage_token"):
        create_token(actor(*SCOPES["read"]), "none", scopes=["read"])
    assert ApiToken.objects.count() == 1


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("", {}),
        (" a", {}),
        ("a\nb", {}),
        ("x" * 101, {}),
        ("a", {"scopes": []}),
        ("a", {"scopes": ["worker2"]}),
        ("a", {"expires_in": timedelta(0)}),
        ("a", {"expires_in": timedelta(days=40_000)}),
        ("a", {"expires_in": 7}),
        ("a", {"queues": []}),
        ("a", {"queues": "mail"}),
        ("a", {"queues": ["; drop"]}),
    ],
)
def test_what_can_be_no_token_is_refused(name: str, values: dict[str, Any]) -> None:
    with pytest.raises(ArgumentError):
        create_token(ROOT, name, **{"scopes": ["read"], **values})


def test_a_token_is_revoked_once() -> None:
    made = create_token(ROOT, "ci", scopes=["read"])
    revoke_token(ROOT, made.token.pk)

    with pytest.raises(Conflict, match="revoked"):
        revoke_token(ROOT, made.token.pk)
    with pytest.raises(NotFound):
        revoke_token(ROOT, uuid7())


def test_a_token_for_some_queues_deals_with_their_jobs_only() -> None:
    mine, other = make_job(queue="mail"), make_job(queue="video")
    client = api("read", "submit", "operate", queues=["mail"])
    call = {"task": "testproject.tasks.echo", "args": [1]}

    listed = client.get("/v1/jobs").json()["results"]
    counted = client.get("/v1/jobs/count").json()
    queues = client.get("/v1/queues").json()["results"]

    assert [each["id"] for each in listed] == [str(mine.pk)]
    assert counted["count"] == 1
    assert {each["name"] for each in queues} <= {"mail"}
    assert client.get("/v1/jobs?queue=video").json()["results"] == []
    for method, path in (
        ("GET", ""),
        ("GET", "/history"),
        ("GET", "/logs"),
        ("GET", "/why"),
        ("POST", "/cancel"),
        ("POST", "/retry"),
        ("POST", "/replay"),
        ("DELETE", ""),
    ):
        response = client.send(method, f"/v1/jobs/{other.pk}{path}")
        assert response.status_code == 404, (method, path)
    assert client.post("/v1/jobs", call).status_code == 403  # of the queue default
    assert client.post("/v1/jobs", {**call, "queue": "mail"}).status_code == 201
    moved = client.patch(f"/v1/jobs/{mine.pk}", {"queue": "video"})
    assert moved.status_code == 403
    assert client.get("/v1/queues/video").status_code == 404
    for path in ("/v1/stats", "/v1/workers", "/v1/schedules", "/v1/failures"):
        assert client.get(path).status_code == 403, path
    bulk = {"action": "cancel", "filter": "queue:video"}
    assert client.post("/v1/jobs/bulk", bulk).status_code == 403
    batch = {"jobs": [{**call, "queue": "mail"}, {**call, "queue": "video"}]}
    assert client.post("/v1/jobs/batch", batch).status_code == 403


@pytest.mark.parametrize("way", ["key", "replace", "id"])
@pytest.mark.parametrize("path", ["/v1/jobs", "/v1/jobs/batch"])
def test_a_token_for_some_queues_comes_to_no_other_job_by_its_key_or_id(
    way: str, path: str
) -> None:
    call: dict[str, Any] = {"task": "testproject.tasks.echo", "args": [1]}
    options: dict[str, Any] = {
        "key": {"unique": {"key": "k"}},
        "replace": {"unique": {"key": "k", "on_conflict": "replace"}},
        "id": {"id": str(uuid7())},
    }[way]
    made = api().post("/v1/jobs", {**call, **options, "queue": "video"})
    client = api("submit", "read", queues=["mail"])
    body = {**call, **options, "args": [2], "queue": "mail"}

    response = client.post(path, {"jobs": [body]} if "batch" in path else body)

    assert made.status_code == 201
    assert response.status_code in (403, 409)
    assert Job.objects.get().args["args"] == [1]
    assert made.json()["id"].encode() not in response.content
