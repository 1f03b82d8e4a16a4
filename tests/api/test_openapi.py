"""The OpenAPI document is true: whatever it allows is answered as it says."""

from __future__ import annotations

import warnings
from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any

import pytest
from django.core.signals import request_finished, request_started
from django.core.wsgi import get_wsgi_application
from django.db import close_old_connections
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from relay.api.schema import document
from relay.models import ApiToken, BulkOperation, Job
from tests.api.factory import make_schedule, make_token, make_worker
from tests.operations.factory import make_job

# Of each method of each address, half of them as the document wants them.
EXAMPLES = 12


def test_each_method_has_a_name_of_its_own_and_what_it_refers_to_is_there() -> None:
    whole = document()
    names = [
        about["operationId"]
        for methods in whole["paths"].values()
        for about in methods.values()
    ]
    text = repr(whole)

    assert len(set(names)) == len(names)
    for name in whole["components"]["schemas"]:
        assert f"#/components/schemas/{name}'" in text, f"nothing refers to {name}"


@pytest.fixture
def known(db: None) -> dict[str, list[str]]:
    """Return what is there, by the names of parts of paths."""
    worker, schedule = make_worker(), make_schedule()
    jobs = [
        make_job(state, task="testproject.tasks.echo", tags=["vip"])
        for state in ("queued", "scheduled", "running", "failed", "completed")
    ]
    bulk = BulkOperation.objects.create(action="retry", filter="state:failed")
    make_token("read", name="another")
    token = ApiToken.objects.get(name="another")
    return {
        "job_id": [str(job.pk) for job in jobs],
        "worker_id": [str(worker.pk), worker.name],
        "bulk_id": [str(bulk.pk)],
        "token_id": [str(token.pk)],
        "queue": ["default"],
        "name": [schedule.name, "testproject.tasks.add"],
    }


@pytest.fixture
def unclosed() -> Iterator[None]:
    """Keep the connection of the test's transaction, as Django's test client does."""
    signals = (request_started, request_finished)
    for signal in signals:
        signal.disconnect(close_old_connections)
    yield
    for signal in signals:
        signal.connect(close_old_connections)


@pytest.mark.slow
def test_whatever_is_sent_is_answered_as_the_document_says(
    known: dict[str, list[str]], unclosed: None
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what it imports is no fault of relay's
        import schemathesis
        from schemathesis.checks import not_a_server_error
        from schemathesis.generation import GenerationMode
        from schemathesis.specs.openapi import checks

    headers = {"Authorization": f"Bearer {make_token()}"}
    schema = schemathesis.openapi.from_wsgi(
        "/v1/openapi.json", get_wsgi_application(), headers=headers
    )
    wanted = [
        not_a_server_error,
        checks.status_code_conformance,
        checks.content_type_conformance,
        checks.response_schema_conformance,
    ]
    answers: dict[str, Counter[int]] = defaultdict(Counter)
    # Whoever may do everything most often, as others see little of what a call does.
    callers = {
        "admin": headers,
        "reader": {"Authorization": f"Bearer {make_token('read', name='reader')}"},
        "of one queue": {
            "Authorization": f"Bearer {make_token(name='queue', queues=['mail'])}"
        },
        "stranger": {},
    }
    turns = [*["admin"] * 3, *callers]

    def call(case: Any, choice: int, caller: str) -> None:
        for name in case.path_parameters or {}:
            if choice and name in known:
                case.path_parameters[name] = known[name][choice % len(known[name])]
        if choice and isinstance(case.body, dict):
            for name in {"id", "ids"} & case.body.keys():
                one = known["job_id"][choice % len(known["job_id"])]
                case.body[name] = one if name == "id" else [one]
        case.headers.pop("Authorization", None)
        answer = case.call_and_validate(headers=callers[caller], checks=wanted)
        answers[caller][answer.status_code] += 1

    for found in schema.get_all_operations():
        operation = found.ok()
        for mode in GenerationMode:
            bounded = settings(
                max_examples=EXAMPLES // 2,
                deadline=None,
                database=None,
                suppress_health_check=list(HealthCheck),
            )
            cases = operation.as_strategy(generation_mode=mode)
            try:
                calls = given(
                    case=cases, choice=st.integers(0, 5), caller=st.sampled_from(turns)
                )
                bounded(calls(call))()
            except Exception as error:
                raise AssertionError(f"{operation.label}: {error}") from error

    assert answers["admin"].total() > 100
    assert answers["reader"][403]
    assert answers["of one queue"][403]
    assert set(answers["stranger"]) <= {200, 401}  # /healthz is for everybody
    assert Job.objects.exists()
