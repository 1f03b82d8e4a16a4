"""Why is this job not running? One cause, decided from rows, and what to do."""

from __future__ import annotations

from typing import Any, Final
from uuid import UUID

from django.utils.translation import gettext_noop as _

from relay.conf import OWN_QUEUE, get_settings
from relay.engine.expire import DEADLINE_EXCEEDED
from relay.operations import Actor
from relay.queries.documents import Cause
from relay.queries.facts import Facts, Group, read_facts
from relay.queries.jobs import job_id_of
from relay.queries.reading import COUNT_CAP
from relay.queries.reasons import Reason, Sentence
from relay.tasks import all_tasks

__all__ = ["CAUSES", "explain", "why_not_running"]

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
    return explain(actor, job_id).told()


def explain(actor: Actor, job_id: UUID | str) -> Reason:
    """Return the same with its texts apart from what stands in them."""
    actor.require("view_job", "why_not_running")
    facts = read_facts(job_id_of(job_id), get_settings().database)
    state = facts.job["state"]
    if state in ("completed", "failed", "cancelled"):
        return _ended(facts)
    if state == "running":
        return _running(facts)
    return _not_yet(facts) or _not_claimed(facts)


# --- it has ended, or it runs --------------------------------------------------------


def _ended(facts: Facts) -> Reason:
    job = facts.job
    said = {"at": job["finished_at"]}
    detail = {"finished_at": job["finished_at"], "attempt": job["attempt"]}
    if job["state"] == "completed":
        return Reason.of(
            "completed",
            _("It completed at {at}."),
            _("Replay it to run it again."),
            said,
            **detail,
        )
    if job["state"] == "cancelled":
        return Reason.of(
            "cancelled",
            _("It was cancelled at {at}."),
            _("Retry it to run it after all; its history says who cancelled it."),
            said,
            **detail,
        )
    detail |= {"error_class": job["error_class"], "error": job["error"]}
    if job["error_class"] == DEADLINE_EXCEEDED:
        return Reason.of(
            "expired",
            _("It failed at {at}: it had not started when its deadline passed."),
            _("Retry it: a deadline that has passed no longer counts then."),
            said,
            **detail,
        )
    return Reason.of(
        "failed",
        _("It failed at {at}, in attempt {attempt}: {why}."),
        _("Correct what made it fail, then retry it."),
        {**said, "why": _error(job)},
        **detail,
    )


def _error(job: dict[str, Any]) -> str | Sentence:
    line = (job["error"] or "").strip().partition("\n")[0].rstrip(".")
    if job["error_class"] is None:
        none = Sentence(_("no error is on record"))
        both = Sentence("{none}: {line}", {"none": none, "line": line})
        return both if line else none
    return f"{job['error_class']}: {line}" if line else str(job["error_class"])


def _running(facts: Facts) -> Reason:
    job, holder = facts.job, facts.holder
    detail = {
        "worker_id": str(job["worker_id"]),
        "worker": holder.name if holder else None,
        "started_at": job["started_at"],
        "attempt": job["attempt"],
    }
    if holder is None or holder.state in ("lost", "stopped") or not holder.is_alive:
        return _lost(facts, detail)
    if job["cancel_requested_at"] is not None:
        return Reason.of(
            "stopping",
            _("It runs in {worker}, and was asked to stop at {cancel_requested_at}."),
            _(
                "Wait: a handler that does not stop is killed with its process after "
                "RELAY['CANCEL_GRACE']."
            ),
            **detail,
            cancel_requested_at=job["cancel_requested_at"],
        )
    return Reason.of(
        "running",
        _("It runs in {worker} since {started_at}, in attempt {attempt}."),
        _("Nothing is in its way. Cancel it if it has run for too long."),
        **detail,
    )


