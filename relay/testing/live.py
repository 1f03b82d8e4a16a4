"""A worker in threads of the test's own process, for tests that commit."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import copy_context
from typing import Final
from uuid import UUID

from asgiref.sync import async_to_sync
from django.db import connections

from relay.conf import OWN_QUEUE, get_settings
from relay.engine import finish, lease
from relay.engine.claim import Marks, read_claimed, send_claim
from relay.engine.connection import EngineConnection, connect
from relay.exceptions import RelayError
from relay.models import Job, JobState, Queue
from relay.tasks import known_queues
from relay.testing.session import LEASE, JobLike, alias_of, id_of, register
from relay.worker import announcing
from relay.worker.duties import Duty, Expire, Promote, Reap
from relay.worker.executor import Executor
from relay.worker.watch import Watch

__all__ = ["live_worker", "wait_for"]

LOOK_SECONDS: Final = 0.02
# How long the jobs that run when the block ends may go on.
STOP_SECONDS: Final = 30.0


@contextmanager
def live_worker(
    queues: Iterable[str] | None = None,
    *,
    concurrency: int = 1,
    using: str | None = None,
) -> Iterator[None]:
    """Run jobs in threads beside the test, as they are committed, until the end.

    They use connections of their own, so the test must commit: a TransactionTestCase,
    or pytest.mark.django_db(transaction=True). Retries and leases are minded;
    schedules are fired by fire_due_schedules() alone.

    Args:
        queues: those to serve; all that are known unless given.
        concurrency: jobs that run at once.

    Raises:
        RelayError: the caller is inside a transaction, or a job did not end in 30 s.
    """
    alias = alias_of(using)
    _refuse_transaction(alias, "live_worker() sees")
    served = sorted(set(queues) if queues is not None else _all_queues(alias))
    stopping, errors = threading.Event(), list[BaseException]()

    def guarded(run: Callable[[str, list[str], threading.Event], None]) -> None:
        try:
            run(alias, served, stopping)
        except BaseException as error:  # an edge: the test's own thread raises it
            errors.append(error)
        finally:
            connections.close_all()

    threads = [
        threading.Thread(target=guarded, args=(run,), name="relay live_worker")
        for run in [_mind, *[_serve] * concurrency]
    ]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stopping.set()
        until = time.monotonic() + STOP_SECONDS
        for thread in threads:
            thread.join(max(0.0, until - time.monotonic()))
    if any(thread.is_alive() for thread in threads):
        raise RelayError(
            f"a job of live_worker() still runs after {STOP_SECONDS:g} s: let its "
            "handler end, or wait_for() it inside the block"
        )
    if errors:
        raise errors[0]


def _all_queues(alias: str) -> set[str]:
    return known_queues() | set(
        Queue.objects.using(alias).values_list("name", flat=True)
    )


def _refuse_transaction(alias: str, what: str) -> None:
    if connections[alias].in_atomic_block:
        raise RelayError(
            f"{what} nothing of an open transaction, and this test runs in one: use "
            "TransactionTestCase or pytest.mark.django_db(transaction=True), or run "
            "the jobs with drain()"
        )


# Its one thread stays, and serves every live worker of the process.
_watch: Final = Watch()


def _mind(alias: str, queues: list[str], stopping: threading.Event) -> None:
    """Promote what is due, and take back the jobs of lost workers."""
    duties: list[Duty] = [Promote(), Expire(), Reap(lambda: True)]
    with connect(alias, role="duty", name="live_worker") as connection:
        while not stopping.wait(LOOK_SECONDS):
            for duty in duties:
                duty.tick(connection)


def _serve(alias: str, queues: list[str], stopping: threading.Event) -> None:
    """Claim, run and finish, one job at a time."""
    worker_id = register(alias, *queues)
    executor, marks = Executor(worker_id, watch=_watch), Marks()
    with connect(alias, role="hot", name="live_worker") as connection:
        while not stopping.is_set():
            if _serve_one(connection, executor, marks, queues, worker_id):
                continue
            if not lease.renew(connection, [worker_id], lease=LEASE):
                # Given up, as by expire_leases(): a new one takes its place.
                worker_id = register(alias, *queues)
                executor = Executor(worker_id, watch=_watch)
            marks = Marks()  # what committed late lies below its marks
            stopping.wait(LOOK_SECONDS)
        lease.set_state(connection, [worker_id], "stopped")


def _serve_one(
    connection: EngineConnection,
    executor: Executor,
    marks: Marks,
    queues: list[str],
    worker_id: UUID,
) -> bool:
    served = [OWN_QUEUE, *queues]
    spans = marks.spans(served)
    cursor = send_claim(connection, spans, limit=1, worker_id=worker_id)
    claimed = read_claimed(cursor, served)
    marks.note(claimed, limit=1)
    for job in claimed:
        begun_at = time.monotonic()
        if executor.is_async(job):
            # async_to_sync takes over what the handler set in its context.
            run_here = async_to_sync(executor.run_async)
            outcome = copy_context().run(run_here, job)
        else:
            outcome = executor.run(job)
        executor.reports.write(connection, worker_id, {job.id: job}, ended=[job.id])
        sent = []
        if isinstance(outcome, finish.Completed):
            sent = finish.send_completed(connection, [outcome], worker_id=worker_id)
        elif isinstance(outcome, finish.Settled):
            sent = finish.send_settled(
                connection,
                [outcome],
                worker_id=worker_id,
                hand_back_limit=get_settings().unknown_task_limit,
            )
        states = finish.read_states(sent)
        announcing.tell_end(job, outcome, time.monotonic() - begun_at, states)
    return bool(claimed)


def wait_for(
    job: JobLike,
    state: JobState | str = JobState.COMPLETED,
    *,
    timeout: float = 10.0,
    using: str | None = None,
) -> None:
    """Wait until the job is in the state.

    Args:
        timeout: in seconds.

    Raises:
        AssertionError: it is not in time, or its row is gone; with what it is, and why.
        RelayError: the caller is inside a transaction, where nothing changes.
    """
    __tracebackhide__ = True
    alias, job_id = alias_of(getattr(job, "using", None) or using), id_of(job)
    _refuse_transaction(alias, "wait_for() sees")
    until = time.monotonic() + timeout
    while True:
        row = Job.objects.using(alias).filter(pk=job_id).first()
        if row is not None and row.state == state:
            return
        if time.monotonic() >= until:
            break
        time.sleep(LOOK_SECONDS)
    if row is None:
        found = "gone: was it enqueued, and is it kept?"
    else:
        found = f"{row.state}, after {row.attempt} attempts"
        if row.error_class:
            found += (
                f", the last of which raised {row.error_class}: {row.error_message}"
            )
    raise AssertionError(
        f"job {job_id} is not {JobState(state)} after {timeout:g} s; it is {found}"
    )
