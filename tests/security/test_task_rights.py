"""Tasks and queues that ask for a permission: no surface has them run without it."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.test import Client

from relay import operations
from relay.exceptions import ArgumentError, NotAllowed
from relay.models import ApiToken, Audit, BulkOperation, Job, Schedule
from relay.operations import PERMISSIONS, Actor, bulk
from relay.operations.rights import Rights
from relay.tasks import Task, _tasks
from tests.api.factory import ROOT, Api, make_token
from tests.operations.factory import actor, make_job
from tests.security.surfaces import browser_of

pytestmark = pytest.mark.django_db

CHARGE, PLAIN = "tests.rights.charge", "testproject.tasks.echo"
ASKED = "auth.add_group"
NO_TIMES = {
    f"{name}_{part}": ""
    for name in ("run_at", "deadline", "once_at", "starts_at", "ends_at")
    for part in (0, 1)
}
SCHEDULE = {
    **{"task": CHARGE, "args": "[1]", "kwargs": "{}", "cron": "1 2 * * *"},
    **{"timezone": "UTC", "catch_up": "latest", "overlap": "allow", "queue": ""},
    **{"priority": "", "every": "", "every_ms": "", "spread_ms": "", "excluded": ""},
    **{"catch_up_window_ms": "1 day", "success_within_ms": "", "name": "made"},
}


def charge(value: Any = None) -> None: ...


@pytest.fixture(autouse=True)
def _asking(monkeypatch: pytest.MonkeyPatch, settings: Any) -> None:
    made = Task(charge, name=CHARGE, permission=ASKED)
    monkeypatch.setitem(_tasks, CHARGE, made)
    billing = {"PERMISSION": ASKED}
    queues = {"default": {}, "mail": {}, "billing": billing}
    settings.RELAY = {"QUEUES": queues}


class Rows:
    """A waiting and two ended jobs of each kind, and a schedule of each."""

    def __init__(self) -> None:
        self.waiting = make_job("scheduled", task=CHARGE, args=called(0))
        self.ended = make_job("completed", task=CHARGE, args=called(0))
        self.failed = make_job("failed", task=CHARGE, args=called(0), error_class="E")
        self.plain = make_job("scheduled", task=PLAIN, args=called(0))
        self.moved = make_job("completed", task=PLAIN, queue="billing", args=called(0))
        self.nightly = Schedule.objects.create(name="nightly", task=CHARGE, cron=DAILY)
        self.other = Schedule.objects.create(name="other", task=PLAIN, cron=DAILY)


DAILY = "0 3 * * *"


def called(value: int) -> dict[str, Any]:
    return {"args": [value], "kwargs": {}}


def held() -> tuple[list[Any], list[Any]]:
    """Return what would run: jobs, but for relay's own, and schedules."""
    jobs = Job.objects.exclude(task__startswith="relay.").order_by("id")
    schedules = Schedule.objects.order_by("id")
    return (
        list(jobs.values_list("id", "task", "queue", "args")),
        list(schedules.values_list("name", "task", "queue", "cron")),
    )


def go_on() -> None:
    """Do what workers would: the bulk operations that were asked for."""
    for made in BulkOperation.objects.all():
        bulk.run_bulk(str(made.pk))


# --- the ways ------------------------------------------------------------------------

Way = Callable[[Api, Rows], Any]

REST: dict[str, Way] = {
    "enqueue": lambda api, rows: api.post("/v1/jobs", {"task": CHARGE, "args": [1]}),
    "enqueue into a queue": lambda api, rows: api.post(
        "/v1/jobs", {"task": PLAIN, "args": [1], "queue": "billing"}
    ),
    "batch": lambda api, rows: api.post(
        "/v1/jobs/batch",
        {"jobs": [{"task": PLAIN, "args": [1]}, {"task": CHARGE, "args": [1]}]},
    ),
    "replay": lambda api, rows: api.post(f"/v1/jobs/{rows.ended.pk}/replay"),
    "replay with changes": lambda api, rows: api.post(
        f"/v1/jobs/{rows.ended.pk}/replay", {"args": [7]}
    ),
    "replay in a queue": lambda api, rows: api.post(f"/v1/jobs/{rows.moved.pk}/replay"),
    "edit arguments": lambda api, rows: api.patch(
        f"/v1/jobs/{rows.waiting.pk}", {"args": [7]}
    ),
    "move": lambda api, rows: api.patch(
        f"/v1/jobs/{rows.plain.pk}", {"queue": "billing"}
    ),
    "replay ids": lambda api, rows: api.post(
        "/v1/jobs/bulk", {"action": "replay", "ids": [str(rows.ended.pk)]}
    ),
    "replay all": lambda api, rows: api.post(
        "/v1/jobs/bulk", {"action": "replay", "filter": "state:completed"}
    ),
    "replay a group": lambda api, rows: api.post(
        f"/v1/failures/{group_of(api)}/replay"
    ),
    "add a schedule": lambda api, rows: api.post(
        "/v1/schedules", {"name": "made", "task": CHARGE, "cron": DAILY}
    ),
    "add one into a queue": lambda api, rows: api.post(
        "/v1/schedules",
        {"name": "made", "task": PLAIN, "queue": "billing", "cron": DAILY},
    ),
    "edit a schedule": lambda api, rows: api.patch(
        "/v1/schedules/nightly", {"cron": "* * * * *"}
    ),
    "turn a schedule": lambda api, rows: api.patch(
        "/v1/schedules/other", {"task": CHARGE}
    ),
    "run a schedule": lambda api, rows: api.post("/v1/schedules/nightly/trigger"),
}


