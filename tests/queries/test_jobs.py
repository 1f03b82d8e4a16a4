"""Lists of jobs and one job: what they say, page by page, and to whom."""

from __future__ import annotations

import base64
import json
from datetime import UTC, datetime, timedelta
from itertools import chain
from typing import Any
from uuid import UUID

import pytest
from django.db import connection, transaction
from django.db.models import Func, TextField
from django.test import override_settings

from relay.exceptions import (
    ArgumentError,
    JobNotFound,
    NotAllowed,
    NotFound,
    ReadTimeout,
)
from relay.ids import uuid7
from relay.models import Attempt, History, Job, Output, Step
from relay.operations import JobFilter, parse
from relay.queries import (
    INCLUDES,
    count_jobs,
    get_job,
    list_attempts,
    list_history,
    list_jobs,
    list_logs,
    list_steps,
    reading,
    states,
)
from relay.queries import jobs as module
from relay.queries.documents import (
    AttemptDocument,
    HistoryDocument,
    JobDetail,
    JobDocument,
    LogDocument,
    StepDocument,
)
from tests.operations.factory import actor, make_job
from tests.queries.documents import check
from tests.queries.factory import make_schedule, make_worker

pytestmark = pytest.mark.django_db

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)
ME = actor("view_job", "view_payload")
EYES_ONLY = actor("view_job")
CALL = {"args": ["ada@example.com"], "kwargs": {"copies": 2, "api_token": "hunter2"}}


def ids_of(filter: str, **values: Any) -> list[str]:
    return [job["id"] for job in list_jobs(ME, parse(filter), **values)["results"]]


def walk(filter: JobFilter, *, limit: int) -> tuple[list[str], list[str]]:
    """Return the ids of all pages to the end, and then of all pages back."""
    page = list_jobs(ME, filter, limit=limit)
    assert page["previous"] is None
    forward = [[job["id"] for job in page["results"]]]
    while page["next"]:
        page = list_jobs(ME, filter, limit=limit, cursor=page["next"])
        forward.append([job["id"] for job in page["results"]])
    backward = [forward[-1]]
    while page["previous"]:
        page = list_jobs(ME, filter, limit=limit, cursor=page["previous"])
        backward.insert(0, [job["id"] for job in page["results"]])
    return list(chain(*forward)), list(chain(*backward))


# --- documents -----------------------------------------------------------------------


def test_a_job_is_a_document_of_texts_numbers_and_utc_times() -> None:
    worker = make_worker(name="mail-1")
    schedule = make_schedule("nightly")
    job = make_job(
        "completed",
        args=CALL,
        result={"sent": True},
        tags=["eu"],
        timeout_ms=1_500,
        worker_id=worker.pk,
        schedule_id=schedule.pk,
        occurrence_at=NOW,
        unique_key=b"\x01\xff",
        attempt=1,
        started_at=NOW,
        finished_at=NOW + timedelta(seconds=2.5),
    )

    [found] = list_jobs(ME, parse(""))["results"]

    check(found, JobDocument)
    assert found["id"] == str(job.pk)
    assert (found["state"], found["status"]) == ("completed", "completed")
    assert found["args"] == ["ada@example.com"]
    assert found["kwargs"] == {"copies": 2, "api_token": "•••"}
    assert found["result"] == {"sent": True}
    assert found["timeout"] == 1.5
    assert found["duration"] == 2.5
    assert found["finished_at"] == "2026-11-30T12:00:02.500000Z"
    assert found["occurrence_at"] == "2026-11-30T12:00:00Z"
    assert (found["worker_id"], found["worker"]) == (str(worker.pk), "mail-1")
    assert found["schedule"] == "nightly"
    assert found["unique_key"] == "01ff"
    assert found["tags"] == ["eu"]


