"""relay_reencrypt: a new key for old rows, so that the old key can go."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from io import StringIO
from typing import Any

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError
from django.test import override_settings

from relay import JobHandle, enqueue, task
from relay.engine.reseal import reseal
from relay.models import Job, JobState
from relay.testing import run_job

pytestmark = pytest.mark.django_db(transaction=True)

CANARY = "canary-4111-1111"


def key(number: int) -> str:
    return base64.b64encode(bytes([number]) * 32).decode()


OLD: dict[str, Any] = {"ENCRYPTION_KEYS": {"old": key(1)}}
NEW: dict[str, Any] = {"ENCRYPTION_KEYS": {"new": key(2), "old": key(1)}}
ONLY_NEW: dict[str, Any] = {"ENCRYPTION_KEYS": {"new": key(2)}}


@pytest.fixture(autouse=True)
def keys() -> Iterator[None]:
    with override_settings(RELAY=OLD):
        yield


@task(name="tests.reseal.pay", sensitive=("card",))
def pay(order: int, card: str) -> None: ...


@task(name="tests.reseal.session", sensitive=True)
def session(user: str) -> dict[str, str]:
    return {"of": user, "secret": CANARY}


def key_of(handle: JobHandle[Any]) -> str:
    return str(Job.objects.get(pk=handle.id).args["args"][1]["key"])


def test_all_rows_take_the_current_key_so_that_the_old_one_can_go() -> None:
    handles = [pay.enqueue(place, CANARY) for place in range(5)]
    ended = session.enqueue("ada")
    run_job(ended)
    enqueue("plain.task", CANARY)

    with override_settings(RELAY=NEW):
        out = StringIO()
        call_command("relay_reencrypt", "--batch=2", stdout=out)
        assert out.getvalue() == "6 jobs encrypted anew.\n"
        assert reseal(using="default").changed == 0

    with override_settings(RELAY=ONLY_NEW):
        assert {key_of(handle) for handle in handles} == {"new"}
        assert ended.result(timeout=0)["secret"] == CANARY
        for handle in handles:
            assert run_job(handle).state == JobState.COMPLETED


def test_reencrypting_without_the_old_key_says_so_and_changes_nothing() -> None:
    handle = pay.enqueue(7, CANARY)

    with (
        override_settings(RELAY=ONLY_NEW),
        pytest.raises(CommandError, match="'old' is not in"),
    ):
        call_command("relay_reencrypt")

    assert key_of(handle) == "old"


def test_reencrypting_names_what_cannot_be_decrypted_and_does_the_rest() -> None:
    handles = [pay.enqueue(place, CANARY) for place in range(3)]
    moved = Job.objects.get(pk=handles[0].id).args
    Job.objects.filter(pk=handles[1].id).update(args=moved)

    with (
        override_settings(RELAY=NEW),
        pytest.raises(CommandError, match=str(handles[1].id)),
    ):
        call_command("relay_reencrypt")

    assert [key_of(handle) for handle in handles] == ["new", "old", "new"]


@pytest.mark.parametrize("batch", ["0", "-1"])
def test_a_batch_of_nothing_is_refused(batch: str) -> None:
    with pytest.raises(CommandError, match="at least 1"):
        call_command("relay_reencrypt", f"--batch={batch}")