def group_of(api: Api) -> str:
    found = json.loads(api.get("/v1/failures").content)["results"]
    return next(str(each["id"]) for each in found if each["task"] == CHARGE)


def dashboard(path: str, **values: Any) -> Way:
    return lambda api, rows: api.client.post(
        f"/dashboard/{path.format(rows=rows)}",
        {
            name: each.format(rows=rows) if isinstance(each, str) else each
            for name, each in values.items()
        },
    )


def admin(path: str, **values: Any) -> Way:
    """Return a way through the admin; row stands for the key that is ticked."""
    return lambda api, rows: api.client.post(
        f"/admin/relay/{path.format(rows=rows)}",
        {
            "_selected_action" if name == "row" else name: each.format(rows=rows)
            for name, each in values.items()
        },
    )


def edited(row: str, **values: str) -> Way:
    """Return the edit of a job in the dashboard, with what stands in its form."""

    def post(api: Api, rows: Rows) -> Any:
        path = f"/dashboard/jobs/{getattr(rows, row).pk}/edit/"
        form = api.client.get(path).context["form"]
        given = {bound.name: bound.value() for bound in form}
        given = {name: "" if each is None else each for name, each in given.items()}
        return api.client.post(path, {**given, **values})

    return post


JOB_FORM = {"queue": "", "priority": "", "max_retries": "", "timeout": "", "tags": ""}
PAGES: dict[str, Way] = {
    "dashboard: enqueue": dashboard(
        "jobs/new/", task=CHARGE, args="[1]", kwargs="{{}}", tags=""
    ),
    "dashboard: enqueue into a queue": dashboard(
        "jobs/new/", task=PLAIN, args="[1]", kwargs="{{}}", tags="", queue="billing"
    ),
    "dashboard: replay": dashboard("jobs/{rows.ended.pk}/act/", action="replay"),
    "dashboard: replay with changes": dashboard(
        "jobs/{rows.ended.pk}/replay/", args="[7]", kwargs="{{}}"
    ),
    "dashboard: replay ticked": dashboard(
        "jobs/act/", action="replay", job="{rows.ended.pk}", answer="yes"
    ),
    "dashboard: replay all": dashboard(
        "jobs/all/", action="replay", filter="state:completed", answer="yes"
    ),
    "dashboard: edit arguments": edited("waiting", args="[7]"),
    "dashboard: move": edited("plain", queue="billing"),
    "dashboard: add a schedule": dashboard(
        "new-schedule/", **{**SCHEDULE, "kwargs": "{{}}"}
    ),
    "dashboard: edit a schedule": dashboard(
        "schedules/nightly/edit/", **{**SCHEDULE, "kwargs": "{{}}"}
    ),
    "dashboard: turn a schedule": dashboard(
        "schedules/other/edit/", **{**SCHEDULE, "kwargs": "{{}}"}
    ),
    "dashboard: run a schedule": dashboard("schedules/nightly/act/", action="run"),
    "admin: enqueue": admin(
        "job/add/", **NO_TIMES, **JOB_FORM, task=CHARGE, args="[1]", kwargs=""
    ),
    "admin: replay with changes": admin(
        "job/{rows.ended.pk}/replay/", args="[7]", kwargs="{{}}"
    ),
    "admin: replay": admin(
        "job/", action="replay", row="{rows.ended.pk}", confirmed="yes"
    ),
    "admin: edit arguments": admin(
        "job/{rows.waiting.pk}/edit/",
        **NO_TIMES,
        **{**JOB_FORM, "args": "[7]", "kwargs": "{{}}"},
    ),
    "admin: move": admin(
        "job/{rows.plain.pk}/edit/",
        **NO_TIMES,
        **{**JOB_FORM, "queue": "billing", "args": "[0]", "kwargs": ""},
    ),
    "admin: add a schedule": admin(
        "schedule/add/",
        **NO_TIMES,
        **{**SCHEDULE, "args": '{{"args": [1], "kwargs": {{}}}}', "kwargs": ""},
    ),
    "admin: edit a schedule": admin(
        "schedule/{rows.nightly.pk}/change/",
        **NO_TIMES,
        **{**SCHEDULE, "args": '{{"args": [1], "kwargs": {{}}}}', "kwargs": ""},
    ),
    "admin: run a schedule": admin(
        "schedule/", action="run_now", row="{rows.nightly.pk}"
    ),
}
ALL = {**{f"REST: {name}": way for name, way in REST.items()}, **PAGES}