def test_the_names_of_command_jobs_are_there_too() -> None:
    make_job(task="command", args={"args": ["echo hello"], "kwargs": {}})
    [one] = list_jobs(ME, parse("task:command"))["results"]
    make_job(task="other", args=CALL)
    [two] = list_jobs(ME, parse("task:other"))["results"]

    assert (one["type"], one["payload"]) == ("command", "echo hello")
    assert two["payload"]["args"] == ["ada@example.com"]


@pytest.mark.parametrize(
    ("state", "status"),
    [
        ("blocked", "queued"),
        ("scheduled", "queued"),
        ("queued", "queued"),
        ("retrying", "queued"),
        ("running", "running"),
        ("completed", "completed"),
        ("failed", "failed"),
        ("cancelled", "cancelled"),
    ],
)
def test_each_state_has_one_of_five_statuses(state: str, status: str) -> None:
    make_job(state)

    [found] = list_jobs(ME, parse(f"state:{state}"))["results"]

    assert (found["state"], found["status"]) == (state, status)


def test_without_view_payload_every_payload_is_a_mask() -> None:
    job = make_job(
        "failed",
        args=CALL,
        result=7,
        progress={"percent": 1},
        unique_key=b"1",
        error_message="no such host",
    )
    Step.objects.create(job=job, attempt=1, name="one", value="hunter2")

    [listed] = list_jobs(EYES_ONLY, parse(""))["results"]
    shown = get_job(EYES_ONLY, job.pk, include=("steps",))

    for document in (listed, shown):
        for name in ("args", "kwargs", "payload", "result", "progress", "unique_key"):
            assert document[name] == "•••"  # type: ignore[literal-required] # of a loop
        assert document["error"] == "no such host"
    assert shown["steps"][0]["value"] == "•••"
    assert "hunter2" not in json.dumps(shown)


def test_who_may_not_see_jobs_is_refused() -> None:
    job = make_job()
    nobody = actor("cancel_job", "view_payload")

    for ask in (
        lambda: list_jobs(nobody, parse("")),
        lambda: count_jobs(nobody, parse("")),
        lambda: get_job(nobody, job.pk),
        lambda: states(nobody),
        lambda: list_logs(nobody, job.pk),
    ):
        with pytest.raises(NotAllowed, match="view_job"):
            ask()


def test_a_filter_by_an_argument_needs_view_payload() -> None:
    wanted = parse("args.0:ada@example.com")

    for ask in (list_jobs, count_jobs):
        with pytest.raises(NotAllowed, match="view_payload"):
            ask(EYES_ONLY, wanted)
    make_job(args=CALL)
    assert count_jobs(ME, wanted) == {"count": 1, "capped": False}


def test_a_list_leaves_out_large_payloads_and_one_job_has_them() -> None:
    job = make_job(args={"args": [[str(uuid7()) for _ in range(200)]], "kwargs": {}})

    [listed] = list_jobs(ME, parse(""))["results"]

    assert listed["args"] == listed["kwargs"] == listed["payload"] == "…"
    assert len(get_job(ME, job.pk)["args"][0]) == 200


def test_sensitive_arguments_are_masks_to_everybody() -> None:
    sealed = {"__relay__": "sealed", "key": "k1", "value": "AAAA"}
    job = make_job(args={"args": [sealed, 1], "kwargs": {}, "sealed": True})

    found = get_job(ME, job.pk)

    assert found["args"] == ["•••", 1]
    assert "sealed" not in found["kwargs"]


def test_whatever_a_row_holds_can_be_listed_and_sent() -> None:
    job = make_job("completed", args=[], result="x", error_message="e" * 30_000)
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE relay_job SET finished_at = 'infinity', "
            "created_at = '-infinity', expires_at = '20000-01-01', "
            """result = ('{"n": 1' || repeat('0', 5000) || ', "f": -1e400}')::jsonb, """
            "meta = (repeat('[', 3000) || repeat(']', 3000))::jsonb"
        )

    [listed] = list_jobs(ME, parse("state:completed"))["results"]
    found = get_job(ME, job.pk, include=INCLUDES)

    check(listed, JobDocument)
    check(found, JobDetail, include=INCLUDES)
    assert listed["args"] == []
    assert found["created_at"].startswith("0001-")
    assert found["finished_at"] is not None
    assert found["finished_at"].startswith("9999-")
    assert found["result"]["n"] == "1" + "0" * 5_000
    assert found["error"] == "e" * 20_000 + "…"


