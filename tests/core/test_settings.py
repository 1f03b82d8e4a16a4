from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.test import override_settings

from relay.conf import Settings, check_queue_name, get_settings
from relay.exceptions import RelayError, SettingsError
from relay.retry import Backoff


def test_the_defaults_are_those_of_the_docs() -> None:
    settings = Settings()

    assert settings.database == "default"
    assert settings.queues == ("default",)
    assert settings.max_retries == 25
    assert settings.backoff == Backoff(
        base=timedelta(seconds=15), cap=timedelta(hours=1)
    )
    assert settings.retention_completed == timedelta(days=1)
    assert settings.retention_failed == timedelta(days=30)
    assert settings.lease == timedelta(seconds=30)
    assert settings.grace == timedelta(seconds=25)
    assert settings.concurrency == 10
    assert (settings.crash_limit, settings.loss_limit) == (3, 10)
    assert settings.unknown_task_limit == timedelta(hours=24)


def test_a_key_is_its_attribute_in_capitals() -> None:
    with override_settings(RELAY={"MAX_RETRIES": 3, "QUEUES": ["mail", "default"]}):
        settings = get_settings()

    assert settings.max_retries == 3
    assert settings.queues == ("mail", "default")


def test_settings_are_read_once_and_again_after_a_change() -> None:
    first = get_settings()
    assert get_settings() is first

    with override_settings(RELAY={"CONCURRENCY": 99}):
        assert get_settings().concurrency == 99

    assert get_settings().concurrency == first.concurrency


def test_a_change_of_another_setting_keeps_what_was_read() -> None:
    first = get_settings()

    with override_settings(TIME_ZONE="UTC"):
        assert get_settings() is first


@pytest.mark.parametrize(
    ("relay", "message"),
    [
        ({"MAX_RETRYS": 1}, "'MAX_RETRYS'.*did you mean 'MAX_RETRIES'"),
        ({"max_retries": 1}, "'max_retries'.*did you mean 'MAX_RETRIES'"),
        ({"XYZ": 1}, "'XYZ'.*known: "),
        ({7: 1}, "unknown key 7"),
        ([("LEASE", 1)], "give a dict"),
        ({"LEASE": 30}, "'LEASE'.*timedelta"),
        ({"LEASE": timedelta(milliseconds=1)}, "'LEASE'.*at least"),
        ({"POLL_INTERVAL": timedelta(0)}, "'POLL_INTERVAL'"),
        ({"GRACE": timedelta(seconds=-1)}, "'GRACE'"),
        ({"UNKNOWN_TASK_LIMIT": timedelta.max}, "'UNKNOWN_TASK_LIMIT'.*at most"),
        ({"MAX_RETRIES": 10**10}, "'MAX_RETRIES'.*at most 1,000,000"),
        ({"DATABASE": "elsewhere"}, "'DATABASE'.*alias in DATABASES"),
        ({"DATABASE": None}, "'DATABASE'.*alias in DATABASES"),
        ({"UNKNOWN_TASK_LIMIT": None}, "'UNKNOWN_TASK_LIMIT'"),
        ({"RETENTION_COMPLETED": timedelta(-1)}, "'RETENTION_COMPLETED'.*or None"),
        ({"RETENTION_FAILED": 5}, "'RETENTION_FAILED'"),
        ({"RETENTION_AUDIT": timedelta(0)}, "'RETENTION_AUDIT'.*at least 1 day"),
        ({"RETENTION_AUDIT": timedelta.max}, "'RETENTION_AUDIT'.*at most"),
        ({"QUEUES": {"a": {"PERMISSION": 1}}}, "'a'.*'PERMISSION'.*such as"),
        ({"MAX_RETRIES": -1}, "'MAX_RETRIES'.*at least 0"),
        ({"MAX_RETRIES": True}, "'MAX_RETRIES'"),
        ({"MAX_RETRIES": "3"}, "'MAX_RETRIES'"),
        ({"CONCURRENCY": 0}, "'CONCURRENCY'.*at least 1"),
        ({"CRASH_LIMIT": 0}, "'CRASH_LIMIT'"),
        ({"LOSS_LIMIT": 1.5}, "'LOSS_LIMIT'"),
        ({"NOTIFY": 1}, "'NOTIFY'.*True or False"),
        ({"SCHEDULE_IN_WORKERS": "yes"}, "'SCHEDULE_IN_WORKERS'"),
        ({"TRANSACTION_POOLER": None}, "'TRANSACTION_POOLER'"),
        ({"CAPTURE_LOGS": 1}, "'CAPTURE_LOGS'.*True, False"),
        ({"CAPTURE_LOGS": "always"}, "'CAPTURE_LOGS'"),
        ({"MAX_LOG_BYTES": 10}, "'MAX_LOG_BYTES'"),
        ({"TIMEOUT_GRACE": 5}, "'TIMEOUT_GRACE'.*timedelta"),
        ({"CANCEL_GRACE": timedelta(-1)}, "'CANCEL_GRACE'.*at least"),
        ({"API": 5}, "'API'.*give a dict"),
        ({"API": {"SUBMIT_RATES": 1}}, "'API'.*'SUBMIT_RATES'.*'SUBMIT_RATE'"),
        ({"API": {"SUBMIT_RATE": 0}}, "'API'\\]\\['SUBMIT_RATE'.*at least 1"),
        ({"API": {"SUBMIT_BURST": "9"}}, "'SUBMIT_BURST'"),
        ({"API": {"MAX_BODY_BYTES": 0}}, "'MAX_BODY_BYTES'.*at least 1"),
        ({"API": {"AUTHENTICATION_CLASSES": "a.b"}}, "'AUTHENTICATION_CLASSES'.*list"),
        ({"DASHBOARD": 5}, "'DASHBOARD'.*give a dict"),
        ({"DASHBOARD": {"LINK": {}}}, "'DASHBOARD'.*'LINK'.*'LINKS'"),
        ({"DASHBOARD": {"ENV": "production"}}, "'ENV'.*one of red"),
        ({"DASHBOARD": {"ENV": ("production", "pink")}}, "'ENV'.*one of red"),
        ({"DASHBOARD": {"ENV": ("", "red")}}, "'ENV'.*give a word"),
        ({"DASHBOARD": {"LINKS": ["https://a"]}}, "'LINKS'.*give a dict"),
        ({"DASHBOARD": {"LINKS": {"": "https://a"}}}, "'' cannot name a link"),
        ({"OTEL": 5}, "'OTEL'.*give a dict"),
        ({"OTEL": {"PARENTS": True}}, "'OTEL'.*'PARENTS'.*'PARENT'"),
        ({"OTEL": {"PARENT": 1}}, "'OTEL'\\]\\['PARENT'.*True or False"),
        ({"OTEL": {"CREATE_LIMIT": -1}}, "'CREATE_LIMIT'.*at least 0"),
        ({"SLOW_JOB": 5}, "'SLOW_JOB'.*timedelta"),
        ({"SLOW_JOB": timedelta(0)}, "'SLOW_JOB'.*at least"),
        ({"BACKOFF": 15}, "'BACKOFF'.*relay.Backoff"),
        ({"QUEUES": "mail"}, "'QUEUES'.*list"),
        ({"QUEUES": 5}, "'QUEUES'"),
        ({"QUEUES": ["mail", "two words"]}, "'QUEUES'.*two words"),
    ],
)
def test_a_wrong_setting_is_refused_with_its_key(relay: Any, message: str) -> None:
    with (
        override_settings(RELAY=relay),
        pytest.raises(SettingsError, match=message) as caught,
    ):
        get_settings()

    assert isinstance(caught.value, ImproperlyConfigured)
    assert isinstance(caught.value, RelayError)