@pytest.fixture
def browser() -> Client:
    """Return the browser of a user with all permissions of relay's, and no other."""
    return browser_of(*PERMISSIONS)


def give(name: str) -> None:
    codename = name.partition(".")[2]
    User.objects.get().user_permissions.add(Permission.objects.get(codename=codename))


@pytest.mark.parametrize("way", ALL.values(), ids=list(ALL))
def test_each_way_is_closed_without_the_permission_and_open_with_it(
    way: Way, browser: Client
) -> None:
    rows, caller = Rows(), Api(None, browser)
    before = held()

    response = way(caller, rows)
    go_on()

    assert held() == before, response.status_code
    assert response.status_code < 500

    give(ASKED)
    BulkOperation.objects.all().delete()
    response = way(caller, rows)
    go_on()

    assert held() != before, (response.status_code, response.content[:2_000])


def test_a_pattern_is_none_of_a_task_that_is_called_like_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    name = f"{CHARGE}*"
    monkeypatch.setitem(_tasks, name, Task(charge, name=name, permission=ASKED))
    made = operations.create_token(
        actor(*PERMISSIONS), "t", scopes=["admin"], tasks=[name]
    )

    response = Api(made.secret).post("/v1/jobs", {"task": name, "args": [1]})

    assert response.status_code == 403
    assert not Job.objects.exists()


OF_QUEUES = {"enqueue into a queue", "replay in a queue", "move"}
OF_TASKS = {
    name: way for name, way in REST.items() if "queue" not in name and name != "move"
}


@pytest.mark.parametrize("way", REST.values(), ids=list(REST))
def test_a_token_has_nothing_by_a_pattern_or_by_having_no_limit(way: Way) -> None:
    rows = Rows()
    before = held()

    for tasks in (None, ["*"], ["tests.*", "testproject.*"]):
        way(Api(make_token("admin", tasks=tasks)), rows)
        go_on()

    assert held() == before


@pytest.mark.parametrize("way", OF_TASKS.values(), ids=list(OF_TASKS))
def test_a_token_has_the_tasks_that_it_names_in_full(way: Way) -> None:
    rows = Rows()
    before = held()

    way(Api(make_token("admin", tasks=["*", CHARGE])), rows)
    go_on()

    assert held() != before


@pytest.mark.parametrize("name", sorted(OF_QUEUES))
def test_a_token_has_the_queues_that_it_names(name: str) -> None:
    rows = Rows()
    before = held()

    response = REST[name](Api(make_token("admin", queues=["billing", "default"])), rows)

    assert response.status_code < 300
    assert held() != before


def test_a_token_for_some_tasks_has_no_other_run() -> None:
    rows = Rows()
    caller = Api(make_token("admin", tasks=[CHARGE, "other.*"]))

    refused = caller.post("/v1/jobs", {"task": PLAIN, "args": [1]})
    moved = caller.patch(f"/v1/jobs/{rows.plain.pk}", {"priority": 3})
    told = json.loads(caller.get("/v1/whoami").content)

    assert refused.status_code == 403
    detail = json.loads(refused.content)["detail"]
    assert f"is for other.*, {CHARGE} alone, not for the task {PLAIN!r}" in detail
    assert moved.status_code == 200
    assert told["tasks"] == ["other.*", CHARGE]


# --- what is not asked, and what is told ---------------------------------------------


def test_code_is_never_asked() -> None:
    handle = _tasks[CHARGE].using(queue="billing").enqueue(1)

    assert Job.objects.get(pk=handle.id).queue == "billing"


