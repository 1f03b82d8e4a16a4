"""Sensitive arguments through django.tasks: the handler alone is given them."""

from __future__ import annotations

import base64
from collections.abc import Iterator

import pytest
from django.test import override_settings

import relay
from relay.models import Job
from relay.sensitive import MASK
from relay.testing import drain
from tests.backends.api import default_task_backend, task

pytestmark = pytest.mark.django_db(transaction=True, available_apps=["relay"])

CANARY = "canary-4111"
KEYS = {"k": base64.b64encode(bytes(32)).decode()}


def charge(order: int, card: str) -> str:
    return card[-4:]


@pytest.fixture(autouse=True)
def _keys() -> Iterator[None]:
    with override_settings(RELAY={"ENCRYPTION_KEYS": KEYS}):
        yield


def test_results_show_a_mask_and_the_handler_is_given_the_value() -> None:
    native = relay.task(name="backends.charge", sensitive=("card",))(charge)

    result = task(native).enqueue(7, card=CANARY)

    assert result.kwargs == {"card": MASK}
    assert CANARY not in repr(result)
    assert CANARY not in str(Job.objects.get(pk=result.id).args)
    assert drain().completed == 1
    found = default_task_backend.get_result(result.id)
    assert (found.args, found.kwargs) == ([7], {"card": MASK})
    assert found.return_value == "4111"