@override_settings(USE_TZ=False, TIME_ZONE="Asia/Tokyo")
def test_times_are_utc_also_where_the_project_has_none() -> None:
    job = make_job("completed", finished_at=datetime(2026, 1, 1, 9))  # noqa: DTZ001 - as USE_TZ says

    assert get_job(ME, job.pk)["finished_at"] == "2026-01-01T00:00:00Z"


# --- pages ---------------------------------------------------------------------------


def make_many(count: int, state: str, **values: Any) -> None:
    for number in range(count):
        given = {name: value(number) for name, value in values.items()}
        make_job(state, **given)


@pytest.mark.parametrize(
    ("filter", "state", "values"),
    [
        ("", "queued", {}),
        (
            "state:queued",
            "queued",
            {"queue": lambda n: "ab"[n % 2], "priority": lambda n: n % 3},
        ),
        ("state:scheduled", "scheduled", {"run_at": lambda n: NOW}),
        (
            "state:scheduled",
            "scheduled",
            {"run_at": lambda n: NOW + timedelta(hours=n // 5)},
        ),
        (
            "state:running",
            "running",
            {
                "queue": lambda n: "ab"[n % 2],
                "worker_id": lambda n: UUID(int=n // 4),
            },
        ),
        ("state:completed", "completed", {"finished_at": lambda n: NOW}),
        (
            "state:completed",
            "completed",
            {"finished_at": lambda n: NOW + timedelta(hours=n % 4)},
        ),
        ("state:failed", "failed", {}),
        ("tag:t", "queued", {"tags": lambda n: ["t"]}),
        ("queue:q", "queued", {"queue": lambda n: "q"}),
    ],
)
@pytest.mark.parametrize("limit", [1, 4, 5, 50])
def test_pages_lead_to_the_end_and_back_through_every_job_once(
    filter: str, state: str, values: dict[str, Any], limit: int
) -> None:
    make_many(12, state, **values)
    wanted = parse(filter)

    forward, backward = walk(wanted, limit=limit)

    assert len(forward) == len(set(forward)) == 12
    assert backward == forward
    assert forward == ids_of(filter, limit=500)


def test_jobs_are_in_the_order_in_which_they_will_run() -> None:
    low = make_job(queue="a", priority=1)
    high = make_job(queue="a", priority=9)
    later = make_job(queue="a", priority=9)
    other = make_job(queue="b", priority=100)

    found = walk(parse("state:queued"), limit=1)[0]

    assert found == [str(job.pk) for job in (high, later, low, other)]


def test_a_page_stays_where_it_was_as_jobs_come_and_go() -> None:
    jobs = [make_job("failed") for _ in range(6)]
    newest_first = [str(job.pk) for job in sorted(jobs, key=lambda j: j.pk.bytes)][::-1]
    page = list_jobs(ME, parse("state:failed"), limit=2)

    make_job("failed")
    Job.objects.filter(pk=newest_first[0]).delete()
    after = list_jobs(ME, parse("state:failed"), limit=2, cursor=page["next"])

    assert [job["id"] for job in after["results"]] == newest_first[2:4]


def cursor_of(document: Any) -> str:
    return base64.urlsafe_b64encode(json.dumps(document).encode()).decode()


@pytest.mark.parametrize(
    "cursor",
    [
        "",
        "x",
        "é",
        "%00",
        "A" * 5_000,
        cursor_of([0, ["-id"], ["x"]]),
        cursor_of([0, ["-id"], [None]]),
        cursor_of([0, ["-id"], []]),
        cursor_of([0, ["-id"], [str(UUID(int=1)), "2"]]),
        cursor_of([2, ["-id"], [str(UUID(int=1))]]),
        cursor_of([0, ["args"], ["1"]]),
        cursor_of([0, ["-finished_at", "-id"], [str(NOW), str(UUID(int=1))]]),
        cursor_of({"a": 1}),
        cursor_of([[[[]]]]),
    ],
)
def test_a_cursor_of_no_page_is_refused(cursor: str) -> None:
    make_job()

    with pytest.raises(ArgumentError, match="of no page of this list"):
        list_jobs(ME, parse(""), cursor=cursor)


@pytest.mark.parametrize(
    ("filter", "order", "key"),
    [
        ("state:scheduled", ["run_at", "ctid"], ["nonsense", "(0,1)"]),
        ("state:scheduled", ["run_at", "ctid"], ["2026-99-01", "(0,1)"]),
        ("state:scheduled", ["run_at", "ctid"], [str(NOW), "(0,1); drop"]),
        ("state:scheduled", ["run_at", "ctid"], [str(NOW), "(9999999999,1)"]),
        ("state:queued", ["queue", "-priority", "ready_seq"], ["q", "x", "1"]),
        ("state:queued", ["queue", "-priority", "ready_seq"], ["a\x00", "1", "1"]),
        ("state:queued", ["queue", "-priority", "ready_seq"], ["q", "1", "9" * 30]),
        ("state:queued", ["queue", "-priority", "ready_seq"], ["\ud800", "1", "1"]),
        ("state:scheduled", ["run_at", "ctid"], ["\ud800", "(0,1)"]),
    ],
)
def test_a_cursor_with_a_key_that_is_none_is_refused(
    filter: str, order: list[str], key: list[str]
) -> None:
    make_job("queued")

    with pytest.raises(ArgumentError, match="of no page of this list"):
        list_jobs(ME, parse(filter), cursor=cursor_of([0, order, key]))


@pytest.mark.parametrize("limit", [0, 501, -1, True, "5", 1.5])
def test_a_page_has_1_to_500_rows(limit: Any) -> None:
    with pytest.raises(ArgumentError, match="from 1 to 500"):
        list_jobs(ME, parse(""), limit=limit)


# --- counts --------------------------------------------------------------------------


def test_counts_go_up_to_a_cap_and_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "COUNT_CAP", 3)
    make_many(5, "failed")
    make_many(3, "queued")

    assert count_jobs(ME, parse("state:failed")) == {"count": 3, "capped": True}
    assert count_jobs(ME, parse("state:queued")) == {"count": 3, "capped": False}
    found = states(ME)
    assert found["failed"] == {"count": 3, "capped": True}
    assert found["queued"] == {"count": 3, "capped": False}
    assert found["completed"] == {"count": 0, "capped": True}  # among the last ended


def test_states_counts_every_state() -> None:
    for number, state in enumerate(states(ME), start=1):
        make_many(number, state)

    found = states(ME)

    assert [each["count"] for each in found.values()] == list(range(1, 9))
    assert not any(each["capped"] for each in found.values())


def test_a_list_that_takes_too_long_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "LOOK_SECONDS", 0.1)
    sleep = Func(template="pg_sleep(1)::text", output_field=TextField())
    monkeypatch.setattr(module, "_shown", lambda: {"worker": sleep})
    make_job()

    with pytest.raises(ReadTimeout, match=r"within 0\.1 s"):
        list_jobs(ME, parse(""))
    with connection.cursor() as cursor:
        cursor.execute("SHOW statement_timeout")
        assert cursor.fetchone() == ("0",)


# --- one job -------------------------------------------------------------------------


def test_a_job_that_is_not_there_and_an_id_that_is_none() -> None:
    with pytest.raises(JobNotFound):
        get_job(ME, uuid7())
    with pytest.raises(NotFound, match="is no job's id"):
        get_job(ME, "7")
    with pytest.raises(ArgumentError, match="there are attempts"):
        get_job(ME, make_job().pk, include=("everything",))


def test_one_job_has_its_version_which_changes_with_its_row() -> None:
    job = make_job("completed")
    again = make_job(replay_of=job.pk)

    found = get_job(ME, str(job.pk))

    check(found, JobDetail)
    assert found["replays"] == [str(again.pk)]
    assert get_job(ME, job.pk)["version"] == found["version"]
    with transaction.atomic():
        Job.objects.filter(pk=job.pk).update(priority=3)
    assert get_job(ME, job.pk)["version"] != found["version"]


def test_its_past_is_told_in_its_order() -> None:
    worker = make_worker(name="w7")
    job = make_job(
        "completed",
        created_at=NOW,
        worker_id=worker.pk,
        attempt=2,
        failures=1,
        started_at=NOW + timedelta(seconds=30),
        finished_at=NOW + timedelta(seconds=31),
    )
    Attempt.objects.create(
        job=job,
        attempt=1,
        worker_id=worker.pk,
        outcome="retry",
        error_class="ValueError",
        error_message="no",
        traceback="Traceback …",
        started_at=NOW + timedelta(seconds=1),
        ended_at=NOW + timedelta(seconds=2),
    )
    History.objects.create(
        job=job,
        at=NOW + timedelta(seconds=2),
        event="retry",
        attempt=1,
        detail={"reason": "ValueError"},
    )
    for number in (1, 2):
        Output.objects.create(job=job, attempt=number, text=f"log {number}")
        Step.objects.create(job=job, attempt=number, name=f"s{number}", value=number)

    attempts, history = list_attempts(ME, job.pk), list_history(ME, job.pk)

    for each in attempts:
        check(each, AttemptDocument)
    assert [each["outcome"] for each in attempts] == ["retry", "completed"]
    assert (attempts[0]["error"], attempts[0]["duration"]) == ("no", 1.0)
    assert {each["worker"] for each in attempts} == {"w7"}
    for event in history:
        check(event, HistoryDocument)
    assert [(event["event"], event["attempt"]) for event in history] == [
        ("enqueued", None),
        ("started", 1),
        ("retry", 1),
        ("started", 2),
        ("completed", 2),
    ]
    logs = list_logs(ME, job.pk)
    check(logs[0], LogDocument)
    assert [each["text"] for each in logs] == ["log 1", "log 2"]
    assert [each["text"] for each in list_logs(ME, job.pk, after=1)] == ["log 2"]
    steps = list_steps(ME, job.pk)
    check(steps[0], StepDocument)
    assert [(each["name"], each["value"]) for each in steps] == [("s1", 1), ("s2", 2)]


@pytest.mark.parametrize(
    ("state", "noted", "last"),
    [
        ("failed", "expire", ["enqueued", "expire", "failed"]),
        ("cancelled", "cancel", ["enqueued", "cancel"]),
        ("cancelled", "cancel_request", ["enqueued", "cancel_request", "cancelled"]),
    ],
)
def test_the_end_of_a_job_is_told_once(state: str, noted: str, last: list[str]) -> None:
    job = make_job(state, created_at=NOW, finished_at=NOW + timedelta(seconds=5))
    at = NOW + timedelta(seconds=5)
    History.objects.create(job=job, at=at, event=noted, actor="ada")

    assert [event["event"] for event in list_history(ME, job.pk)] == last


def test_a_failure_is_told_once_and_stays_after_a_retry_by_hand() -> None:
    job = make_job(
        "failed",
        created_at=NOW,
        attempt=1,
        started_at=NOW,
        finished_at=NOW + timedelta(seconds=1),
        error_class="ValueError",
    )
    Attempt.objects.create(
        job=job,
        attempt=1,
        outcome="fail",
        error_class="ValueError",
        started_at=NOW,
        ended_at=NOW + timedelta(seconds=1),
    )

    before = [event["event"] for event in list_history(ME, job.pk)]
    Job.objects.filter(pk=job.pk).update(
        state="queued", started_at=None, finished_at=None
    )
    after = [event["event"] for event in list_history(ME, job.pk)]

    assert before == after == ["enqueued", "started", "failed"]
