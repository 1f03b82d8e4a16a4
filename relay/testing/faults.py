"""What goes wrong in production, made to go wrong in a test."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from relay.conf import get_settings
from relay.engine import lease
from relay.tasks import Task, get_task
from relay.testing.running import claim_one
from relay.testing.session import (
    JobLike,
    alias_of,
    engine_session,
    id_of,
    register,
)

__all__ = ["expire_leases", "fail_next", "simulate_crash"]

_EXPIRE: Final = """
UPDATE relay_worker SET lease_expires_at = clock_timestamp() - interval '1 second'
WHERE state NOT IN ('lost', 'stopped')
"""


def simulate_crash(job: JobLike, *, using: str | None = None) -> None:
    """Let a worker claim the job and vanish: it is running, and nobody runs it.

    It comes back when that worker's lease has run out: expire_leases().

    Raises:
        StateConflict: the job does not wait to be run, or its queue is paused.
        JobNotFound: its row is gone.
    """
    alias = alias_of(getattr(job, "using", None) or using)
    worker_id = register(alias, lasts=get_settings().lease)
    claim_one(alias, id_of(job), worker_id)


def expire_leases(*, using: str | None = None) -> int:
    """Let all leases run out, and take the jobs back; return how many were taken.

    Each is ready again with one more loss, or failed where those are too many.
    """
    settings, taken = get_settings(), 0
    with engine_session(alias_of(using)) as session:
        session.execute(_EXPIRE)
        lease.give_up(session)
        for worker_id in lease.orphan_holders(session):
            while count := lease.take(
                session,
                worker_id,
                loss_limit=settings.loss_limit,
            )[0]:
                taken += count
    return taken


@contextmanager
def fail_next(
    task: Task[..., Any] | str,
    error: BaseException | type[BaseException],
    *,
    times: int = 1,
) -> Iterator[None]:
    """Let the task's handler raise the error instead of running, so many times.

    Raises:
        AssertionError: at the end of the block, if it was called less often.
    """
    found = get_task(task) if isinstance(task, str) else task
    function, left = found.function, times

    def _raise_in_turn() -> None:
        nonlocal left
        if left > 0:
            left -= 1
            raise error

    def run(*args: Any, **kwargs: Any) -> Any:
        _raise_in_turn()
        return function(*args, **kwargs)

    async def arun(*args: Any, **kwargs: Any) -> Any:
        _raise_in_turn()
        return await function(*args, **kwargs)

    found.function = arun if found.is_async else run
    try:
        yield
    finally:
        found.function = function
    if left:
        raise AssertionError(
            f"{found.name} was to fail {times} times and was called {times - left}: "
            "run its jobs inside the block, with drain(with_retries=True)"
        )
