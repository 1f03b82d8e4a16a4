"""One producer that repeats an enqueue until it knows that it was committed.

Each job has a unique key that is held for ever, so a repeat finds what an earlier try
had committed without an answer.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import django
import psycopg
from django.db import DatabaseError, InterfaceError, connection, transaction

from tests.chaos.producer import BULK, Ledger, Producer
from tests.chaos.segments import LOAD

__all__ = ["DOUBT"]

# The ledger's word for a call that ended without an answer, one line for each call.
DOUBT: Final = "doubt"
FIRST_WAIT_SECONDS: Final = 0.02
LONGEST_WAIT_SECONDS: Final = 0.3
# With these the server ends a session, be it on the way from a commit to its answer.
# Source: PostgreSQL 18, "PostgreSQL Error Codes".
_CUT_CODES: Final = ("57P01", "57P02", "57P05", "40003")

_Call = tuple[Any, tuple[float, ...], dict[str, str]]


class _Undo(Exception):
    """Rolls a transaction back on purpose."""


class RepeatingProducer(Producer):
    """Enqueues one by one, in transactions and in bulk; some are rolled back."""

    def run(self, jobs: int, seconds: float) -> None:
        began = time.monotonic()
        while self._made < jobs:
            dice = self._rng.random()
            if dice < 0.01:
                self._repeat(min(BULK, jobs - self._made), self._insert_many)
            elif dice < 0.08:
                self._repeat(min(3, jobs - self._made), _insert_together)
            elif dice < 0.09:
                self._undo(2)
            else:
                self._repeat(1, _insert)
            due = began + seconds * self._made / jobs
            time.sleep(max(0.0, due - time.monotonic()))

    def _calls(self, count: int) -> dict[str, _Call]:
        from relay import Unique

        calls = {}
        for _ in range(count):
            key = f"{self._number}-{self._made}"
            self._made += 1
            chosen, arguments, keywords = self._pick(key)
            unique = Unique(key=key, until="forever")
            calls[key] = chosen.using(unique=unique), arguments, keywords
        return calls

    def _repeat(self, count: int, insert: Callable[[list[_Call]], None]) -> None:
        """Try the same call until it is known to be committed."""
        made = self._calls(count)
        keys, calls = list(made), list(made.values())
        wait = FIRST_WAIT_SECONDS
        is_doubtful = False
        while True:
            self._ledger.write("try", keys)
            try:
                _reach_server()
            except (DatabaseError, InterfaceError):
                connection.close()  # nothing was written
            else:
                try:
                    insert(calls)
                except (DatabaseError, InterfaceError) as error:
                    if _is_unanswered(error):
                        is_doubtful = True
                        self._ledger.write(DOUBT, keys[:1])
                        connection.close()
                else:
                    break
            self._ledger.write("unknown" if is_doubtful else "fail", keys)
            time.sleep(wait * self._rng.uniform(0.5, 1))
            wait = min(2 * wait, LONGEST_WAIT_SECONDS)
        self._ledger.write("ok", keys)

    def _insert_many(self, calls: list[_Call]) -> None:
        self._enqueue_many(
            [
                chosen.job(*arguments, **keywords)
                for chosen, arguments, keywords in calls
            ]
        )

    def _undo(self, count: int) -> None:
        made = self._calls(count)
        self._ledger.write("try", list(made))
        try:
            with transaction.atomic():
                _insert(list(made.values()))
                raise _Undo
        except _Undo:
            pass
        except (DatabaseError, InterfaceError):
            connection.close()
        self._ledger.write("fail", list(made))


def _reach_server() -> None:
    """Open a connection if there is none; a pooler's is no server's yet."""
    if connection.connection is None:
        with connection.cursor() as cursor:
            cursor.execute("SELECT")


def _insert(calls: list[_Call]) -> None:
    for chosen, arguments, keywords in calls:
        chosen.enqueue(*arguments, **keywords)


def _insert_together(calls: list[_Call]) -> None:
    with transaction.atomic():
        _insert(calls)


def _is_unanswered(error: Exception) -> bool:
    """Tell whether the session ended before the server said what became of the call."""
    cause = error.__cause__
    if not isinstance(cause, psycopg.Error) or cause.sqlstate is None:
        return True
    return cause.sqlstate in _CUT_CODES or cause.sqlstate.startswith("08")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--number", type=int, required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--jobs", type=int, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--ledger", type=Path, required=True)
    options = parser.parse_args()
    django.setup()
    ledger = Ledger(options.ledger)
    producer = RepeatingProducer(LOAD, options.number, options.seed, ledger)
    producer.run(options.jobs, options.seconds)
    ledger.close()


if __name__ == "__main__":
    main()
