"""Everything at once on the same rows: no deadlock, no job settled twice or lost."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from django.test import override_settings

from relay.engine import lease
from relay.engine.claim import Marks, read_claimed, send_claim
from relay.engine.connection import EngineConnection, connect
from relay.engine.finish import (
    Completed,
    Settled,
    read_finished,
    send_completed,
    send_settled,
)
from relay.engine.promote import promote
from relay.engine.prune import prune_jobs, prune_workers
from tests.engine.rows import add_jobs, add_worker, states
from tests.scale import scaled

pytestmark = [
    pytest.mark.django_db(transaction=True, available_apps=["relay"]),
    pytest.mark.slow,
]

BATCH = 20
# Short enough for some of the workers to be given up while they work.
LEASE = timedelta(milliseconds=60)
VERBS: Any = ("fail", "retry", "release", "hand_back")


class Finisher:
    """A worker's loop without user code: claim, then end each job some way."""

    def __init__(self, number: int) -> None:
        self.session = connect("default", role="hot", name=f"finisher {number}")
        self.worker_id = add_worker(self.session)
        self.marks = Marks()
        self.ended: Counter[str] = Counter()

    def once(self) -> None:
        if lease.renew(self.session, [self.worker_id], lease=LEASE) == set():
            self.worker_id = add_worker(self.session, lease_for=LEASE)
        self.marks.sweep()
        claiming = send_claim(
            self.session,
            self.marks.spans(["default"]),
            limit=BATCH,
            worker_id=self.worker_id,
        )
        jobs = read_claimed(claiming, ["default"])
        self.marks.note(jobs, limit=BATCH)
        kept = [
            Completed(job.id, job.attempt, "1", 0 if number % 5 else 0.001)
            for number, job in enumerate(jobs)
            if number % 4
        ]
        others = [
            Settled(
                id=job.id,
                attempt=job.attempt,
                verb=VERBS[job.attempt % 4],
            )
            for number, job in enumerate(jobs)
            if not number % 4
        ]
        with self.session.block():
            sent = send_completed(self.session, kept, worker_id=self.worker_id)
            sent += send_settled(
                self.session,
                others,
                worker_id=self.worker_id,
                hand_back_limit=timedelta(days=1),
            )
        written = read_finished(sent)
        self.ended.update("completed" for one in kept if one.id in written)
        self.ended.update(one.verb for one in others if one.id in written)


def sweep(session: EngineConnection) -> None:
    promote(session, limit=50)
    for worker_id in {*lease.give_up(session), *lease.orphan_holders(session)}:
        lease.take(session, worker_id, loss_limit=10**6, limit=50)


def prune(session: EngineConnection) -> None:
    prune_jobs(session, limit=50)
    prune_workers(session)


@override_settings(RELAY={"RETENTION_FAILED": timedelta(0)})
def test_failure_081_finishers_reapers_and_pruners_never_deadlock_and_lose_nothing(
    duty: EngineConnection,
) -> None:
    count = scaled(50_000, least=1_000)
    add_jobs(duty, count)
    with ExitStack() as stack:
        finishers = [Finisher(number) for number in range(8)]
        duties = [connect("default", role="duty", name="duties") for _ in range(4)]
        for session in (*(one.session for one in finishers), *duties):
            stack.enter_context(session)
            # Without the right to set it, deadlocks take a second to show.
            with suppress(psycopg.errors.InsufficientPrivilege):
                session.execute("SET deadlock_timeout = '50ms'")
        is_over = threading.Event()

        def repeat(once: Callable[[], None]) -> None:
            try:
                while not is_over.is_set():
                    once()
            finally:
                is_over.set()

        with ThreadPoolExecutor(len(finishers) + len(duties)) as pool:
            running = [pool.submit(repeat, one.once) for one in finishers]
            running += [pool.submit(repeat, lambda: sweep(duties[0]))]
            running += [pool.submit(repeat, lambda: sweep(duties[1]))]
            running += [pool.submit(repeat, lambda: prune(duties[2]))]
            running += [pool.submit(repeat, lambda: prune(duties[3]))]
            while not is_over.wait(0.05) and _ended(finishers) < count:
                continue
            is_over.set()
            for future in running:
                future.result(timeout=60)

    assert _ended(finishers) == count
    assert set(states(duty)) <= {"completed", "failed"}
    assert prune_jobs(duty, limit=count) <= count
    assert states(duty) == {}


def _ended(finishers: list[Finisher]) -> int:
    return sum(one.ended["completed"] + one.ended["fail"] for one in finishers)
