"""What is done to workers: quiet, resume, stop; and the rows of those that ended."""

from __future__ import annotations

from uuid import UUID

from relay.engine import workers
from relay.exceptions import Conflict, NotFound
from relay.operations.registry import Act, operation

__all__ = ["delete_worker", "quiet_worker", "resume_worker", "stop_worker"]


@operation("manage_worker", subject="worker")
def quiet_worker(act: Act, worker_id: UUID) -> list[UUID]:
    """Have a worker claim nothing more; what runs goes on.

    Any of its rows names it: all children of its process are quiet, also those that
    start later. It happens within two seconds; what was claimed and has not started is
    handed back.

    Returns:
        the rows that were asked.

    Raises:
        NotAllowed: the actor lacks manage_worker.
        NotFound: there is no such row.
        Conflict: it ends or has ended.
    """
    return _ask(act, worker_id, "quiet")


@operation("manage_worker", subject="worker")
def resume_worker(act: Act, worker_id: UUID) -> list[UUID]:
    """Let a quiet worker claim again; otherwise as quiet_worker."""
    return _ask(act, worker_id, "resume")


@operation("manage_worker", subject="worker")
def stop_worker(act: Act, worker_id: UUID) -> list[UUID]:
    """Have a worker drain and end, as SIGTERM does; otherwise as quiet_worker.

    Running jobs have its grace; then they are handed back, uncharged. What starts
    processes may start it again.
    """
    return _ask(act, worker_id, "stop")


@operation("manage_worker", subject="worker")
def delete_worker(act: Act, worker_id: UUID) -> None:
    """Delete the row of a worker that has stopped or is lost, before it is pruned.

    Raises:
        NotAllowed: the actor lacks manage_worker.
        NotFound: there is no such row.
        Conflict: it has not ended, or its running jobs are not taken back yet.
    """
    found = workers.delete_ended(worker_id, using=act.using)
    if found is None:
        raise NotFound(f"worker {worker_id} does not exist, or was pruned")
    if not found.is_gone:
        reason = "has running jobs" if found.is_holding else f"is {found.state}"
        raise Conflict(f"cannot delete worker {worker_id}: it {reason}")
    act.note(worker_id, name=found.name)


def _ask(act: Act, worker_id: UUID, request: workers.Request) -> list[UUID]:
    rows = workers.ask(worker_id, request, using=act.using)
    if not rows:
        raise NotFound(f"worker {worker_id} does not exist, or was pruned")
    states = {row_id: state for row_id, _, state, _ in rows}
    asked = [(row_id, name) for row_id, name, _, is_asked in rows if is_asked]
    if worker_id not in dict(asked):
        raise Conflict(
            f"cannot {request} worker {worker_id}: it is {states[worker_id]}, or was "
            "asked to stop"
        )
    for row_id, name in asked:
        act.note(row_id, name=name)
    return [row_id for row_id, _ in asked]
