"""One producer that keeps the queue full, by hundreds of jobs a call."""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any, Final

import django
from django.db import DatabaseError, InterfaceError, connection, transaction

from tests.chaos.producer import Ledger, Producer
from tests.chaos.profiles import PROFILES

__all__ = ["JOBS_A_CALL"]

JOBS_A_CALL: Final = 500
POLL_SECONDS: Final = 0.02

# Index: relay_job_ready_idx, also where the statistics are stale.
_WAITING: Final = """
SELECT count(*) FROM (
    SELECT FROM relay_job WHERE state = 'queued' AND concurrency_key IS NULL
    LIMIT %(limit)s
) AS waiting
"""


class BulkProducer(Producer):
    """Enqueues until so many jobs are known to be committed."""

    def run_ahead(self, jobs: int, backlog: int) -> None:
        """Enqueue whenever fewer than `backlog` jobs wait; 0: at once."""
        committed = 0
        while committed < jobs:
            try:
                if backlog and _count_waiting(backlog) >= backlog:
                    time.sleep(POLL_SECONDS)
                    continue
            except (DatabaseError, InterfaceError):
                # Nothing was asked for yet: the server is away.
                connection.close()
                time.sleep(POLL_SECONDS)
                continue
            committed += self._call(min(JOBS_A_CALL, jobs - committed))

    def _call(self, count: int) -> int:
        keys = [f"{self._number}-{self._made + index}" for index in range(count)]
        self._made += count
        self._ledger.write("try", keys)
        try:
            self._enqueue_many([self._job(key) for key in keys])
        except (DatabaseError, InterfaceError):
            self._ledger.write("unknown", keys)
            connection.close()
            return 0
        self._ledger.write("ok", keys)
        return count

    def _pick(self, key: str) -> tuple[Any, tuple[float, ...], dict[str, str]]:
        """Pick a task, without the options that the smoke varies."""
        tasks = self._profile.tasks
        name = self._rng.choices(list(tasks), list(tasks.values()))[0]
        arguments: tuple[float, ...] = ()
        if name in ("nap", "doze", "stumble"):
            arguments = (self._rng.uniform(0, self._profile.longest_seconds),)
        return getattr(self._workload, name), arguments, {"key": key}


def _count_waiting(limit: int) -> int:
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SET LOCAL enable_seqscan = off")
        cursor.execute(_WAITING, {"limit": limit})
        return int(cursor.fetchone()[0])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--profile", required=True)
    parser.add_argument("--number", type=int, required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--jobs", type=int, required=True)
    parser.add_argument("--backlog", type=int, default=0)
    parser.add_argument("--ledger", type=Path, required=True)
    options = parser.parse_args()
    django.setup()
    ledger = Ledger(options.ledger)
    producer = BulkProducer(
        PROFILES[options.profile], options.number, options.seed, ledger
    )
    producer.run_ahead(options.jobs, options.backlog)
    ledger.close()


if __name__ == "__main__":
    main()