def _lost(facts: Facts, detail: dict[str, Any]) -> Reason:
    holder = facts.holder
    if holder is None:
        what = Sentence(_("The worker that had it is gone"))
    elif holder.state == "lost":
        what = Sentence(_("The worker that had it, {worker}, is lost"), detail)
    elif holder.state == "stopped":
        what = Sentence(_("The worker that had it, {worker}, is stopped"), detail)
    else:
        what = Sentence(
            _("The lease of the worker that has it, {worker}, ran out at {ended_at}"),
            {**detail, "ended_at": holder.lease_expires_at},
        )
    return Reason.of(
        "worker_lost",
        _("{what}: another worker takes the job back, and it runs again."),
        _(
            "Start a worker if none runs. One that runs takes it back within a few "
            "seconds, once its own connection has been sound for one lease ({lease} s)."
        ),
        {"what": what, "lease": f"{get_settings().lease.total_seconds():g}"},
        **detail,
        lease_expires_at=holder.lease_expires_at if holder else None,
    )


# --- its time has not come -----------------------------------------------------------


def _not_yet(facts: Facts) -> Reason | None:
    job = facts.job
    deadline = job["deadline_at"]
    if deadline is not None and deadline <= facts.now:
        return Reason.of(
            "deadline_passed",
            _("Its deadline passed at {deadline_at}: it fails, and never starts."),
            _("Edit its deadline at once, or retry it when it has failed."),
            deadline_at=deadline,
        )
    if job["state"] == "blocked":
        return Reason.of(
            "blocked",
            _("It waits for other jobs of its workflow."),
            _("Look at those: it is released when the last of them has completed."),
        )
    if job["state"] == "queued":
        return None
    if job["run_at"] > facts.now:
        return _later(facts)
    if any(group.is_alive for group in facts.groups):
        return Reason.of(
            "due",
            _("It is due since {run_at}, and is made ready any moment."),
            _("Wait. Workers make jobs ready that are due, 1,000 at a time."),
            run_at=job["run_at"],
        )
    return _no_worker(facts)


def _later(facts: Facts) -> Reason:
    job = facts.job
    detail = {"run_at": job["run_at"], "attempt": job["attempt"]}
    if job["state"] == "scheduled":
        return Reason.of(
            "scheduled",
            _("It is scheduled for {run_at}."),
            _("Wait, or run it now."),
            **detail,
        )
    event, reason = facts.last_event or (None, None)
    if event == "hand_back" and reason == _UNKNOWN_TASK:
        return _unknown_task(job, detail)
    if event == "snooze":
        return Reason.of(
            "snoozed",
            _("Its handler put it off until {run_at}."),
            _("Wait, or run it now."),
            **detail,
        )
    return Reason.of(
        "retrying",
        _("Attempt {attempt} did not succeed ({why}); it is tried again at {run_at}."),
        _("Wait, or run it now once what made it fail is corrected."),
        {"why": _error(job)},
        **detail,
        failures=job["failures"],
        max_retries=job["max_retries"],
        error_class=job["error_class"],
        error=job["error"],
    )


def _unknown_task(job: dict[str, Any], detail: dict[str, Any]) -> Reason:
    is_here = job["task"] in all_tasks()
    return Reason.of(
        "unknown_task",
        _(
            "The worker that claimed it knows no task {name}; it is tried again at "
            "{run_at}."
        ),
        _(
            "Start workers with the code that defines the task, as this process has "
            "it, and stop those without it, or correct the task's name."
        )
        if is_here
        else _(
            "Start workers with the code that defines the task and stop those without "
            "it, or correct the task's name."
        ),
        {"name": repr(job["task"])},
        **detail,
        task=job["task"],
        is_known_here=is_here,
    )


# --- it is ready ---------------------------------------------------------------------


def _not_claimed(facts: Facts) -> Reason:
    job = facts.job
    queue = job["queue"]
    if job["concurrency_key"] is not None:
        return Reason.of(
            "concurrency_key",
            _(
                "It has a concurrency key, and no worker of this version starts such "
                "jobs."
            ),
            _("Enqueue it without one."),
            concurrency_key=job["concurrency_key"],
        )
    if facts.is_paused:
        until = facts.paused_until
        return Reason.of(
            "queue_paused",
            _("The queue {name} is paused until it is resumed.")
            if until is None
            else _("The queue {name} is paused until {paused_until}."),
            _("Resume the queue."),
            {"name": repr(queue)},
            queue=queue,
            paused_until=until,
        )
    serving = [group for group in facts.groups if group.serves]
    claiming = [each for each in serving if each.is_alive and each.state == "running"]
    if not claiming:
        return _not_served(facts, serving)
    return _in_line(facts, claiming)