def test_what_somebody_who_may_has_asked_for_is_gone_on_with(browser: Client) -> None:
    rows, caller = Rows(), Api(None, browser)

    answers = [
        caller.post(f"/v1/jobs/{rows.failed.pk}/retry"),
        caller.post(f"/v1/jobs/{rows.waiting.pk}/run-now"),
        caller.post(f"/v1/jobs/{rows.waiting.pk}/cancel"),
        caller.post("/v1/schedules/nightly/pause"),
        caller.post("/v1/schedules/nightly/resume"),
        caller.patch("/v1/schedules/nightly", {"enabled": False}),
    ]

    assert [each.status_code for each in answers] == [200] * 6


def test_a_refusal_names_what_is_missing(browser: Client) -> None:
    caller = Api(None, browser)

    of_task = caller.post("/v1/jobs", REST_BODY)
    of_queue = caller.post("/v1/jobs", {"task": PLAIN, "args": [1], "queue": "billing"})
    of_batch = caller.post("/v1/jobs/batch", {"jobs": [REST_BODY]})
    of_token = Api(make_token("submit")).post("/v1/jobs", REST_BODY)

    answers = (of_task, of_queue, of_batch, of_token)
    assert [each.status_code for each in answers] == [403] * 4
    told = [json.loads(each.content)["detail"] for each in answers]
    missing = f"the permission {ASKED!r} is missing, for which"
    assert f"{missing} the task {CHARGE!r} asks" in told[0]
    assert f"{missing} the queue 'billing' asks" in told[1]
    assert told[2].startswith("/jobs/0: ")
    assert f"is that of tokens which name the task {CHARGE!r} in full: make" in told[3]


REST_BODY = {"task": CHARGE, "args": [1]}


def test_lists_of_tasks_say_which_are_theirs(browser: Client) -> None:
    def listed() -> dict[str, bool]:
        found = json.loads(browser.get("/v1/tasks").content)["results"]
        assert {each["permission"] for each in found} == {None, ASKED}
        return {each["name"]: each["may_enqueue"] for each in found}

    pages = (
        "/dashboard/jobs/new/",
        "/dashboard/new-schedule/",
        "/admin/relay/job/add/",
    )
    closed = listed()
    shown = [CHARGE in browser.get(page).content.decode() for page in pages]
    give(ASKED)
    opened = listed()
    shown_then = [CHARGE in browser.get(page).content.decode() for page in pages]

    assert (closed[CHARGE], closed[PLAIN]) == (False, True)
    assert opened[CHARGE] is True
    assert (shown, shown_then) == ([False] * 3, [True] * 3)


def test_buttons_are_drawn_for_those_who_may(browser: Client) -> None:
    rows = Rows()
    pages = (
        f"/dashboard/jobs/{rows.ended.pk}/",
        f"/admin/relay/job/{rows.ended.pk}/change/",
    )
    runs = {
        "/dashboard/schedules/": ("Run now: nightly", "Run now: other"),
        "/dashboard/schedules/nightly/": ("Run now: nightly", "Pause nightly"),
        f"/admin/relay/schedule/{rows.nightly.pk}/change/": ("run_now", "disable"),
    }

    def drawn() -> list[list[bool]]:
        pages = {page: browser.get(page).content.decode() for page in runs}
        return [[each in pages[page] for each in runs[page]] for page in runs]

    closed_runs = drawn()
    closed = ['value="replay"' in browser.get(page).content.decode() for page in pages]
    give(ASKED)
    opened = ['value="replay"' in browser.get(page).content.decode() for page in pages]

    assert (closed, opened) == ([False] * 2, [True] * 2)
    assert closed_runs == [[False, True]] * 3
    assert drawn() == [[True, True]] * 3


def test_of_many_those_that_are_not_theirs_are_left_and_counted(
    browser: Client,
) -> None:
    rows = Rows()
    mine = make_job("completed", task=PLAIN)
    asker = actor(*PERMISSIONS)

    report = operations.replay_jobs(asker, [rows.ended.pk, mine.pk])
    made = operations.start_bulk(asker, "replay", "state:completed")
    bulk.run_bulk(str(made.pk))

    made.refresh_from_db()
    assert report.done == (mine.pk,)
    assert [each.job_id for each in report.skipped] == [rows.ended.pk]
    assert made.skipped["needs a permission that is missing"] == 2
    assert made.rights == {"permissions": [], "tasks": None, "queues": None}


def test_a_bulk_replay_goes_by_what_its_asker_might_then(browser: Client) -> None:
    rows = Rows()
    may = Actor(
        name="ada",
        source="api",
        permissions=PERMISSIONS,
        rights=Rights(permissions=frozenset({ASKED})),
    )

    made = operations.start_bulk(may, "replay", "state:completed")
    bulk.run_bulk(str(made.pk))

    assert Job.objects.filter(replay_of=rows.ended.pk).exists()


