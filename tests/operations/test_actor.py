"""Who may do what: Django's permissions, RELAY["ACCESS"], RELAY["READ_ONLY"]."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import AnonymousUser, Permission, User
from django.contrib.contenttypes.models import ContentType
from django.http import HttpRequest
from django.test import RequestFactory, override_settings

from relay.exceptions import NotAllowed, SettingsError
from relay.operations import PERMISSIONS, Actor

ACCESS = f"{__name__}.access"


def access(request: HttpRequest) -> set[str] | None:
    asked = request.headers.get("X-May")
    return None if asked is None else set(asked.split(","))


def request_of(user: Any = None, **headers: str) -> HttpRequest:
    request = RequestFactory().get("/", headers=headers)
    request.user = user or AnonymousUser()
    return request


def test_every_permission_is_one_that_django_has(db: None) -> None:
    of_relay = Permission.objects.filter(
        content_type__in=ContentType.objects.filter(app_label="relay")
    )

    assert set(of_relay.values_list("codename", flat=True)) >= PERMISSIONS


def test_a_request_carries_what_its_user_may_do(db: None) -> None:
    user = User.objects.create_user("vera")
    user.user_permissions.add(Permission.objects.get(codename="cancel_job"))

    found = Actor.of_request(
        request_of(user, **{"X-Request-ID": "r-1"}), source="admin", reason=" why "
    )

    assert (found.name, found.source, found.reason) == ("vera", "admin", "why")
    assert (found.request_id, found.address) == ("r-1", "127.0.0.1")
    assert found.permissions == {"cancel_job"}
    assert found.may("cancel_job")
    assert not found.may("retry_job")


def test_a_superuser_may_do_all_and_strangers_nothing(db: None) -> None:
    root = User.objects.create_superuser("root")
    gone = User.objects.create_superuser("gone", is_active=False)

    allowed = [
        Actor.of_request(request_of(user), source="api").permissions
        for user in (root, gone, None)
    ]

    assert allowed == [PERMISSIONS, frozenset(), frozenset()]
    assert Actor.of_request(request_of(), source="api").name == "anonymous"


def test_access_speaks_before_djangos_permissions(db: None) -> None:
    root = User.objects.create_superuser("root")

    with override_settings(RELAY={"ACCESS": ACCESS}):
        by_header = Actor.of_request(
            request_of(root, **{"X-May": "view_job,fly"}), source="api"
        )
        by_user = Actor.of_request(request_of(root), source="api")
        nobody = Actor.of_request(request_of(), source="api")

    assert by_header.permissions == {"view_job"}
    assert by_user.permissions == PERMISSIONS
    assert nobody.permissions == frozenset()


def test_an_access_that_cannot_be_imported_is_refused_not_passed_over() -> None:
    with (
        override_settings(RELAY={"ACCESS": "tests.no_such.thing"}),
        pytest.raises(SettingsError, match=r"tests\.no_such\.thing"),
    ):
        Actor.of_request(request_of(), source="api")


def test_read_only_leaves_everybody_but_looking() -> None:
    root = Actor(name="root", source="cli")
    assert root.may("cancel_job")

    with override_settings(RELAY={"READ_ONLY": True}):
        assert root.may("view_job")
        assert not root.may("cancel_job")
        with pytest.raises(NotAllowed, match="READ_ONLY"):
            root.require("cancel_job", "cancel_jobs")


def test_what_is_written_of_an_actor_stays_on_one_line() -> None:
    found = Actor(name="ada\nroot", source="api", reason="a\x00\x1b[31m" + "x" * 999)

    assert found.name == "ada\\nroot"
    assert found.reason is not None
    assert found.reason.startswith("a\\x00\\x1b[31mx")
    assert len(found.reason) == 500


def test_an_actor_without_a_name_is_refused() -> None:
    with pytest.raises(ValueError, match="name"):
        Actor(name=" ", source="api")


def test_a_permission_that_is_none_is_a_slip() -> None:
    with pytest.raises(ValueError, match="fly"):
        Actor(name="ada", source="cli").may("fly")


def test_a_history_tells_little_of_a_long_reason() -> None:
    asker = Actor(name="ada", source="api", reason="r" * 400)

    assert asker.why == {"source": "api", "reason": "r" * 200}
