"""System checks that ask no database."""

from __future__ import annotations

import re
import sys
import types
from collections.abc import Callable
from datetime import timedelta
from enum import Enum
from pathlib import Path
from typing import Any, Literal

import pytest
from django.apps import apps
from django.core.checks import CheckMessage, run_checks
from django.core.management import call_command
from django.core.management.base import SystemCheckError
from django.db import connections
from django.test import override_settings

from relay import cron, task, tasks
from relay.checks import TAG
from relay.conf import get_settings
from relay.exceptions import SettingsError
from relay.scheduler import registry
from relay.tasks import Task, all_tasks

ROOT = Path(__file__).resolve().parent.parent.parent


class Colour(Enum):
    RED = "red"


@pytest.fixture(autouse=True)
def _own_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take away what a test registers, and what others have."""
    monkeypatch.setattr(tasks, "_tasks", {})
    monkeypatch.setattr(registry, "_declared", {})


def found(number: str, *, deploy: bool = False) -> list[CheckMessage]:
    messages = run_checks(tags=[TAG], include_deployment_checks=deploy)
    return [message for message in messages if message.id == f"relay.{number}"]


def only(number: str, *, deploy: bool = False) -> CheckMessage:
    [message] = found(number, deploy=deploy)
    return message


def assert_leads_to_a_part_of_a_page(hint: str) -> None:
    """Fail unless a page has the heading that the hint names."""
    named = re.search(r"(docs/[a-z/-]+\.md)#([a-z-]+)", hint)
    assert named is not None, hint
    page = (ROOT / named[1]).read_text()
    titles = re.findall(r"^#+ (.+)$", page, re.MULTILINE)
    anchors = {re.sub(r"[^a-z -]", "", t.lower()).replace(" ", "-") for t in titles}
    assert named[2] in anchors


def change_database(monkeypatch: pytest.MonkeyPatch, **values: Any) -> None:
    for key, value in values.items():
        monkeypatch.setitem(connections["default"].settings_dict, key, value)


def test_a_sound_project_has_nothing_to_report() -> None:
    @task(name="checks.sound")
    def sound(
        name: str, sizes: list[int | Any] | None = None, *, kind: Literal["a"] = "a"
    ) -> None: ...

    assert run_checks(tags=[TAG]) == []


def test_no_check_runs_twice_when_the_app_is_made_ready_again() -> None:
    apps.get_app_config("relay").ready()

    with override_settings(USE_TZ=False):
        assert len(found("W006")) == 1


def test_e001_names_a_database_that_is_no_postgresql(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(type(connections["default"]), "vendor", "sqlite")

    message = only("E001")

    assert "DATABASES['default'] is sqlite" in message.msg
    assert "django.db.backends.postgresql" in str(message.hint)


@pytest.mark.parametrize(
    ("settings", "texts"),
    [
        ({"LEESE": timedelta(seconds=30)}, ["'LEESE': did you mean 'LEASE'?"]),
        ({"CONCURRENCY": "10"}, ["RELAY['CONCURRENCY'] is '10': give a whole number"]),
        ({"QUEUES": "mail"}, ["give a list of queue names"]),
        (["QUEUES"], ["RELAY is ['QUEUES']: give a dict"]),
        (
            {"LEESE": 1, "GRACE": 5, "NOTIFY": True},
            ["'LEESE': did you mean 'LEASE'?", "RELAY['GRACE'] is 5: give a timedelta"],
        ),
    ],
    ids=["unknown", "type", "text", "no dict", "several"],
)
def test_e005_names_each_setting_that_cannot_be_used(
    settings: Any, texts: list[str]
) -> None:
    with override_settings(RELAY=settings):
        messages = found("E005")

        # The settings themselves go on refusing.
        with pytest.raises(SettingsError):
            get_settings()

    assert len(messages) == len(texts)
    for message, text in zip(messages, texts, strict=True):
        assert text in message.msg


def test_unusable_settings_are_reported_once_and_hide_no_other_check() -> None:
    with override_settings(RELAY={"LEESE": 1}, USE_TZ=False):
        numbers = sorted(str(message.id) for message in run_checks(tags=[TAG]))

    assert numbers == ["relay.E005", "relay.W006"]


def test_e006_names_a_poll_that_lets_an_idle_loop_look_as_if_it_stood_still() -> None:
    slow = {"POLL_INTERVAL": timedelta(minutes=1), "LEASE": timedelta(minutes=5)}

    with override_settings(RELAY=slow):
        message = only("E006")

    assert "POLL_INTERVAL below 30 s" in str(message.hint)


def test_e006_accepts_a_long_poll_under_a_short_lease() -> None:
    # The loop goes round to compare what it holds, three times a lease.
    with override_settings(RELAY={"POLL_INTERVAL": timedelta(minutes=1)}):
        assert found("E006") == []


@pytest.mark.parametrize(
    ("values", "sign"),
    [
        ({"DISABLE_SERVER_SIDE_CURSORS": True}, "DISABLE_SERVER_SIDE_CURSORS is set"),
        ({"PORT": 6432}, "PORT is 6432"),
        ({"HOST": "aws-0.pooler.example.com"}, "aws-0.pooler.example.com"),
    ],
    ids=["cursors", "port", "host"],
)
def test_w001_names_what_looks_like_a_pooler_in_transaction_mode(
    monkeypatch: pytest.MonkeyPatch, values: dict[str, Any], sign: str
) -> None:
    change_database(monkeypatch, **values)

    assert sign in only("W001").msg
    with override_settings(RELAY={"TRANSACTION_POOLER": True}):
        assert found("W001") == []


@pytest.mark.parametrize(
    ("pool", "size"),
    [(True, 4), ({"min_size": 2}, 2), ({"min_size": 2, "max_size": 9}, 9)],
    ids=["default", "fixed", "growing"],
)
def test_w002_names_a_pool_smaller_than_the_slots(
    monkeypatch: pytest.MonkeyPatch, pool: object, size: int
) -> None:
    change_database(monkeypatch, OPTIONS={"pool": pool})

    assert f"gives {size} connections" in only("W002").msg
    with override_settings(RELAY={"CONCURRENCY": size}):
        assert found("W002") == []


def test_w001_names_requests_that_are_no_transactions_of_the_jobs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    change_database(monkeypatch, ATOMIC_REQUESTS=True)
    assert found("W001") == []  # the jobs commit with the request
    monkeypatch.setitem(
        connections.settings,
        "jobs",
        connections.settings["default"] | {"ATOMIC_REQUESTS": False},
    )

    with override_settings(RELAY={"DATABASE": "jobs"}):
        message = only("W001")

    assert "'default']['ATOMIC_REQUESTS'] is on, and the jobs are in 'jobs'" in (
        message.msg
    )
    assert_leads_to_a_part_of_a_page(str(message.hint))


@pytest.mark.parametrize("age", [None, 60])
def test_w002_names_connections_that_are_kept_and_not_checked(
    monkeypatch: pytest.MonkeyPatch, age: int | None
) -> None:
    change_database(monkeypatch, CONN_MAX_AGE=age, CONN_HEALTH_CHECKS=False)

    message = only("W002", deploy=True)

    assert f"CONN_MAX_AGE of the jobs' database is {age}" in message.msg
    assert_leads_to_a_part_of_a_page(str(message.hint))
    change_database(monkeypatch, CONN_HEALTH_CHECKS=True)
    assert found("W002", deploy=True) == []
    change_database(monkeypatch, CONN_MAX_AGE=0, CONN_HEALTH_CHECKS=False)
    assert found("W002", deploy=True) == []


@pytest.mark.parametrize("name", ["inline", "manual"])
def test_w009_names_a_mode_of_tests_where_there_are_none(name: str) -> None:
    with override_settings(RELAY={"TEST_MODE": name}, DEBUG=False):
        message = only("W009", deploy=True)
        assert found("W009") == []  # as manage.py test asks
    with override_settings(RELAY={"TEST_MODE": name}, DEBUG=True):
        assert found("W009", deploy=True) == []
    with override_settings(RELAY={"TEST_MODE": "off"}, DEBUG=False):
        assert found("W009", deploy=True) == []

    assert f"RELAY['TEST_MODE'] is '{name}'" in message.msg
    assert_leads_to_a_part_of_a_page(str(message.hint))


def test_w003_names_a_declared_queue_that_no_worker_serves() -> None:
    @cron("* * * * *", queue="mial")
    @task(name="checks.report", queue="mail")
    def report() -> None: ...

    assert "'checks.report' puts its jobs into the queue 'mial'" in only("W003").msg
    with override_settings(RELAY={"QUEUES": ["mial"]}):
        assert found("W003") == []


def test_e004_names_a_declared_schedule_of_a_task_that_is_not_registered() -> None:
    def report() -> None: ...

    cron("* * * * *")(Task(report, name="checks.report"))

    message = only("E004")

    assert "for the task 'checks.report', which is not registered" in message.msg


@pytest.mark.parametrize("key", ["RETENTION_COMPLETED", "RETENTION_FAILED"])
def test_w005_names_jobs_that_are_kept_for_ever(key: str) -> None:
    with override_settings(RELAY={key: None}):
        assert key in only("W005").msg


def test_w006_names_use_tz_that_is_off() -> None:
    with override_settings(USE_TZ=False):
        assert "USE_TZ is False" in only("W006").msg


@pytest.mark.parametrize("module", ["__main__", "made_up_at_run_time"])
def test_e008_names_a_task_whose_module_no_worker_can_import(
    monkeypatch: pytest.MonkeyPatch, module: str
) -> None:
    monkeypatch.setitem(
        sys.modules, "made_up_at_run_time", types.ModuleType("made_up_at_run_time")
    )

    def stray() -> None: ...

    stray.__module__ = module
    task(name="checks.stray")(stray)

    message = only("E008")

    assert f"'checks.stray' stands in {module}" in message.msg
    assert message.obj == "checks.stray"


def test_w011_names_annotations_that_cannot_be_carried() -> None:
    @task(name="checks.odd")
    def odd(
        path: Path,
        colour: Colour,
        call: Callable[[], None],
        by_number: dict[int, str],
        inner: list[Path | None],
    ) -> Path: ...

    texts = [message.msg for message in found("W011")]

    assert [text.split("'")[1] for text in texts] == [
        "path",
        "colour",
        "call",
        "by_number",
        "inner",
    ]
    assert "Path, which no job can carry" in texts[0]
    assert "pass its .value" in texts[1]
    assert "JSON has only text as keys" in texts[3]


def test_w011_names_a_default_that_cannot_be_passed() -> None:
    @task(name="checks.default")
    def with_default(limit: float = float("inf")) -> None: ...

    assert "'limit'" in only("W011").msg
    assert "which JSON cannot carry" in only("W011").msg


def test_w011_leaves_alone_what_it_cannot_judge() -> None:
    def unclear(anything: Any, later: NotDefined, plain) -> None: ...  # type: ignore[no-untyped-def, name-defined] # noqa: F821

    task(name="checks.unclear")(unclear)

    assert "checks.unclear" in all_tasks()
    assert found("W011") == []


def test_a_check_can_be_silenced() -> None:
    with override_settings(USE_TZ=False, SILENCED_SYSTEM_CHECKS=["relay.W006"]):
        call_command("check", tags=[TAG], fail_level="WARNING")
    with override_settings(USE_TZ=False), pytest.raises(SystemCheckError):
        call_command("check", tags=[TAG], fail_level="WARNING")


def test_every_message_has_its_place_in_the_docs_and_a_hint() -> None:
    page = (ROOT / "docs" / "reference" / "checks.md").read_text()
    used = {
        word
        for file in (ROOT / "relay" / "checks").glob("*.py")
        for word in file.read_text().split('"')
        if len(word) == 4 and word[0] in "EW" and word[1:].isdigit()
    }

    with override_settings(USE_TZ=False):
        hint = str(only("W006").hint)

    assert used == {
        line[9:13] for line in page.splitlines() if line.startswith("| `relay.")
    }
    assert hint.endswith("See docs/reference/checks.md.")


def test_sensitive_arguments_without_a_key_are_reported() -> None:
    @task(name="checks.sensitive", sensitive=("card",))
    def pay(card: str) -> None: ...

    assert "ENCRYPTION_KEYS" in only("E010").msg
    with override_settings(RELAY={"ENCRYPTION_KEYS": {"k": bytes(32)}}):
        assert found("E010") == []


def test_w016_names_a_memory_limit_that_this_system_does_not_enforce(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    @task(name="checks.limited", isolation="process", memory_limit=1 << 30)
    def render() -> None: ...

    assert found("W016") == []
    monkeypatch.setattr(sys, "platform", "darwin")
    assert "checks.limited" in only("W016").msg


@pytest.mark.parametrize(
    ("permission", "reason"),
    [
        ("charge", "not written as an app's label, a dot and a name"),
        ("auth.add user", "not written as an app's label, a dot and a name"),
        (".charge", "not written as an app's label, a dot and a name"),
        ("nothere.charge", "no app 'nothere' is installed"),
    ],
)
def test_e013_names_a_permission_that_nobody_can_have(
    monkeypatch: pytest.MonkeyPatch, permission: str, reason: str
) -> None:
    def charge() -> None: ...

    asking = Task(charge, name="tests.checks.charge", permission=permission)
    monkeypatch.setitem(tasks._tasks, asking.name, asking)
    queues = {"till": {"PERMISSION": permission}, "other": {"PERMISSION": "auth.x"}}

    with override_settings(RELAY={"QUEUES": queues}):
        of_task, of_queue = found("E013")

    assert f"the task {asking.name!r} asks for the permission" in of_task.msg
    assert f"the queue 'till' asks for the permission {permission!r}" in of_queue.msg
    assert reason in of_task.msg
