"""What check --deploy finds of who sees relay, and of where it runs."""

from __future__ import annotations

import base64
import os
import tempfile
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.core.checks import CheckMessage, run_checks
from django.db import connections
from django.http import HttpRequest, HttpResponse
from django.test import override_settings
from django.urls import path

from relay.checks import TAG, deployment
from tests.docs.pages import ROOT

FOLDER = "PROMETHEUS_MULTIPROC_DIR"


def found(number: str) -> list[CheckMessage]:
    messages = run_checks(tags=[TAG], include_deployment_checks=True)
    return [message for message in messages if message.id == f"relay.{number}"]


def only(number: str) -> CheckMessage:
    [message] = found(number)
    assert message not in run_checks(tags=[TAG])  # not without --deploy
    return message


def everybody(request: Any) -> set[str]:
    return {"view_job", "cancel_job"}


def users(request: Any) -> set[str]:
    return {"view_job"} if request.user.is_authenticated else set()


def djangos(request: Any) -> None:
    return None


def broken(request: Any) -> set[str]:
    raise RuntimeError("a request of a check has no tenant")


@pytest.mark.parametrize("name", ["users", "djangos", "broken"])
def test_w004_leaves_alone_what_gives_nothing_to_a_stranger(name: str) -> None:
    with override_settings(RELAY={"ACCESS": f"{__name__}.{name}"}):
        assert found("W004") == []


def test_w004_names_what_access_gives_to_a_stranger() -> None:
    with override_settings(RELAY={"ACCESS": f"{__name__}.everybody"}):
        message = only("W004")

    assert "gives cancel_job, view_job to a request without a user" in message.msg
    assert "is_authenticated" in str(message.hint)


def exporter(request: HttpRequest) -> HttpResponse:
    raise NotImplementedError


exporter.__module__ = "django_prometheus.exports"


def closing(view: Any) -> Any:
    def run(*args: Any) -> Any:
        return view(*args)

    run.__module__, run.__wrapped__ = view.__module__, view  # type: ignore[attr-defined] # as functools.wraps
    return run


class Open:
    urlpatterns = (path("prometheus/metrics", exporter),)


class Closed:
    urlpatterns = (path("prometheus/metrics", closing(exporter)),)


def test_w004_names_an_exporter_of_metrics_that_is_open() -> None:
    with override_settings(ROOT_URLCONF=Open):
        assert "/prometheus/metrics of django_prometheus" in only("W004").msg
    with override_settings(ROOT_URLCONF=Closed):
        assert found("W004") == []


def test_w007_names_a_grace_that_a_container_does_not_grant(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    monkeypatch.setattr(deployment, "_CONTAINER_FILES", ())
    with override_settings(RELAY={"GRACE": timedelta(seconds=30)}):
        assert found("W007") == []
        monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
        assert "RELAY['GRACE'] is 0:00:30" in only("W007").msg
    assert found("W007") == []


def test_w008_names_a_folder_of_metrics_that_is_none_or_not_of_relay_alone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv(FOLDER, raising=False)
    assert found("W008") == []
    monkeypatch.setenv(FOLDER, str(tmp_path))
    assert found("W008") == []

    monkeypatch.setenv(FOLDER, str(tmp_path / "none"))
    assert "nothing is counted" in only("W008").msg
    monkeypatch.setenv(FOLDER, os.path.join(tempfile.gettempdir(), "."))
    assert "theirs are added" in only("W008").msg


@pytest.mark.parametrize("backend", ["locmem.LocMemCache", "dummy.DummyCache"])
def test_w018_names_a_rate_that_each_process_counts_for_itself(backend: str) -> None:
    caches = {"default": {"BACKEND": f"django.core.cache.backends.{backend}"}}
    shared = {"default": {"BACKEND": "django.core.cache.backends.db.DatabaseCache"}}
    with override_settings(RELAY={"API": {"SUBMIT_RATE": 5}}, CACHES=caches):
        assert backend in only("W018").msg
    with override_settings(RELAY={"API": {"SUBMIT_RATE": 5}}, CACHES=shared):
        assert found("W018") == []
    assert found("W018") == []


@pytest.mark.parametrize(
    ("host", "options"),
    [
        ("", {}),
        ("/run/postgresql", {}),
        ("localhost", {}),
        ("db.internal", {"sslmode": "verify-full"}),
        ("", {"service": "shop"}),
    ],
)
def test_w019_leaves_alone_what_is_near_or_proves_who_it_is(
    monkeypatch: pytest.MonkeyPatch, host: str, options: dict[str, str]
) -> None:
    monkeypatch.delenv("PGSSLMODE", raising=False)
    database = connections["default"].settings_dict
    monkeypatch.setitem(database, "HOST", host)
    monkeypatch.setitem(database, "OPTIONS", options)

    assert found("W019") == []


def test_w019_names_a_server_that_need_not_prove_who_it_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("PGSSLMODE", raising=False)
    database = connections["default"].settings_dict
    monkeypatch.setitem(database, "HOST", "db.internal")
    monkeypatch.setitem(database, "OPTIONS", {"sslmode": "require"})

    assert "on db.internal, with sslmode 'require'" in only("W019").msg

    monkeypatch.setitem(database, "OPTIONS", {})
    assert "sslmode 'prefer'" in only("W019").msg
    monkeypatch.setenv("PGSSLMODE", "verify-full")
    assert found("W019") == []


def test_w020_names_a_key_that_everybody_can_read() -> None:
    example = base64.b64encode(deployment.EXAMPLE_KEY).decode()
    own = base64.b64encode(os.urandom(32)).decode()
    page = ROOT / "docs" / "howto" / "sensitive-arguments.md"
    assert example in page.read_text(encoding="utf-8")

    with override_settings(RELAY={"ENCRYPTION_KEYS": {"new": own, "old": example}}):
        message = only("W020")
    assert "under 'old'" in message.msg
    assert example not in f"{message.msg}{message.hint}"
    with override_settings(RELAY={"ENCRYPTION_KEYS": {"new": own}}):
        assert found("W020") == []
