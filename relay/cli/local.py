"""relay in this process: operations and queries, without anything in between."""

from __future__ import annotations

import getpass
import os
import platform
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any, cast
from uuid import UUID

import django
from django.db import connections, transaction

from relay import api, codec, metrics, operations, queries
from relay.cli.bodies import edit_options, enqueue_options, plan_options, set_schedule
from relay.cli.errors import CliError
from relay.cli.explaining import explained
from relay.cli.flags import MOST_LISTED
from relay.cli.printer import Document
from relay.cli.transport import Body, JobAct, WorkerAct, all_pages
from relay.cli.versions import installed_version
from relay.conf import get_settings
from relay.engine.connection import check_vendor
from relay.exceptions import (
    ArgumentError,
    DecodeError,
    NotFound,
    ResultTimeout,
    SettingsError,
    UnknownTask,
)
from relay.handles import JobHandle
from relay.models import Schedule
from relay.operations import PERMISSIONS, Actor, parse
from relay.operations.bulk_jobs import OWN_TASKS
from relay.tasks import all_tasks

__all__ = ["Local"]


@explained
class Local:
    """As relay.cli.transport.Transport says, in process.

    Who has the database may do everything; on record stands the account of the
    operating system.
    """

    def __init__(self, *, reason: str | None = None) -> None:
        alias = get_settings().database
        try:
            check_vendor(alias)
        except SettingsError as error:
            raise CliError(str(error), code="misconfigured") from None
        self._actor = Actor(name=_account(), source="cli", reason=reason)

    @property
    def place(self) -> str:
        alias = get_settings().database
        values = connections[alias].settings_dict
        host = f" on {values['HOST']}" if values["HOST"] else ""
        return f"DATABASES[{alias!r}] ({values['NAME']}{host})"

    # --- jobs ------------------------------------------------------------------------

    def list_jobs(
        self, filter: str, *, limit: int, cursor: str | None, order: str | None = None
    ) -> Document:
        return queries.list_jobs(
            self._actor, parse(filter), order=order, limit=limit, cursor=cursor
        )

    def count_jobs(self, filter: str) -> Document:
        return queries.count_jobs(self._actor, parse(filter))

    def get_job(self, job_id: str, *, include: Sequence[str] = ()) -> Document:
        return queries.get_job(self._actor, job_id, include=include)

    def list_history(self, job_id: str) -> Sequence[Document]:
        return queries.list_history(self._actor, job_id)

    def list_logs(self, job_id: str) -> Sequence[Document]:
        return queries.list_logs(self._actor, job_id)

    def why(self, job_id: str) -> Document:
        return queries.why_not_running(self._actor, job_id)

    def wait_for(self, job_id: str, seconds: float) -> Document:
        handle: JobHandle[Any] = JobHandle(
            UUID(job_id), "", using=get_settings().database
        )
        with suppress(ResultTimeout):  # its state says so
            handle.wait(timeout=seconds)
        return self.get_job(job_id)

    def enqueue(self, body: Body) -> Document:
        if body["task"] not in all_tasks() or body["task"] in OWN_TASKS:
            raise UnknownTask(
                f"no task {body['task']!r} is registered in this process: see "
                "relay tasks"
            )
        made = operations.enqueue_job(
            self._actor,
            body["task"],
            body["args"],
            body["kwargs"],
            **cast("Any", enqueue_options(body)),
        )
        return {**self.get_job(str(made.id)), "duplicate": made.is_duplicate}

    def act(self, act: JobAct, job_id: str) -> Document:
        key = UUID(job_id)
        if act == "replay":
            return self.get_job(str(operations.replay_job(self._actor, key)))
        if act == "delete":
            job = self.get_job(job_id)
            operations.delete_job(self._actor, key)
            return job
        if act == "cancel":
            operations.cancel_job(self._actor, key)
        elif act == "retry":
            operations.retry_job(self._actor, key)
        else:
            operations.run_job_now(self._actor, key)
        return self.get_job(job_id)

    def replay(self, job_id: str, body: Body) -> Document:
        made = operations.replay_job(self._actor, UUID(job_id), **_decoded(body))
        return self.get_job(str(made))

    def edit(self, job_id: str, body: Body) -> Document:
        options = cast("Any", {**edit_options(body), **_decoded(body)})
        operations.edit_job(self._actor, UUID(job_id), **options)
        return self.get_job(job_id)

    # --- many jobs -------------------------------------------------------------------

    def count_bulk(self, action: JobAct, filter: str) -> Document:
        found = operations.count_bulk(self._actor, action, filter)
        return {"count": found.count, "capped": found.is_capped}

    def start_bulk(
        self, action: JobAct, filter: str, *, expected: int | None
    ) -> Document:
        made = operations.start_bulk(self._actor, action, filter, expected=expected)
        return self.get_bulk(str(made.pk))

    def list_bulk(self) -> Document:
        return queries.list_bulk(self._actor, limit=MOST_LISTED)

    def get_bulk(self, bulk_id: str) -> Document:
        return queries.get_bulk(self._actor, bulk_id)

    def cancel_bulk(self, bulk_id: str) -> Document:
        operations.cancel_bulk(self._actor, UUID(bulk_id))
        return self.get_bulk(bulk_id)

    def list_failures(self) -> Document:
        return queries.list_failures(self._actor)

    # --- queues and workers ----------------------------------------------------------

    def list_queues(self) -> Document:
        return {"results": queries.list_queues(self._actor)}

    def get_queue(self, name: str) -> Document:
        return queries.get_queue(self._actor, name)

    def pause_queue(self, name: str, *, until: str | None) -> Document:
        moment = None if until is None else datetime.fromisoformat(until)
        operations.pause_queue(self._actor, name, until=moment)
        return self.get_queue(name)

    def resume_queue(self, name: str) -> Document:
        operations.resume_queue(self._actor, name)
        return self.get_queue(name)

    def change_queue(self, name: str, body: Body) -> Document:
        with transaction.atomic(using=get_settings().database):
            if "policy" in body:
                operations.order_queue(self._actor, name, body["policy"])
            if "weight" in body:
                operations.weigh_queue(self._actor, name, body["weight"])
        return self.get_queue(name)

    def purge_queue(self, name: str, *, expected: int | None) -> Document:
        made = operations.purge_queue(self._actor, name, expected=expected)
        return self.get_bulk(str(made.pk))

    def list_workers(self) -> Document:
        return all_pages(
            lambda cursor: queries.list_workers(
                self._actor, limit=MOST_LISTED, cursor=cursor
            )
        )

    def get_worker(self, worker_id: str) -> Document:
        return queries.get_worker(self._actor, worker_id)

    def ask_worker(self, act: WorkerAct, worker_id: str) -> Document:
        key = UUID(worker_id)
        if act == "quiet":
            operations.quiet_worker(self._actor, key)
        elif act == "resume":
            operations.resume_worker(self._actor, key)
        else:
            operations.stop_worker(self._actor, key)
        return self.get_worker(worker_id)

    def delete_worker(self, worker_id: str) -> Document:
        worker = self.get_worker(worker_id)
        operations.delete_worker(self._actor, UUID(worker_id))
        return worker

    # --- schedules and tasks ---------------------------------------------------------

    def list_schedules(self) -> Document:
        return all_pages(
            lambda cursor: queries.list_schedules(
                self._actor, limit=MOST_LISTED, cursor=cursor
            )
        )

    def get_schedule(self, name: str) -> Document:
        return queries.get_schedule(self._actor, name)

    def next_fires(self, name: str, count: int) -> Sequence[Document]:
        return queries.next_fires(self._actor, name, limit=count)

    def preview(self, body: Body) -> Sequence[Document]:
        return queries.preview(self._actor, **plan_options(body))

    def create_schedule(self, body: Body) -> Document:
        schedule = Schedule()
        set_schedule(schedule, body)
        operations.create_schedule(self._actor, schedule)
        return self.get_schedule(schedule.name)

    def edit_schedule(self, name: str, body: Body) -> Document:
        schedule = _row(name)
        operations.edit_schedule(self._actor, schedule, set_schedule(schedule, body))
        return self.get_schedule(name)

    def delete_schedule(self, name: str) -> None:
        operations.delete_schedule(self._actor, _row(name).pk)

    def pause_schedule(self, name: str) -> Document:
        operations.pause_schedules(self._actor, [_row(name).pk])
        return self.get_schedule(name)

    def resume_schedule(self, name: str) -> Document:
        operations.resume_schedules(self._actor, [_row(name).pk])
        return self.get_schedule(name)

    def trigger_schedule(self, name: str) -> Document:
        job_id = operations.run_schedule(self._actor, _row(name).pk)
        return self.get_job(str(job_id))

    def list_tasks(self) -> Document:
        return {"results": queries.list_tasks(self._actor)}

    def get_task(self, name: str) -> Document:
        return queries.get_task(self._actor, name)

    # --- the system ------------------------------------------------------------------

    def get_stats(self) -> Document:
        return queries.get_stats(self._actor)

    def get_system(self) -> Document:
        return queries.get_system(self._actor)

    def get_health(self, *, is_live: bool) -> Document:
        return queries.health() if is_live else queries.readiness()

    def get_whoami(self) -> Document:
        permissions = sorted(each for each in PERMISSIONS if self._actor.may(each))
        limits = {"queues": None, "tasks": None}
        return {"name": self._actor.name, "permissions": permissions, **limits}

    def mark(self, label: str) -> Document:
        made = operations.mark(self._actor, label)
        latest = queries.list_marks(self._actor)["results"]
        return next(each for each in latest if each["label"] == made)

    def list_audit(
        self,
        *,
        subject: str | None,
        target: str | None,
        limit: int,
        cursor: str | None,
    ) -> Document:
        return queries.list_audit(
            self._actor, subject=subject, target=target, limit=limit, cursor=cursor
        )

    def get_version(self) -> Document:
        return {
            "version": installed_version(),
            "django": django.get_version(),
            "python": platform.python_version(),
        }

    def get_metrics(self) -> str:
        self._actor.require("view_metrics", "get_metrics")
        if not metrics.is_available():
            raise CliError(
                "metrics need prometheus_client: pip install 'django-relay[metrics]'"
            )
        from relay.metrics.collector import Collector  # here: they need the extra
        from relay.metrics.exposition import render

        text, _ = render(collector=Collector(get_settings().database))
        return text.decode()

    def get_openapi(self) -> Document:
        if not api.is_available():
            raise CliError(
                "the REST API needs Django REST framework: pip install "
                "'django-relay[api]'"
            )
        from relay.api.schema import document  # here: it needs the extra

        return document()

    # --- tokens ----------------------------------------------------------------------

    def list_tokens(self) -> Document:
        return all_pages(
            lambda cursor: queries.list_tokens(
                self._actor, limit=MOST_LISTED, cursor=cursor
            )
        )

    def create_token(self, body: Body) -> Document:
        options = {name: body[name] for name in ("scopes", "queues", "tasks")}
        if "expires_in" in body:
            life = body["expires_in"]
            options["expires_in"] = None if life is None else timedelta(seconds=life)
        made = operations.create_token(self._actor, body["name"], **options)
        token = queries.get_token(self._actor, made.token.pk)
        return {**token, "secret": made.secret}

    def revoke_token(self, token_id: str) -> Document:
        operations.revoke_token(self._actor, UUID(token_id))
        return queries.get_token(self._actor, token_id)


def _decoded(body: Body) -> dict[str, Any]:
    """Return the arguments of a body; marks of types, as answers have them, are read.

    Raises:
        ArgumentError: a mark is none.
    """
    given = {name: body[name] for name in ("args", "kwargs") if name in body}
    if not given:
        return {}
    try:
        args, kwargs = codec.decode_arguments(given)
    except DecodeError as error:
        raise ArgumentError(str(error)) from None
    return {"args": args, "kwargs": kwargs}


def _account() -> str:
    try:
        return getpass.getuser()
    except (ImportError, KeyError, OSError):  # a container may have no name for it
        return f"uid {os.getuid()}" if hasattr(os, "getuid") else "unknown"


def _row(name: str) -> Schedule:
    rows = Schedule.objects.using(get_settings().database).filter(name=name)
    found = rows.only("id", "name").first()
    if found is None:
        raise NotFound(f"schedule {name!r} does not exist")
    return found
