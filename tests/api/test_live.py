"""The whole way: a request, a worker, and the answer that waits for the end."""

from __future__ import annotations

import json
import urllib.request
from typing import Any

import pytest

from relay.testing import live_worker
from tests.api.factory import make_token


@pytest.mark.django_db(transaction=True)
def test_a_job_is_sent_run_and_waited_for_over_a_real_connection(
    live_server: Any,
) -> None:
    secret = make_token("submit", "read", "payload")

    def ask(path: str, body: Any = None) -> Any:
        request = urllib.request.Request(
            live_server.url + path,
            data=None if body is None else json.dumps(body).encode(),
            headers={
                "Authorization": f"Bearer {secret}",
                "Content-Type": "application/json",
            },
        )
        with urllib.request.urlopen(request, timeout=90) as answer:
            return json.load(answer)

    with live_worker():
        job = ask("/v1/jobs", {"task": "testproject.tasks.add", "args": [1, 2]})
        ended = ask(f"/v1/jobs/{job['id']}?wait=60s")
        history = ask(f"/v1/jobs/{job['id']}/history")

    assert (ended["status"], ended["result"]) == ("completed", 3)
    assert [each["event"] for each in history][-1] == "completed"
