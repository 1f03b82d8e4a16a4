"""Requests that nobody means well: each is answered, none breaks, nothing runs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client

from relay.models import Job, Queue, Schedule
from testproject.tasks import echo as echo_task
from tests.api.factory import Api, make_token
from tests.operations.factory import make_job
from tests.security.rows import make_rows
from tests.security.surfaces import content_of, filled, routes

pytestmark = pytest.mark.django_db

MARKUP = "\"'><script>alert(1)</script>"
VALUES = (
    *(
        "\x00",
        "a\x00b",
        MARKUP,
        "%",
        "_%'--",
        "{{ 7*7 }}{% now %}",
        "\u202e\u0007\x1b[31m",
    ),
    *(
        "9" * 5_000,
        "-1",
        "\u0663",
        "1e400",
        "x" * 3_000,
        '"',
        'a"b',
        "[]",
        "\n\r\n",
        "",
    ),
)
IN_PATHS = (
    *("%00", "..%2f..%2fetc%2fpasswd", "%ff%fe", quote(MARKUP), "x" * 2_000),
    *("%E2%80%AE", "%0d%0aSet-Cookie:x=1", "~", "0", "__proto__"),
)
PARAMETERS = (
    *("q", "state", "queue", "task", "tag", "error", "worker", "schedule", "id", "age"),
    *("created", "cursor", "limit", "part", "show", "span", "step", "o", "p", "all"),
    *("args.x", "args.\x00", "args..", "_popup", "_to_field", "e", "subject", "target"),
    *(
        "wait",
        "include",
        "fields",
        "order",
        "after",
        "n",
        "hours",
        "_changelist_filters",
    ),
)


@pytest.fixture
def root() -> Client:
    client = Client(raise_request_exception=False)
    client.force_login(User.objects.create_superuser("root"))
    return client


def check(response: Any, what: object) -> None:
    """Let it pass if it is an answer, and nothing in it is what it should not be."""
    assert response.status_code < 500, what
    text = content_of(response)
    if "html" in response.get("Content-Type", ""):
        assert "<script>alert" not in text, what
    assert "Set-Cookie:x" not in str(response.headers), what


def lists() -> list[str]:
    """Return every address that shows many, and one that shows one of each."""
    return [route for route in routes() if "<" not in route or route.count("<") == 1]


def test_no_parameter_of_a_query_breaks_a_page(root: Client) -> None:
    rows = make_rows("x")

    # Each address meets other parameters, and each of these other values.
    for turn, route in enumerate(lists()):
        for place, name in enumerate(PARAMETERS[turn % 6 :: 6]):
            value = VALUES[(turn + place) % len(VALUES)]
            address = f"{filled(route, rows)}?{quote(name)}={quote(value)}"
            if "wait" not in name:
                check(root.get(address), address[:200])


@pytest.mark.parametrize("name", PARAMETERS)
def test_no_value_of_a_filter_breaks_a_list(root: Client, name: str) -> None:
    make_rows("x")

    for value in VALUES:
        for path in ("/v1/jobs", "/dashboard/jobs/", "/admin/relay/job/"):
            address = f"{path}?{quote(name)}={quote(value)}"
            check(root.get(address), address[:200])


def test_nothing_in_a_path_breaks_a_page(root: Client) -> None:
    make_rows("x")

    for route in routes():
        for text in IN_PATHS if "<" in route else ():
            path = "/" + "".join(
                part.partition(">")[2] if ">" in part else part
                for part in route.replace("<", f"{text}<").split("<")
            )
            for method in ("GET", "POST"):
                check(root.generic(method, path), (method, path[:200]))


# --- forms ---------------------------------------------------------------------------

DEEP = "[" * 50_000 + "]" * 50_000
BY_FIELD = {
    "args": [
        DEEP,
        "[NaN]",
        '["\\ud800"]',
        '["\\u0000"]',
        "[1e999]",
        "[" + "9" * 5_000 + "]",
    ],
    "kwargs": ['{"\\u0000": 1}', '{"a": 1, "a": 2}', '{"\\udfff": 1}', '{"self": 1}'],
    "timeout": ["1e308", "-1e308", "nan", "inf", "9" * 5_000, "99999999999 00:00:00"],
    "every": ["1e308", "nan", "1e-300", "-1"],
    "every_ms": ["99999999999 00:00:00", "-1", "P99999999999D", "x"],
    "priority": ["9" * 5_000, "-" + "9" * 30, "1e3", "\u0663"],
    "max_retries": ["9" * 30, "-1"],
    "run_at": ["0001-01-01 00:00", "9999-12-31 23:59:59", "9999-12-31T23:59Z", "x"],
    "run_at_0": ["0001-01-01", "9999-12-31"],
    "deadline": ["0001-01-01 00:00", "9999-12-31T23:59:59-12:00"],
    "queue": ["\x00", "../x", MARKUP, "q" * 5_000],
    "task": ["\x00", "os.system", MARKUP, "t" * 5_000, "relay.bulk"],
    "name": ["\x00", "..", "a/b", MARKUP, "n" * 5_000, "\u202eevil"],
    "cron": ["* * * * *" * 5_000, "0-99999999/1 * * * *", MARKUP, "\x00", "H" * 300],
    "timezone": ["../../etc/passwd", "\x00", MARKUP, "Europe/Berlin\n"],
    "tags": ["\x00", "t" * 5_000, " ".join(map(str, range(500))), "\u202e"],
    "minutes": ["9" * 5_000, "\u0661\u0660", "-1"],
    "expected": ["9" * 5_000, "-1", "\u0663"],
    "typed": ["9" * 5_000, "\x00"],
    "filter": ["\x00", '"', "args.\x00:1", "state:failed " * 4_000, MARKUP],
    "reason": ["\x00", "r" * 50_000, "\r\nforged: line", MARKUP],
    "job": ["\x00", "x", "1" * 5_000],
    "_selected_action": ["\x00", "x", MARKUP],
    "back": ["\x00", "//evil.example", "x" * 50_000],
    "action": ["\x00", "__class__", MARKUP],
}
PLAIN = {
    **{"task": "testproject.tasks.echo", "args": "[1]", "kwargs": "{}", "name": "new"},
    **{"cron": "0 3 * * *", "timezone": "UTC", "queue": "default", "priority": "0"},
    **{"max_retries": "3", "run_at": "2026-01-01 00:00", "catch_up": "latest"},
    **{"overlap": "allow", "action": "pause", "answer": "yes", "confirmed": "yes"},
    **{"filter": "state:failed", "catch_up_window_ms": "1 00:00:00"},
}


# Of the forms, those that a field is of; else those of jobs.
OF_FIELD = {
    **dict.fromkeys(("every", "name", "cron", "timezone"), ("schedule",)),
    **dict.fromkeys(("reason", "action", "back"), ("act/", "all/")),
    **dict.fromkeys(("filter", "expected", "typed"), ("all/", "purge")),
    **{"minutes": ("queues",), "every_ms": ("admin/relay/schedule",)},
    **{"job": ("jobs/act", "jobs/all"), "_selected_action": ("admin/relay/job/",)},
}
OF_JOBS = ("jobs/", "admin/relay/job/")


def forms() -> Iterator[str]:
    for route in routes():
        is_form = route.endswith(
            ("edit/", "replay/", "act/", "add/", "change/", "all/")
        )
        is_new = route.endswith(("new/", "new-schedule/", "purge/"))
        if (is_form or is_new) and "occurrence" not in route and "audit" not in route:
            yield route


@pytest.mark.parametrize("field", BY_FIELD)
def test_no_field_breaks_a_form(root: Client, field: str) -> None:
    rows = make_rows("x")
    waiting = str(Job.objects.get(state="scheduled").pk)

    for route in forms():
        if not any(part in route for part in OF_FIELD.get(field, OF_JOBS)):
            continue
        ids = {**rows, "jobs": waiting, "job": waiting} if "edit/" in route else rows
        for value in BY_FIELD[field]:
            given = {**PLAIN, field: value}
            response = root.post(filled(route, ids), given)
            check(response, (route, field, value[:60]))


def test_a_form_larger_than_the_project_takes_is_refused(root: Client) -> None:
    huge = {"task": "testproject.tasks.echo", "args": f'["{"x" * 3_000_000}"]'}

    for path in ("/dashboard/jobs/new/", "/admin/relay/job/add/"):
        assert root.post(path, huge).status_code == 400
    assert not Job.objects.exists()


def test_arguments_larger_than_a_job_takes_are_refused_in_a_form(root: Client) -> None:
    large = {
        **{"task": "testproject.tasks.echo", "kwargs": "{}"},
        "args": json.dumps(["x" * 1_000_000]),
    }

    for path in ("/dashboard/jobs/new/", "/admin/relay/job/add/"):
        response = root.post(path, large)
        assert response.status_code == 200
        assert "MAX_ARGUMENT_BYTES" in content_of(response)
    assert not Job.objects.exists()


# --- REST ----------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["a/../b", "..", "/a", "preview"])
def test_a_schedule_is_not_given_a_name_that_no_address_has(name: str) -> None:
    client = Api(make_token("admin"))
    body = {"task": "testproject.tasks.echo", "cron": "0 3 * * *"}

    response = client.post("/v1/schedules", {**body, "name": name})
    odd = client.post("/v1/schedules", {**body, "name": "a?b#c %2F ä"})

    assert response.status_code == 400
    assert response.json()["errors"][0]["pointer"] == "/name"
    assert odd.status_code == 201
    assert client.get(odd["Location"]).json()["name"] == "a?b#c %2F ä"
    assert Schedule.objects.count() == 1


@pytest.mark.parametrize(
    "value", ["k\r\nX: 1", "k\x00", "\u202e", "", "x" * 256, "\ud800", 7]
)
def test_a_key_that_no_header_could_carry_is_refused(value: Any) -> None:
    body = {"task": "testproject.tasks.echo", "args": [1], "idempotency_key": value}

    response = Api(make_token("admin")).post("/v1/jobs", body)

    assert response.status_code == 400
    assert not Job.objects.exists()


@pytest.mark.parametrize(
    "headers",
    [
        {"If_Match": '"' + "x" * 5_000},
        {"If_Match": ",,,"},
        {"If_None_Match": "\u00ff" * 100},
        {"X_Request_ID": "../../x"},
        {"Relay_Reason": "a\tb" + "x" * 5_000},
        {"traceparent": "00-" + "0" * 60},
        {"Accept": "text/html;q=" + "9" * 500},
        {"Content_Length": "-1"},
        {"Authorization": "Bearer " + "rly_" * 2_000},
        {"Authorization": "Bearer rly_\u00e9"},
        {"Authorization": "Basic " + "=" * 100},
    ],
)
def test_no_header_breaks_an_answer(headers: dict[str, str]) -> None:
    job = make_job()
    client = Api(make_token("admin"))

    for response in (
        client.get(f"/v1/jobs/{job.pk}", **headers),
        client.patch(f"/v1/jobs/{job.pk}", {"priority": 3}, **headers),
        client.get("/metrics", **headers),
        client.get("/readyz", **headers),
    ):
        assert response.status_code in (200, 304, 400, 401, 412), response.content


def test_arguments_from_outside_hold_so_many_values_at_most() -> None:
    client, echo = Api(make_token("admin")), "testproject.tasks.echo"
    waits, ended = make_job(task=echo), make_job("failed", task=echo)
    Schedule.objects.create(name="other", task=echo, cron="0 3 * * *")
    many: list[list[object]] = [[[] for _ in range(100)] for _ in range(100)]
    plan = {"name": "new", "cron": "0 3 * * *", "task": echo}

    for method, path, body in (
        ("POST", "/v1/jobs", {"task": echo}),
        ("POST", "/v1/jobs/batch", {"jobs": [{"task": echo, "args": [many]}]}),
        ("PATCH", f"/v1/jobs/{waits.pk}", {}),
        ("POST", f"/v1/jobs/{ended.pk}/replay", {}),
        ("POST", "/v1/schedules", plan),
        ("PATCH", "/v1/schedules/other", {}),
    ):
        given = body if "jobs" in body else {**body, "args": [many]}
        response = client.send(method, path, given)
        assert response.status_code == 400, path
        assert "10,000 values" in str(response.json()), path
    fits = client.post("/v1/jobs", {"task": echo, "args": [many[1:]]})

    assert fits.status_code == 201
    assert Job.objects.filter(task=echo).count() == 3
    assert echo_task.enqueue(many).id  # code may


# --- relay's own jobs ----------------------------------------------------------------


@pytest.mark.parametrize("task", ["relay.bulk", "relay.bulk.failed"])
def test_relays_own_tasks_are_enqueued_by_nobody(root: Client, task: str) -> None:
    form = {"task": task, "args": '["x"]', "kwargs": "", "reason": ""}

    in_admin = root.post("/admin/relay/job/add/", form)
    by_rest = Api(make_token("admin")).post("/v1/jobs", {"task": task, "args": ["x"]})

    assert in_admin.status_code == 200
    assert "relay&#x27;s own" in content_of(in_admin)
    assert by_rest.status_code == 400
    assert not Job.objects.exists()


@pytest.mark.parametrize("queue", [None, "default"])
@pytest.mark.parametrize("task", ["relay.bulk", "relay.bulk.failed"])
def test_relays_own_tasks_are_enqueued_by_no_schedule(
    root: Client, task: str, queue: str | None
) -> None:
    client = Api(make_token("admin"))
    Schedule.objects.create(name="other", task="tests.noop", cron="0 3 * * *")
    stored = Schedule.objects.create(name="stored", task="tests.noop", cron="0 3 * * *")
    Schedule.objects.filter(pk=stored.pk).update(task=task, queue=queue)
    body = {"task": task, "args": ["x"], "queue": queue}

    made = client.post("/v1/schedules", {"name": "new", "cron": "0 3 * * *", **body})
    edited = client.patch("/v1/schedules/other", body)
    run = client.post("/v1/schedules/stored/trigger")

    assert [each.status_code // 100 for each in (made, edited, run)] == [4, 4, 4]
    for each in (made, edited):
        assert "own" in str(each.json())
    assert not Schedule.objects.filter(name="new").exists()
    assert not Job.objects.exists()


def test_who_may_not_enqueue_makes_no_schedule_of_it_either() -> None:
    client = Api(make_token("operate"))
    Schedule.objects.create(name="other", task="tests.noop", cron="0 3 * * *")
    echo = {"task": "testproject.tasks.echo", "args": ["x"]}

    for response in (
        client.post("/v1/schedules", {"name": "new", "cron": "0 3 * * *", **echo}),
        client.patch("/v1/schedules/other", echo),
        client.patch("/v1/schedules/other", {"args": ["x"]}),
    ):
        assert response.status_code == 403
        assert "enqueue_job" in str(response.json())
    same = client.patch("/v1/schedules/other", {"task": "tests.noop", "priority": 3})

    assert same.status_code == 200
    assert client.post("/v1/schedules/other/pause").status_code == 200
    assert not Schedule.objects.filter(name="new").exists()


def test_relays_own_jobs_take_no_other_arguments(root: Client) -> None:
    waits, ended = make_job(task="relay.bulk"), make_job("failed", task="relay.bulk")
    client = Api(make_token("admin"))

    edited = client.patch(f"/v1/jobs/{waits.pk}", {"args": ["x"]})
    replayed = client.post(f"/v1/jobs/{ended.pk}/replay", {"args": ["x"]})

    assert (edited.status_code, replayed.status_code) == (400, 400)
    assert Job.objects.count() == 2


# --- names ---------------------------------------------------------------------------


def test_failure_016_a_name_of_ten_megabytes_opens_and_is_text(root: Client) -> None:
    Queue.objects.create(name="<b>" + "q" * 2_000)
    make_job("completed", task=MARKUP + "t" * 10_000_000)
    make_job(
        "failed",
        task=MARKUP,
        error_class="E" * 1_000_000,
        error_message=MARKUP + "m" * 10_000_000,
        args={"args": [MARKUP + "a" * 10_000_000], "kwargs": {}},
    )

    for path in ("/v1/jobs", "/v1/failures", "/dashboard/jobs/", "/admin/relay/job/"):
        check(root.get(path), path)


@pytest.mark.parametrize(
    "cron",
    ["0-99999999/1 * * * *", "*/0 * * * *", "1," * 50_000 + "1 * * * *", "* " * 9_999],
)
def test_failure_146_a_costly_expression_is_refused_on_every_surface(
    root: Client, cron: str
) -> None:
    client = Api(make_token("admin"))
    body = {"name": "n", "task": "testproject.tasks.echo", "cron": cron}

    for answer in (
        client.post("/v1/schedules", body),
        client.post("/v1/schedules/preview", {"cron": cron}),
    ):
        assert answer.status_code == 400
    for path in ("/dashboard/new-schedule/", "/admin/relay/schedule/add/"):
        assert root.post(path, {**PLAIN, "cron": cron}).status_code == 200
    assert not Schedule.objects.exists()


def test_failure_111_every_surface_works_past_2147483647(root: Client) -> None:
    go_past_int4()
    rows = make_rows("x")
    made = Api(make_token("admin")).post(
        "/v1/jobs", {"task": "testproject.tasks.echo", "args": [1]}
    )
    job = Job.objects.get(pk=made.json()["id"])
    root.post(f"/dashboard/jobs/{job.pk}/act/", {"action": "cancel", "answer": "yes"})

    assert made.status_code == 201
    assert job.ready_seq > 2_147_483_647
    for route in routes():
        if route.count("<") and not route.startswith("dashboard/assets"):
            check(root.get(filled(route, rows)), route)
    for path in ("/v1/audit?limit=1", "/admin/relay/audit/", "/v1/jobs?limit=1"):
        assert root.get(path).status_code == 200
    following = root.get("/v1/audit?limit=1").json()["next"]
    assert root.get(following).status_code == 200


def go_past_int4() -> None:
    """Have every sequence of relay's go on past what four bytes hold, in the test."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT sequencename FROM pg_sequences WHERE sequencename LIKE 'relay%'"
        )
        for (name,) in cursor.fetchall():
            cursor.execute(f"ALTER SEQUENCE {name} RESTART 3000000000")
