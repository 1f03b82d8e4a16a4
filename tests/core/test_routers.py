"""RelayRouter, and the checks of what other routers do to relay's models."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.checks import CheckMessage, run_checks
from django.db import connections, router
from django.test import override_settings

from relay import task
from relay.checks import TAG
from relay.models import Attempt, Job
from tests.aliases import alias


@pytest.fixture(autouse=True)
def _jobs() -> Iterator[None]:
    with alias("jobs"), alias("replica"):
        yield


class Spread:
    """Sends every read to the replica, as a project's router may."""

    def db_for_read(self, model: Any, **hints: Any) -> str:
        return "replica"

    def allow_migrate(self, db: str, app_label: str, **hints: Any) -> bool:
        return db == "default"


OURS = "relay.routers.RelayRouter"


def found(number: str) -> list[CheckMessage]:
    return [
        message for message in run_checks(tags=[TAG]) if message.id == f"relay.{number}"
    ]


@override_settings(RELAY={"DATABASE": "jobs"}, DATABASE_ROUTERS=[OURS, Spread()])
def test_relays_models_stay_on_their_alias_before_a_router_that_spreads_reads() -> None:
    assert router.db_for_read(Job) == "jobs"
    assert router.db_for_write(Attempt) == "jobs"
    assert router.db_for_read(User) == "replica"
    assert found("W014") == []


@override_settings(RELAY={"DATABASE": "jobs"}, DATABASE_ROUTERS=[OURS])
def test_relays_tables_are_made_on_their_alias_only() -> None:
    made = {name: router.allow_migrate(name, "relay") for name in connections}
    others = {name: router.allow_migrate(name, "auth") for name in connections}

    assert made == {"default": False, "jobs": True, "replica": False}
    assert set(others.values()) == {True}


@override_settings(DATABASE_ROUTERS=[OURS])
def test_rows_of_relay_relate_to_each_other_and_the_router_minds_no_others() -> None:
    one, another, user = Job(), Job(), User()

    assert router.allow_relation(one, another)
    assert router.routers[0].allow_relation(one, user) is None


@override_settings(DATABASE_ROUTERS=[Spread()])
def test_w014_names_reads_of_jobs_from_a_replica() -> None:
    [message] = found("W014")

    assert message.msg.startswith("Reads of relay's models go to 'replica'")
    assert "relay.routers.RelayRouter" in str(message.hint)


@override_settings(RELAY={"DATABASE": "jobs"}, DATABASE_ROUTERS=[Spread()])
def test_w014_names_tables_that_are_made_in_the_wrong_database() -> None:
    text = " ".join(message.msg for message in found("W014"))

    assert "Writes of relay's models go to 'default'" in text
    assert "keep relay's migrations from 'jobs'" in text
    assert "makes relay's tables in 'default' too" in text


@override_settings(RELAY={"DATABASE": "jobs"})
def test_w014_names_an_alias_of_its_own_without_a_router() -> None:
    texts = [message.msg for message in found("W014")]

    assert [text.partition(" ")[0] for text in texts] == ["Reads", "Writes", "migrate"]


def test_w014_has_nothing_to_say_of_a_project_without_routers() -> None:
    assert found("W014") == []


def test_w015_names_transactional_tasks_where_django_ends_no_transaction(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    @task(name="checks.transactional", transactional=True)
    def transactional() -> None: ...

    assert found("W015") == []
    monkeypatch.setitem(connections["default"].settings_dict, "AUTOCOMMIT", False)
    [message] = found("W015")

    assert "checks.transactional" in message.msg