def _no_worker(facts: Facts) -> Reason:
    return Reason.of(
        "no_worker",
        _("No worker runs."),
        _("Start one: manage.py relay_worker."),
        queue=facts.job["queue"],
    )


def _remedy_of_unserved(facts: Facts) -> str:
    if facts.job["queue"] == OWN_QUEUE:
        return _(
            "Start a worker of this version: each works them besides its own queues."
        )
    if not facts.is_named:
        return _(
            "Name the queue {queue} in RELAY['QUEUES'] and restart workers, or edit "
            "the job's queue: no settings, task or row names it."
        )
    return _(
        "Start one that does (manage.py relay_worker -q {queue}), or edit the job's "
        "queue."
    )


def _not_served(facts: Facts, serving: list[Group]) -> Reason:
    queue = facts.job["queue"]
    said = {"served": _served(queue)}
    if not facts.groups:
        return _no_worker(facts)
    if not serving:
        return Reason.of(
            "queue_not_served",
            _("No worker that runs serves {served}."),
            _remedy_of_unserved(facts),
            said,
            queue=queue,
            workers=sum(group.workers for group in facts.groups),
        )
    alive = [group for group in serving if group.is_alive]
    if not alive:
        return Reason.of(
            "workers_silent",
            _("No worker that serves {served} has been heard of since {heard_at}."),
            _(
                "Look whether their processes live and reach the database; start "
                "others."
            ),
            said,
            queue=queue,
            heard_at=max(group.heard_at for group in serving),
            workers=sum(group.workers for group in serving),
        )
    states = tuple(sorted({group.state for group in alive}))
    return Reason.of(
        "workers_quiet",
        _QUIET[states],
        _("Let quiet ones claim again, or start others."),
        said,
        queue=queue,
        workers=sum(group.workers for group in alive),
    )


# By the states that they are in.
_QUIET: Final = {
    ("quiet",): _(
        "All workers that serve {served} claim nothing more: they are quiet."
    ),
    ("draining",): _(
        "All workers that serve {served} claim nothing more: they are draining."
    ),
    ("draining", "quiet"): _(
        "All workers that serve {served} claim nothing more: they are draining "
        "or quiet."
    ),
}


def _in_line(facts: Facts, claiming: list[Group]) -> Reason:
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
    said = {"line": _line(ahead), "served": _served(job["queue"])}
    wait = _("Wait, start more workers, or give it a higher priority.")
    if busy >= slots:
        return Reason.of(
            "slots_busy",
            _("All {slots} slots of the workers that serve {served} are busy; {line}."),
            wait,
            said,
            **detail,
        )
    if ahead:
        return Reason.of(
            "jobs_ahead", _("It waits in line: {line}."), wait, said, **detail
        )
    return Reason.of(
        "starting",
        _("It is the next of its queue, ready since {ready_at}, and a slot is free."),
        _(
            "Wait a moment. If it stays, a session of the database may hold a lock on "
            "its row: look into pg_stat_activity."
        ),
        **detail,
        ready_at=job["run_at"],
    )


def _served(queue: str) -> Sentence:
    """Return what the workers serve who may claim a job of this queue."""
    if queue == OWN_QUEUE:
        return Sentence(_("relay's own jobs"))
    return Sentence(_("the queue {name}"), {"name": repr(queue)})


def _line(ahead: int) -> Sentence:
    if ahead == 1:
        return Sentence(_("1 job of its queue comes before it"))
    values = {"ahead": min(ahead, COUNT_CAP)}
    if ahead > COUNT_CAP:
        return Sentence(_("more than {ahead} jobs of its queue come before it"), values)
    return Sentence(_("{ahead} jobs of its queue come before it"), values)
