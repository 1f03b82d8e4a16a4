"""API tokens in the admin: a secret is shown once, and nowhere else."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from relay.models import ApiToken, Audit
from relay.operations import SCOPES, Actor, create_token, revoke_token
from tests.admin.test_jobs import XSS, client_of, said

LIST = "/admin/relay/apitoken/"
ROOT = Actor(name="root", source="cli")
FORM = {"name": "ci", "scopes": ["read", "submit"], "expires_in": "30"}


def make(name: str = "ci", *scopes: str) -> ApiToken:
    return create_token(ROOT, name, scopes=scopes or ("read",)).token


def secrets_in(text: str) -> list[str]:
    return re.findall(r"rly_[\w-]{20,}", text)


def everything_kept() -> str:
    """Return all rows of all tables but the token's own."""
    with connection.cursor() as cursor:
        texts = []
        for table in connection.introspection.table_names(cursor):
            cursor.execute(f'SELECT jsonb_agg(to_jsonb(t))::text FROM "{table}" AS t')
            texts.append(str(cursor.fetchone()))
    return "".join(texts)


def test_a_token_is_made_and_its_secret_shown_once(browser: Client) -> None:
    form = browser.get(f"{LIST}add/").text
    made = browser.post(f"{LIST}add/", {**FORM, "queues": "mail, web", "reason": "new"})

    [secret] = secrets_in(made.text)
    token = ApiToken.objects.get()
    assert 'value="90"' in form
    assert made.status_code == 200
    assert "no-store" in made["Cache-Control"]
    assert made["Content-Encoding"] == "identity"  # what compresses leaves it alone
    assert (token.scopes, token.queues) == (["read", "submit"], ["mail", "web"])
    assert token.expires_at == token.created_at + timedelta(days=30)
    assert token.created_by == "ada"
    assert browser.get("/v1/whoami", headers=bearer(secret)).json()["queues"]
    assert Audit.objects.get().reason == "new"
    assert LogEntry.objects.get().object_repr == f"ci {token.prefix}"
    assert secret[10:] not in everything_kept()
    for address in (LIST, f"{LIST}{token.pk}/change/", f"{LIST}{token.pk}/history/"):
        page = browser.get(address)
        assert page.status_code == 200
        assert secrets_in(page.text) == []
        assert token.prefix in page.text


def bearer(secret: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {secret}"}


def test_a_token_never_ends_only_where_that_is_ticked(browser: Client) -> None:
    forgotten = browser.post(f"{LIST}add/", {**FORM, "expires_in": ""})
    assert "or that it never does" in forgotten.text
    assert not ApiToken.objects.exists()

    browser.post(f"{LIST}add/", {**FORM, "expires_in": "", "never_expires": "on"})

    assert ApiToken.objects.get().expires_at is None


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"name": "a\x01b"}, "without control characters"),
        ({"scopes": []}, "required"),
        ({"scopes": ["root"]}, "not one of the available choices"),
        ({"queues": "; drop"}, "cannot name a queue"),
        ({"expires_in": "0"}, "greater than or equal to 1"),
        ({"expires_in": "99999999"}, "less than or equal to"),
    ],
)
def test_what_can_be_no_token_is_refused_in_the_form(
    browser: Client, values: dict[str, Any], says: str
) -> None:
    response = browser.post(f"{LIST}add/", {**FORM, **values})

    assert response.status_code == 200
    assert says in response.text
    assert not ApiToken.objects.exists()


def test_tokens_are_revoked_once_that_is_confirmed(browser: Client) -> None:
    one, two, over = make("one"), make("two"), make("over")
    revoke_token(ROOT, over.pk)
    rows = {"action": "revoke", "_selected_action": [str(t.pk) for t in (one, over)]}

    asked = browser.post(LIST, rows)
    assert "Revoke 2 tokens" in asked.text
    assert ApiToken.objects.filter(revoked_at=None).count() == 2
    done = browser.post(LIST, {**rows, "confirmed": "yes"}, follow=True)
    act = f"{LIST}{two.pk}/act/"
    browser.post(act, {"action": "revoke", "confirmed": "yes", "reason": "leaked"})

    assert "1 revoked." in said(done)
    assert "it is revoked" in said(done)
    assert not ApiToken.objects.filter(revoked_at=None).exists()
    assert Audit.objects.latest("id").reason == "leaked"
    assert 'value="revoke"' not in browser.get(f"{LIST}{two.pk}/change/").text


def test_the_list_says_what_a_token_may_and_until_when(browser: Client) -> None:
    make("active", "operate")
    revoke_token(ROOT, make("gone").pk)
    late = make("late")
    ApiToken.objects.filter(pk=late.pk).update(expires_at=late.created_at)

    with CaptureQueriesContext(connection) as queries:
        text = browser.get(LIST).text

    statements = [one["sql"] for one in queries if "SAVEPOINT" not in one["sql"]]
    assert len(statements) <= 6, statements
    assert not any("digest" in each for each in statements)
    for shown in ("active", "revoked", "expired", "operate", "root"):
        assert shown in text


def test_nobody_without_the_permission_sees_makes_or_revokes(db: None) -> None:
    token = make()
    viewer = client_of("view_apitoken", "view_job")

    assert viewer.get(LIST).status_code == 200
    assert viewer.get(f"{LIST}add/").status_code == 403
    assert viewer.post(f"{LIST}add/", FORM).status_code == 403
    act = {"action": "revoke", "confirmed": "yes"}
    assert viewer.post(f"{LIST}{token.pk}/act/", act).status_code == 403
    assert viewer.post(f"{LIST}{token.pk}/change/", FORM).status_code == 403
    assert viewer.post(f"{LIST}{token.pk}/delete/", {"post": "yes"}).status_code == 403
    assert ApiToken.objects.get().revoked_at is None


def test_nobody_is_offered_or_given_more_than_they_may(db: None) -> None:
    maker = client_of("manage_token", *SCOPES["read"])

    form = maker.get(f"{LIST}add/").text
    more = maker.post(f"{LIST}add/", {**FORM, "scopes": ["submit"]})
    made = maker.post(f"{LIST}add/", {**FORM, "scopes": ["read"]})

    assert 'value="read"' in form
    assert 'value="submit"' not in form
    assert "not one of the available choices" in more.text
    assert len(secrets_in(made.text)) == 1  # who may not look at the list
    assert maker.get(LIST).status_code == 403


def test_failure_016_a_hostile_name_is_shown_as_text(browser: Client) -> None:
    made = browser.post(f"{LIST}add/", {**FORM, "name": XSS})
    token = ApiToken.objects.get()
    asked = browser.post(
        LIST, {"action": "revoke", "_selected_action": [str(token.pk)]}
    )

    pages = [browser.get(LIST), browser.get(f"{LIST}{token.pk}/change/"), made, asked]
    for page in pages:
        assert "<img src=x" not in page.text
        assert "img src=x" in page.text
