"""Why is this job not running? One cause, decided from rows, and what to do."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final
from uuid import UUID

from relay.conf import OWN_QUEUE, get_settings
from relay.engine.expire import DEADLINE_EXCEEDED
from relay.operations import Actor
from relay.queries.documents import Cause
from relay.queries.facts import Facts, Group, read_facts
from relay.queries.jobs import job_id_of
from relay.queries.reading import COUNT_CAP, instant
from relay.tasks import all_tasks

__all__ = ["CAUSES", "why_not_running"]

# All that there are. Source: docs/reference/queries.md, "Why a job does not run".
CAUSES: Final = (
    *("completed", "failed", "expired", "cancelled", "running", "stopping"),
    *("worker_lost", "deadline_passed", "blocked", "scheduled", "retrying"),
    *("snoozed", "unknown_task", "due", "concurrency_key", "queue_paused"),
    *("no_worker", "queue_not_served", "workers_silent", "workers_quiet"),
    *("slots_busy", "jobs_ahead", "starting"),
)
_UNKNOWN_TASK: Final = "UnknownTask"


def why_not_running(actor: Actor, job_id: UUID | str) -> Cause:
    """Return why a job does not run, or that it does, or how it ended.

    Where several things stand in its way, the one is named that comes first: a job
    that is scheduled for tomorrow waits for tomorrow, whether a worker is there or not.

    Raises:
        NotAllowed: the actor lacks view_job.
        JobNotFound, NotFound: there is none, or what is given is no id.
        ReadTimeout: a statement took longer than 2 s.
    """
    actor.require("view_job", "why_not_running")
    facts = read_facts(job_id_of(job_id), get_settings().database)
    state = facts.job["state"]
    if state in ("completed", "failed", "cancelled"):
        return _ended(facts)
    if state == "running":
        return _running(facts)
    return _not_yet(facts) or _not_claimed(facts)


def _cause(cause: str, summary: str, remedy: str, **detail: Any) -> Cause:
    return {
        "cause": cause,
        "summary": summary,
        "remedy": remedy,
        "detail": {
            name: instant(value) if isinstance(value, datetime) else value
            for name, value in detail.items()
        },
    }


# --- it has ended, or it runs --------------------------------------------------------


def _ended(facts: Facts) -> Cause:
    job = facts.job
    at = instant(job["finished_at"])
    detail = {"finished_at": at, "attempt": job["attempt"]}
    if job["state"] == "completed":
        return _cause(
            "completed",
            f"It completed at {at}.",
            "Replay it to run it again.",
            **detail,
        )
    if job["state"] == "cancelled":
        return _cause(
            "cancelled",
            f"It was cancelled at {at}.",
            "Retry it to run it after all; its history says who cancelled it.",
            **detail,
        )
    detail |= {"error_class": job["error_class"], "error": job["error"]}
    if job["error_class"] == DEADLINE_EXCEEDED:
        return _cause(
            "expired",
            f"It failed at {at}: it had not started when its deadline passed.",
            "Retry it: a deadline that has passed no longer counts then.",
            **detail,
        )
    return _cause(
        "failed",
        f"It failed at {at}, in attempt {job['attempt']}: {_error(job)}.",
        "Correct what made it fail, then retry it.",
        **detail,
    )


def _error(job: dict[str, Any]) -> str:
    line = (job["error"] or "").strip().partition("\n")[0].rstrip(".")
    name = job["error_class"] or "no error is on record"
    return f"{name}: {line}" if line else name


def _running(facts: Facts) -> Cause:
    job, holder = facts.job, facts.holder
    detail = {
        "worker_id": str(job["worker_id"]),
        "worker": holder.name if holder else None,
        "started_at": job["started_at"],
        "attempt": job["attempt"],
    }
    if holder is None or holder.state in ("lost", "stopped") or not holder.is_alive:
        return _lost(facts, detail)
    since = instant(job["started_at"])
    asked = job["cancel_requested_at"]
    if asked is not None:
        return _cause(
            "stopping",
            f"It runs in {holder.name}, and was asked to stop at {instant(asked)}.",
            "Wait: a handler that does not stop is killed with its process after "
            "RELAY['CANCEL_GRACE'].",
            **detail,
            cancel_requested_at=asked,
        )
    return _cause(
        "running",
        f"It runs in {holder.name} since {since}, in attempt {job['attempt']}.",
        "Nothing is in its way. Cancel it if it has run for too long.",
        **detail,
    )


def _lost(facts: Facts, detail: dict[str, Any]) -> Cause:
    holder = facts.holder
    if holder is None:
        what = "The worker that had it is gone"
    elif holder.state in ("lost", "stopped"):
        what = f"The worker that had it, {holder.name}, is {holder.state}"
    else:
        ended = instant(holder.lease_expires_at)
        what = f"The lease of the worker that has it, {holder.name}, ran out at {ended}"
    return _cause(
        "worker_lost",
        f"{what}: another worker takes the job back, and it runs again.",
        "Start a worker if none runs. One that runs takes it back within a few "
        "seconds, once its own connection has been sound for one lease "
        f"({get_settings().lease.total_seconds():g} s).",
        **detail,
        lease_expires_at=holder.lease_expires_at if holder else None,
    )


# --- its time has not come -----------------------------------------------------------


def _not_yet(facts: Facts) -> Cause | None:
    job = facts.job
    deadline = job["deadline_at"]
    if deadline is not None and deadline <= facts.now:
        return _cause(
            "deadline_passed",
            f"Its deadline passed at {instant(deadline)}: it fails, and never starts.",
            "Edit its deadline at once, or retry it when it has failed.",
            deadline_at=deadline,
        )
    if job["state"] == "blocked":
        return _cause(
            "blocked",
            "It waits for other jobs of its workflow.",
            "Look at those: it is released when the last of them has completed.",
        )
    if job["state"] == "queued":
        return None
    if job["run_at"] > facts.now:
        return _later(facts)
    if any(group.is_alive for group in facts.groups):
        return _cause(
            "due",
            f"It is due since {instant(job['run_at'])}, and is made ready any moment.",
            "Wait. Workers make jobs ready that are due, 1,000 at a time.",
            run_at=job["run_at"],
        )
    return _no_worker(facts)


def _later(facts: Facts) -> Cause:
    job = facts.job
    at = instant(job["run_at"])
    detail = {"run_at": job["run_at"], "attempt": job["attempt"]}
    if job["state"] == "scheduled":
        return _cause(
            "scheduled",
            f"It is scheduled for {at}.",
            "Wait, or run it now.",
            **detail,
        )
    event, reason = facts.last_event or (None, None)
    if event == "hand_back" and reason == _UNKNOWN_TASK:
        is_here = job["task"] in all_tasks()
        return _cause(
            "unknown_task",
            f"The worker that claimed it knows no task {job['task']!r}; it is tried "
            f"again at {at}.",
            "Start workers with the code that defines the task"
            + (", as this process has it," if is_here else "")
            + " and stop those without it, or correct the task's name.",
            **detail,
            task=job["task"],
            is_known_here=is_here,
        )
    if event == "snooze":
        return _cause(
            "snoozed",
            f"Its handler put it off until {at}.",
            "Wait, or run it now.",
            **detail,
        )
    return _cause(
        "retrying",
        f"Attempt {job['attempt']} did not succeed ({_error(job)}); it is tried again "
        f"at {at}.",
        "Wait, or run it now once what made it fail is corrected.",
        **detail,
        failures=job["failures"],
        max_retries=job["max_retries"],
        error_class=job["error_class"],
        error=job["error"],
    )


# --- it is ready ---------------------------------------------------------------------


def _not_claimed(facts: Facts) -> Cause:
    job = facts.job
    queue = job["queue"]
    if job["concurrency_key"] is not None:
        return _cause(
            "concurrency_key",
            "It has a concurrency key, and no worker of this version starts such jobs.",
            "Enqueue it without one.",
            concurrency_key=job["concurrency_key"],
        )
    if facts.is_paused:
        until = facts.paused_until
        end = "it is resumed" if until is None else instant(until)
        return _cause(
            "queue_paused",
            f"The queue {queue!r} is paused until {end}.",
            "Resume the queue.",
            queue=queue,
            paused_until=until,
        )
    serving = [group for group in facts.groups if group.serves]
    claiming = [each for each in serving if each.is_alive and each.state == "running"]
    if not claiming:
        return _not_served(facts, serving)
    return _in_line(facts, claiming)


def _no_worker(facts: Facts) -> Cause:
    return _cause(
        "no_worker",
        "No worker runs.",
        "Start one: manage.py relay_worker.",
        queue=facts.job["queue"],
    )


def _not_served(facts: Facts, serving: list[Group]) -> Cause:
    queue = facts.job["queue"]
    if not facts.groups:
        return _no_worker(facts)
    if not serving:
        remedy = (
            "Start a worker of this version: each works them besides its own queues."
            if queue == OWN_QUEUE
            else f"Start one that does (manage.py relay_worker -q {queue}), or edit "
            "the job's queue."
        )
        return _cause(
            "queue_not_served",
            f"No worker that runs serves {_of_queue(queue)}.",
            remedy,
            queue=queue,
            workers=sum(group.workers for group in facts.groups),
        )
    alive = [group for group in serving if group.is_alive]
    if not alive:
        heard_at = max(group.heard_at for group in serving)
        return _cause(
            "workers_silent",
            f"No worker that serves {_of_queue(queue)} has been heard of since "
            f"{instant(heard_at)}.",
            "Look whether their processes live and reach the database; start others.",
            queue=queue,
            heard_at=heard_at,
            workers=sum(group.workers for group in serving),
        )
    return _cause(
        "workers_quiet",
        f"All workers that serve {_of_queue(queue)} claim nothing more: they are "
        f"{' or '.join(sorted({group.state for group in alive}))}.",
        "Let quiet ones claim again, or start others.",
        queue=queue,
        workers=sum(group.workers for group in alive),
    )


def _in_line(facts: Facts, claiming: list[Group]) -> Cause:
    job, ahead = facts.job, facts.ahead
    slots = sum(group.slots for group in claiming)
    busy = sum(group.running for group in claiming)
    detail = {
        "queue": job["queue"],
        "ahead": min(ahead, COUNT_CAP),
        "is_capped": ahead > COUNT_CAP,
        "position": min(ahead, COUNT_CAP) + 1,
        "slots": slots,
        "busy": busy,
        "workers": sum(group.workers for group in claiming),
    }
    line = (
        f"{_number(ahead)} of its queue {'comes' if ahead == 1 else 'come'} before it"
    )
    if busy >= slots:
        return _cause(
            "slots_busy",
            f"All {slots:,} slots of the workers that serve "
            f"{_of_queue(job['queue'])} are busy; {line}.",
            "Wait, start more workers, or give it a higher priority.",
            **detail,
        )
    if ahead:
        return _cause(
            "jobs_ahead",
            f"It waits in line: {line}.",
            "Wait, start more workers, or give it a higher priority.",
            **detail,
        )
    return _cause(
        "starting",
        f"It is the next of its queue, ready since {instant(job['run_at'])}, and a "
        "slot is free.",
        "Wait a moment. If it stays, a session of the database may hold a lock on its "
        "row: look into pg_stat_activity.",
        **detail,
        ready_at=job["run_at"],
    )


def _of_queue(queue: str) -> str:
    """Return what the workers serve who may claim a job of this queue."""
    return "relay's own jobs" if queue == OWN_QUEUE else f"the queue {queue!r}"


def _number(ahead: int) -> str:
    if ahead > COUNT_CAP:
        return f"more than {COUNT_CAP:,} jobs"
    return "1 job" if ahead == 1 else f"{ahead:,} jobs"