# --- tokens and ACCESS ---------------------------------------------------------------


def test_nobody_makes_a_token_for_a_task_or_queue_that_is_not_theirs(
    browser: Client,
) -> None:
    def make(**limits: Any) -> int:
        body = {"name": "x", "scopes": ["submit"], **limits}
        return Api(None, browser).post("/v1/tokens", body).status_code

    refused = [make(tasks=[CHARGE]), make(queues=["billing"])]
    allowed = [make(), make(tasks=["*"]), make(tasks=[PLAIN], queues=["mail"])]
    give(ASKED)
    opened = [make(tasks=[CHARGE]), make(queues=["billing"])]

    assert (refused, allowed, opened) == ([403] * 2, [201] * 3, [201] * 2)


@pytest.mark.parametrize(
    ("own", "asked", "is_made"),
    [
        (["tests.*"], ["tests.a*"], True),
        (["tests.*"], ["tests.*"], True),
        (["tests.*", CHARGE], [CHARGE], True),
        (["tests.*"], [CHARGE], False),
        (["tests.*"], ["test*"], False),
        (["tests.**"], ["tests.*"], False),
        (["tests.*"], None, False),
        (["*"], None, True),
        ([PLAIN], [PLAIN], True),
        ([PLAIN], ["testproject.*"], False),
    ],
)
def test_a_token_makes_none_that_may_more_than_it(
    own: list[str], asked: list[str] | None, is_made: bool
) -> None:
    caller = Api(make_token("admin", tasks=own))

    response = caller.post(
        "/v1/tokens", {"name": "x", "scopes": ["submit"], "tasks": asked}
    )

    assert response.status_code == (201 if is_made else 403)


@pytest.mark.parametrize(
    "tasks", ["tests.*", [], ["a b"], ["not.there"], ["relay.bulk"]]
)
def test_what_can_be_no_list_of_tasks_is_refused(tasks: Any) -> None:
    with pytest.raises(ArgumentError):
        operations.create_token(ROOT, "x", scopes=["read"], tasks=tasks)


def test_every_surface_makes_and_shows_a_token_with_its_tasks(browser: Client) -> None:
    form = {"name": "ci", "scopes": ["submit"], "expires_in": "1"}

    browser.post("/admin/relay/apitoken/add/", {**form, "tasks": f"{PLAIN}, mail.*"})

    token = ApiToken.objects.get()
    shown = json.loads(browser.get(f"/v1/tokens/{token.pk}").content)
    page = browser.get(f"/admin/relay/apitoken/{token.pk}/change/").content.decode()
    assert token.tasks == shown["tasks"] == ["mail.*", PLAIN]
    assert f"mail.*, {PLAIN}" in page
    [detail] = Audit.objects.values_list("detail", flat=True)
    assert detail["tasks"] == token.tasks


def answering(*permissions: str) -> Callable[[Any], set[str]]:
    return lambda request: set(permissions)


some = answering("enqueue_job", "view_job")
more = answering("enqueue_job", "view_job", ASKED)
own = answering("enqueue_job", "view_job", "relay.view_job", "bulk_job")


@pytest.mark.parametrize(("access", "status"), [("some", 403), ("more", 201)])
def test_access_may_say_it(
    access: str, status: int, browser: Client, settings: Any
) -> None:
    settings.RELAY = {**settings.RELAY, "ACCESS": f"{__name__}.{access}"}

    assert Api(None, browser).post("/v1/jobs", REST_BODY).status_code == status


def test_a_task_may_ask_for_a_permission_of_relays_own(
    browser: Client, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.RELAY = {**settings.RELAY, "ACCESS": f"{__name__}.own"}
    monkeypatch.setattr(_tasks[CHARGE], "permission", "relay.bulk_job")

    assert Api(None, browser).post("/v1/jobs", REST_BODY).status_code == 201


def test_a_permission_of_the_hosts_alone_opens_nothing() -> None:
    browser = browser_of()
    give(ASKED)

    for path in ("/v1/jobs", "/dashboard/jobs/", "/admin/relay/job/"):
        assert browser.get(path).status_code == 403


def test_an_actor_with_relays_permissions_alone_has_none_of_the_hosts() -> None:
    with pytest.raises(NotAllowed) as refused:
        operations.enqueue_job(actor(*PERMISSIONS), CHARGE, (1,))

    assert refused.value.permission == ASKED
