"""Each act and each surface that offers it: what it needs, and how it is asked for.

What is written here comes from the documents, not from the code under test.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from relay.models import BulkOperation, Queue
from relay.operations import Actor, create_token
from tests.api.factory import make_schedule, make_worker
from tests.operations.factory import make_job

__all__ = ["ACTS", "SURFACES", "Act", "Asked"]

ROOT: Final = Actor(name="root", source="system")
LATER: Final = datetime(2999, 1, 1, tzinfo=UTC)
ECHO: Final = "testproject.tasks.echo"
SCHEDULE: Final = "nightly"


def job(state: str) -> Callable[[], str]:
    return lambda: str(
        make_job(
            state,
            task=ECHO,
            args={"args": ["hi"], "kwargs": {}},
            run_at=LATER if state == "scheduled" else datetime.now(UTC),
        ).pk
    )


def queue(**values: Any) -> Callable[[], str]:
    return lambda: Queue.objects.create(name="default", **values).name


def waiting() -> str:
    """Make a queue with a job that waits."""
    job("queued")()
    return queue()()


def schedule(**values: Any) -> Callable[[], str]:
    return lambda: str(make_schedule(name=SCHEDULE, **values).pk)


def worker(state: str = "running") -> Callable[[], str]:
    return lambda: str(make_worker(state=state).pk)


def bulk() -> str:
    made = BulkOperation.objects.create(
        action="retry", filter="state:failed", actor="ada", source="api"
    )
    return str(made.pk)


def token() -> str:
    return str(create_token(ROOT, "old", scopes=["read"]).token.pk)


def nothing() -> str:
    return ""


@dataclass(frozen=True, slots=True)
class Act:
    """One act: what it needs, what it is on record with, and what it is done to.

    Attributes:
        make: makes the row; returns its key.
        target: on record; the key of the row unless given, None for what is new.
        also: what else it needs with these values: docs/reference/operations.md.
    """

    permission: str
    subject: str
    make: Callable[[], str]
    target: str | None = "{key}"
    also: tuple[str, ...] = ()


ACTS: Final[Mapping[str, Act]] = {
    "enqueue_job": Act("enqueue_job", "job", nothing, None),
    "enqueue_jobs": Act("enqueue_job", "job", nothing, None),
    "cancel_jobs": Act("cancel_job", "job", job("queued")),
    "retry_jobs": Act("retry_job", "job", job("failed")),
    "replay_jobs": Act("retry_job", "job", job("failed")),
    "run_jobs_now": Act("retry_job", "job", job("scheduled")),
    "delete_jobs": Act("delete_job", "job", job("failed")),
    "replay_job": Act("retry_job", "job", job("failed")),
    "edit_job": Act("edit_job", "job", job("scheduled")),
    "start_bulk": Act("bulk_job", "bulk", job("failed"), None, ("retry_job",)),
    "cancel_bulk": Act("bulk_job", "bulk", bulk),
    "purge_queue": Act("manage_queue", "queue", waiting),
    "pause_queue": Act("manage_queue", "queue", queue()),
    "resume_queue": Act("manage_queue", "queue", queue(paused_at=LATER)),
    "order_queue": Act("manage_queue", "queue", queue()),
    "weigh_queue": Act("manage_queue", "queue", queue()),
    "quiet_worker": Act("manage_worker", "worker", worker()),
    "resume_worker": Act("manage_worker", "worker", worker("quiet")),
    "stop_worker": Act("manage_worker", "worker", worker()),
    "delete_worker": Act("manage_worker", "worker", worker("stopped")),
    "create_schedule": Act(
        "manage_schedule", "schedule", nothing, SCHEDULE, ("enqueue_job",)
    ),
    "edit_schedule": Act("manage_schedule", "schedule", schedule(), SCHEDULE),
    "pause_schedules": Act("manage_schedule", "schedule", schedule(), SCHEDULE),
    "resume_schedules": Act(
        "manage_schedule", "schedule", schedule(enabled=False), SCHEDULE
    ),
    "delete_schedule": Act("manage_schedule", "schedule", schedule(), SCHEDULE),
    "run_schedule": Act("run_schedule", "schedule", schedule(), SCHEDULE),
    "create_token": Act("manage_token", "token", nothing, None, ("view_payload",)),
    "revoke_token": Act("manage_token", "token", token),
    "mark": Act("add_audit", "mark", nothing, "charts"),
}


@dataclass(frozen=True, slots=True)
class Asked:
    """How a surface is asked for an act.

    Attributes:
        where: a path, or a command line; {key} stands for the row's.
        what: the form or the body.
        also: what the surface needs besides, such as a look at what is acted on.
    """

    where: str
    what: Mapping[str, Any] = field(default_factory=dict)
    also: tuple[str, ...] = ()


def _button(page: str, action: str, *also: str, **more: str) -> Asked:
    return Asked(page, {"action": action, **more}, also)


_LOOK: Final = "view_schedule"
_YES: Final = {"answer": "yes"}
_EDITED: Final = {
    **{"queue": "default", "priority": "3", "max_retries": "25"},
    "run_at": "2999-01-01T00:00Z",
}
_PLANNED: Final = {
    **{"name": SCHEDULE, "task": ECHO, "cron": "0 4 * * *", "timezone": "UTC"},
    **{"catch_up": "latest", "overlap": "allow", "args": '["hello"]'},
}
_HERE: Final = f"schedules/{SCHEDULE}/"

# Below /dashboard/.
DASHBOARD: Final[Mapping[str, Asked]] = {
    "enqueue_job": Asked("jobs/new/", {"task": ECHO, "args": '["hi"]'}, ("view_job",)),
    "cancel_jobs": _button("jobs/{key}/act/", "cancel", **_YES),
    "retry_jobs": _button("jobs/{key}/act/", "retry"),
    "replay_jobs": _button("jobs/act/", "replay", job="{key}"),
    "run_jobs_now": _button("jobs/{key}/act/", "run_now"),
    "delete_jobs": _button("jobs/{key}/act/", "delete", **_YES, typed="1"),
    "replay_job": _button("jobs/{key}/act/", "replay"),
    "edit_job": Asked("jobs/{key}/edit/", _EDITED, ("view_job",)),
    "start_bulk": _button(
        "jobs/all/", "retry", **_YES, filter="state:failed", typed="1"
    ),
    "cancel_bulk": _button("bulk/{key}/act/", "cancel"),
    "purge_queue": _button(
        "queues/{key}/act/", "purge", **_YES, typed="{key}", expected="1"
    ),
    "pause_queue": _button("queues/{key}/act/", "pause"),
    "resume_queue": _button("queues/{key}/act/", "resume"),
    "order_queue": _button("queues/{key}/act/", "fifo"),
    "weigh_queue": _button("queues/{key}/act/", "weigh", weight="3"),
    "quiet_worker": _button("workers/{key}/act/", "quiet"),
    "resume_worker": _button("workers/{key}/act/", "resume"),
    "stop_worker": _button("workers/{key}/act/", "stop", **_YES),
    "delete_worker": _button("workers/{key}/act/", "delete"),
    "create_schedule": Asked("new-schedule/", _PLANNED),
    "edit_schedule": Asked(f"{_HERE}edit/", _PLANNED, (_LOOK,)),
    "pause_schedules": _button(f"{_HERE}act/", "pause", _LOOK),
    "resume_schedules": _button(f"{_HERE}act/", "resume", _LOOK),
    "delete_schedule": _button(f"{_HERE}act/", "delete", _LOOK, **_YES, typed=SCHEDULE),
    "run_schedule": _button(f"{_HERE}act/", "run", _LOOK),
    "mark": Asked("metrics/mark/", {"label": "deploy"}),
}

_OF_ADMIN: Final = {
    **{"name": SCHEDULE, "task": ECHO, "queue": "", "priority": ""},
    **{"args": '{"args": ["hello"]}', "cron": "0 4 * * *", "timezone": "UTC"},
    **{"overlap": "allow", "catch_up": "latest"},
    **{"catch_up_window_ms": "1 00:00:00", "enabled": "on"},
}
_ALL_OF_THEM: Final = {
    **{"select_across": "1", "_selected_action": "{key}", "confirmed": "yes"},
    **{"filter": "state:failed", "expected": "1"},
}
_TOKEN: Final = {"name": "ci", "scopes": ["payload"], "expires_in": "30"}
_CONFIRMED: Final = {"confirmed": "yes"}

# Below /admin/relay/.
ADMIN: Final[Mapping[str, Asked]] = {
    "enqueue_job": Asked("job/add/", {"task": ECHO, "args": '["hi"]'}),
    "cancel_jobs": _button("job/{key}/act/", "cancel", "view_job"),
    "retry_jobs": _button("job/{key}/act/", "retry", "view_job"),
    "replay_jobs": _button("job/{key}/act/", "replay", "view_job"),
    "run_jobs_now": _button("job/{key}/act/", "run_now", "view_job"),
    "delete_jobs": Asked("job/{key}/delete/", {"post": "yes"}, ("view_job",)),
    "replay_job": Asked(
        "job/{key}/replay/", {"args": '["ho"]'}, ("view_job", "edit_job")
    ),
    "edit_job": Asked("job/{key}/edit/", {"priority": "3"}, ("view_job",)),
    "start_bulk": _button("job/?state=failed", "retry", "view_job", **_ALL_OF_THEM),
    "cancel_bulk": _button("bulkoperation/{key}/act/", "cancel", "view_bulkoperation"),
    "purge_queue": Asked(
        "queue/{key}/purge/", {**_CONFIRMED, "typed": "{key}"}, ("view_queue",)
    ),
    "pause_queue": _button("queue/{key}/act/", "pause", "view_queue"),
    "resume_queue": _button("queue/{key}/act/", "resume", "view_queue"),
    "order_queue": _button("queue/{key}/act/", "order_fifo", "view_queue"),
    "weigh_queue": Asked("queue/{key}/weigh/", {"weight": "3"}, ("view_queue",)),
    "quiet_worker": _button("worker/{key}/act/", "quiet", "view_worker"),
    "resume_worker": _button("worker/{key}/act/", "resume", "view_worker"),
    "stop_worker": _button("worker/{key}/act/", "shut_down", "view_worker"),
    "delete_worker": _button("worker/{key}/act/", "forget", "view_worker"),
    "create_schedule": Asked("schedule/add/", _OF_ADMIN),
    "edit_schedule": Asked("schedule/{key}/change/", _OF_ADMIN, (_LOOK,)),
    "pause_schedules": _button("schedule/{key}/act/", "disable", _LOOK),
    "resume_schedules": _button("schedule/{key}/act/", "enable", _LOOK),
    "delete_schedule": Asked("schedule/{key}/delete/", {"post": "yes"}, (_LOOK,)),
    "run_schedule": _button("schedule/{key}/act/", "run_now", _LOOK),
    "create_token": Asked("apitoken/add/", _TOKEN),
    "revoke_token": _button(
        "apitoken/{key}/act/", "revoke", "view_apitoken", **_CONFIRMED
    ),
}

_CALL: Final = {"task": ECHO, "args": ["hi"]}

# Method and path below /v1/.
API: Final[Mapping[str, Asked]] = {
    "enqueue_job": Asked("POST jobs", _CALL),
    "enqueue_jobs": Asked("POST jobs/batch", {"jobs": [_CALL]}),
    "cancel_jobs": Asked("POST jobs/{key}/cancel"),
    "retry_jobs": Asked("POST jobs/{key}/retry"),
    "replay_jobs": Asked(
        "POST jobs/bulk", {"action": "replay", "ids": ["{key}"]}, ("bulk_job",)
    ),
    "run_jobs_now": Asked("POST jobs/{key}/run-now"),
    "delete_jobs": Asked("DELETE jobs/{key}"),
    "replay_job": Asked("POST jobs/{key}/replay"),
    "edit_job": Asked("PATCH jobs/{key}", {"priority": 3}),
    "start_bulk": Asked(
        "POST jobs/bulk", {"action": "retry", "filter": "state:failed"}
    ),
    "cancel_bulk": Asked("POST bulk/{key}/cancel"),
    "purge_queue": Asked("POST queues/{key}/purge"),
    "pause_queue": Asked("POST queues/{key}/pause"),
    "resume_queue": Asked("POST queues/{key}/resume"),
    "order_queue": Asked("PATCH queues/{key}", {"policy": "fifo"}),
    "weigh_queue": Asked("PATCH queues/{key}", {"weight": 3}),
    "quiet_worker": Asked("POST workers/{key}/quiet"),
    "resume_worker": Asked("POST workers/{key}/resume"),
    "stop_worker": Asked("POST workers/{key}/shutdown"),
    "delete_worker": Asked("DELETE workers/{key}"),
    "create_schedule": Asked(
        "POST schedules", {"name": SCHEDULE, "task": ECHO, "cron": "0 4 * * *"}
    ),
    "edit_schedule": Asked(f"PATCH schedules/{SCHEDULE}", {"cron": "0 4 * * *"}),
    "pause_schedules": Asked(f"POST schedules/{SCHEDULE}/pause"),
    "resume_schedules": Asked(f"POST schedules/{SCHEDULE}/resume"),
    "delete_schedule": Asked(f"DELETE schedules/{SCHEDULE}"),
    "run_schedule": Asked(f"POST schedules/{SCHEDULE}/trigger"),
    "create_token": Asked("POST tokens", {"name": "ci", "scopes": ["payload"]}),
    "revoke_token": Asked("POST tokens/{key}/revoke"),
    "mark": Asked("POST marks", {"label": "deploy"}),
}

# Who acts over HTTP looks first, at the job, worker or token that a word names.
CLI: Final[Mapping[str, Asked]] = {
    "enqueue_job": Asked(f"enqueue {ECHO} --args '[\"hi\"]'"),
    "cancel_jobs": Asked("cancel {key}"),
    "retry_jobs": Asked("retry {key}"),
    "run_jobs_now": Asked("jobs run-now {key}"),
    "delete_jobs": Asked("rm {key} --yes", also=("view_job",)),
    "replay_job": Asked("replay {key}"),
    "edit_job": Asked("jobs edit {key} --set priority=3"),
    "start_bulk": Asked("retry --filter state:failed --yes"),
    "cancel_bulk": Asked("bulk cancel {key}", also=("view_bulkoperation",)),
    "purge_queue": Asked("queues purge {key} --yes", also=("delete_job", "bulk_job")),
    "pause_queue": Asked("pause {key}"),
    "resume_queue": Asked("resume {key}"),
    "order_queue": Asked("queues set {key} --order fifo"),
    "weigh_queue": Asked("queues set {key} --weight 3"),
    "quiet_worker": Asked("workers quiet {key}", also=("view_worker",)),
    "resume_worker": Asked("workers resume {key}", also=("view_worker",)),
    "stop_worker": Asked("workers stop {key} --yes", also=("view_worker",)),
    "delete_worker": Asked("workers rm {key} --yes", also=("view_worker",)),
    "create_schedule": Asked(f"schedules add {SCHEDULE} --task {ECHO} --every 1h"),
    "edit_schedule": Asked(f"schedules edit {SCHEDULE} --cron '0 4 * * *'"),
    "pause_schedules": Asked(f"schedules pause {SCHEDULE}"),
    "resume_schedules": Asked(f"schedules resume {SCHEDULE}"),
    "delete_schedule": Asked(f"schedules rm {SCHEDULE} --yes", also=(_LOOK,)),
    "run_schedule": Asked(f"schedules trigger {SCHEDULE}"),
    "create_token": Asked("token create ci --scopes payload"),
    "revoke_token": Asked("token revoke {key} --yes", also=("view_apitoken",)),
    "mark": Asked("mark deploy"),
}

SURFACES: Final[Mapping[str, Mapping[str, Asked]]] = {
    "dashboard": DASHBOARD,
    "admin": ADMIN,
    "api": API,
    "cli": CLI,
    "cli in process": CLI,
}
