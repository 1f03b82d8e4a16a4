"""The page of the system."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.test import Client

from relay.retry import Backoff
from tests.dashboard.pages import shown, url


def test_the_system_page_shows_no_secret(browser: Client, settings: Any) -> None:
    key = "QUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUE="
    settings.RELAY = {"ENCRYPTION_KEYS": {"k1": key}}

    page = shown(browser.get(url("system")))

    assert key not in page
    assert settings.SECRET_KEY not in page
    assert "relay_job" in page


def test_the_system_page_writes_settings_as_people_do(
    browser: Client, settings: Any
) -> None:
    settings.RELAY = {
        "GRACE": timedelta(seconds=90),
        "QUEUES": ["default", "mail"],
        "BACKOFF": Backoff(cap=timedelta(hours=2)),
        "DASHBOARD": {"ENV": ("staging", "amber")},
    }

    page = shown(browser.get(url("system")))

    for name, value in (
        ("GRACE", "1 min"),
        ("NOTIFY", "yes"),
        ("QUEUES", "default, mail"),
        ("DASHBOARD", "ENV: staging, amber; LINKS: –"),  # noqa: RUF001 - an en dash
        ("BACKOFF", "base: 15 s; cap: 2 h; factor: 2.0; jitter: yes; step: 0 ms"),
    ):
        assert f">{name}</dt><dd>{value}</dd>" in page, name
    assert "timedelta" not in page