def test_nothing_at_all_may_be_kept_and_all_for_ever() -> None:
    settings = Settings(retention_completed=timedelta(0), retention_failed=None)

    assert settings.retention_completed == timedelta(0)
    assert settings.retention_failed is None
    assert Settings().retention_audit == timedelta(days=400)
    assert Settings(retention_audit=None).retention_audit is None


@pytest.mark.parametrize("name", ["default", "a", "0", "Mail.Bulk:eu-1_x", "a" * 100])
def test_queue_names_are_short_and_ascii(name: str) -> None:
    assert check_queue_name(name) == name


@pytest.mark.parametrize(
    "name",
    ["", " ", "two words", "é", "-x", ".x", "a" * 101, "a\n", "a\x00", "a,b", None, 5],
)
def test_other_queue_names_are_refused(name: object) -> None:
    with pytest.raises(ValueError, match="cannot name a queue"):
        check_queue_name(name)


@pytest.mark.parametrize(
    "address",
    [
        *("javascript:alert(1)", "//logs.example.com", "/logs/{job_id}", "ftp://a/b"),
        *("JavaScript://a/%0aalert(1)", " https://a", "https://a b", "https://", 5),
        *("https://{job_id}.example.com", "https://a/{args}", "https://a/{job_id!r}"),
        *(
            "https://a/{job_id:>9}",
            "https://a/{job_id.x}",
            "https://a/{",
            "https://a/{}",
        ),
        *("https://u@a/", "https:\\\\a", "https://a\n/"),
    ],
)
def test_a_link_leads_to_one_host_by_http(address: object) -> None:
    with (
        override_settings(RELAY={"DASHBOARD": {"LINKS": {"Logs": address}}}),
        pytest.raises(SettingsError, match=r"'LINKS'\]\['Logs'\].*begins with https"),
    ):
        get_settings()


def test_a_link_has_places_and_braces() -> None:
    links = {"Logs": "https://a.example:9000/x?q={job_id}&at={start}&b={{}}"}

    with override_settings(
        RELAY={"DASHBOARD": {"LINKS": links, "ENV": ["test", "blue"]}}
    ):
        settings = get_settings().dashboard

    assert settings.links == links
    assert settings.env == ("test", "blue")
