"""One producer: enqueues through relay's own API and keeps a ledger of it."""

from __future__ import annotations

import argparse
import os
import random
import time
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import django
from django.db import DatabaseError, InterfaceError, connection, transaction

from tests.chaos.profiles import PROFILES, Profile

FSYNC_EACH_LINES = 100
BULK = 20


class Ledger:
    """What was tried and what came of it, one line each, before and after."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        self._lines = 0

    def write(self, word: str, keys: list[str]) -> None:
        text = "".join(f"{word} {key} {time.time():.6f}\n" for key in keys)
        os.write(self._file, text.encode("ascii"))
        before = self._lines
        self._lines += len(keys)
        if before // FSYNC_EACH_LINES != self._lines // FSYNC_EACH_LINES:
            os.fsync(self._file)

    def close(self) -> None:
        os.fsync(self._file)
        os.close(self._file)


class _Undo(Exception):
    """Rolls a transaction back on purpose."""


class Producer:
    def __init__(self, profile: Profile, number: int, seed: int, ledger: Ledger):
        from relay import enqueue_many
        from tests.chaos import workload

        self._profile = profile
        self._number = number
        self._rng = random.Random(seed)
        self._ledger = ledger
        self._workload = workload
        self._enqueue_many = enqueue_many
        self._made = 0

    def run(self, jobs: int, seconds: float) -> None:
        began = time.monotonic()
        while self._made < jobs:
            dice = self._rng.random()
            if dice < 0.03:
                self._attempt(min(BULK, jobs - self._made), bulk=True)
            elif dice < 0.05:
                self._attempt(2, undo=True)
            else:
                self._attempt(1)
            due = began + seconds * self._made / jobs
            time.sleep(max(0.0, due - time.monotonic()))

    def _attempt(self, count: int, *, bulk: bool = False, undo: bool = False) -> None:
        keys = [f"{self._number}-{self._made + index}" for index in range(count)]
        self._made += count
        self._ledger.write("try", keys)
        try:
            if bulk:
                self._enqueue_many([self._job(key) for key in keys])
            elif undo:
                with transaction.atomic():
                    for key in keys:
                        self._enqueue(key)
                    raise _Undo
            else:
                self._enqueue(keys[0])
        except _Undo:
            self._ledger.write("fail", keys)
        except (DatabaseError, InterfaceError):
            # The session died on the way: a rolled-back block wrote nothing, of
            # the others it is not known whether the commit was reached.
            self._ledger.write("fail" if undo else "unknown", keys)
            connection.close()
        else:
            self._ledger.write("ok", keys)

    def _pick(self, key: str) -> tuple[Any, tuple[float, ...], dict[str, str]]:
        names = list(self._profile.tasks)
        name = self._rng.choices(names, list(self._profile.tasks.values()))[0]
        chosen = getattr(self._workload, name)
        options: dict[str, Any] = {}
        if self._rng.random() < 0.3:
            options["priority"] = self._rng.choice((-10, 10))
        if self._rng.random() < 0.1:
            options["run_in"] = timedelta(seconds=self._rng.uniform(0.1, 2))
        if options:
            chosen = chosen.using(**options)
        arguments: tuple[float, ...] = ()
        if name in ("nap", "doze", "stumble", "transact"):
            arguments = (
                self._rng.uniform(
                    self._profile.shortest_seconds, self._profile.longest_seconds
                ),
            )
        return chosen, arguments, {"key": key}

    def _job(self, key: str) -> Any:
        chosen, arguments, keywords = self._pick(key)
        return chosen.job(*arguments, **keywords)

    def _enqueue(self, key: str) -> None:
        chosen, arguments, keywords = self._pick(key)
        chosen.enqueue(*arguments, **keywords)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--profile", required=True)
    parser.add_argument("--number", type=int, required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--jobs", type=int, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--ledger", type=Path, required=True)
    parser.add_argument("--also", help="one task more, for a tenth of the jobs")
    options = parser.parse_args()
    django.setup()
    profile = PROFILES[options.profile]
    if options.also:
        share = sum(profile.tasks.values()) / 9
        profile = replace(profile, tasks={**profile.tasks, options.also: share})
    ledger = Ledger(options.ledger)
    producer = Producer(profile, options.number, options.seed, ledger)
    producer.run(options.jobs, options.seconds)
    ledger.close()


if __name__ == "__main__":
    main()
