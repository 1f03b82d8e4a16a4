"""The faults of the database campaign, one at a time.

Each is a generator: it begins at once, yields how many seconds it wants to last, and
is over when it ends. Whoever drives it looks after the processes meanwhile.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Final

import psycopg

from tests.chaos.pooler import Pooler
from tests.chaos.proxy import FaultProxy
from tests.chaos.servers import DATABASE, Server

__all__ = ["INJECT", "Outages"]

# Answers to commits that are lost in one fault.
COMMITS: Final = 10
DELAY_SECONDS: Final = 0.1
_MOST_SWITCHES: Final = 100

# One write in a hundred to jobs fails as in a deadlock, or as a transaction that has to
# be done again.
INJECT: Final = """
CREATE FUNCTION chaos_inject() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    dice float := random();
BEGIN
    IF dice < 0.01 THEN
        RAISE EXCEPTION 'injected by the campaign'
            USING ERRCODE = CASE WHEN dice < 0.005 THEN '40P01' ELSE '40001' END;
    END IF;
    RETURN NULL;
END
$$;
CREATE TRIGGER chaos_inject BEFORE INSERT OR UPDATE OR DELETE ON relay_job
FOR EACH STATEMENT EXECUTE FUNCTION chaos_inject();
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outages:
    """What can be done to a server and to the way there, by the name of the fault."""

    server: Server
    proxy: FaultProxy | None = None
    pooler: Pooler | None = None

    def begin(self, kind: str, seconds: float) -> Iterator[float]:
        """Begin a fault."""
        strike: Callable[[float], Iterator[float]] = getattr(self, f"_{kind}")
        return strike(seconds)

    # --- F7: restarts -----------------------------------------------------------------

    def _restart(self, seconds: float) -> Iterator[float]:
        self.server.restart(is_crash=False)
        yield seconds

    def _crash(self, seconds: float) -> Iterator[float]:
        self.server.restart(is_crash=True)
        yield seconds

    def _kill(self, seconds: float) -> Iterator[float]:
        self.server.kill()
        yield seconds

    # --- F8: spells -------------------------------------------------------------------

    def _read_only(self, seconds: float) -> Iterator[float]:
        """As after a failover: the sessions end, the next ones can only read."""
        self.server.set("default_transaction_read_only", "on")
        self.server.end_sessions()
        yield seconds
        self.server.set("default_transaction_read_only", None)

    def _no_sessions(self, seconds: float) -> Iterator[float]:
        self._limit_sessions(0)
        self.server.end_sessions()
        yield seconds
        self._limit_sessions(-1)

    def _limit_sessions(self, limit: int) -> None:
        with self.server.session("postgres") as session:
            session.execute(f"ALTER DATABASE {DATABASE} CONNECTION LIMIT {limit}")

    def _end_sessions(self, seconds: float) -> Iterator[float]:
        self.server.end_sessions()
        yield seconds

    # --- F9: errors -------------------------------------------------------------------

    def _lock_jobs(self, seconds: float) -> Iterator[float]:
        return self._lock("relay_job", seconds)

    def _lock_workers(self, seconds: float) -> Iterator[float]:
        return self._lock("relay_worker", seconds)

    def _lock(self, table: str, seconds: float) -> Iterator[float]:
        with self.server.session() as session, session.transaction():
            session.execute(f"LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE")
            yield seconds

    def _hasty(self, seconds: float) -> Iterator[float]:
        """Cancel what takes longer than 50 ms where nobody has set anything else."""
        self.server.set("statement_timeout", "50ms")
        yield seconds
        self.server.set("statement_timeout", None)

    # --- F10: no space ----------------------------------------------------------------

    def _full_disk(self, seconds: float) -> Iterator[float]:
        disk = self.server.disk
        if disk is None:
            raise ValueError("full_disk needs a server with a disk of its own")
        disk.fill()
        yield seconds
        disk.free()

    def _full_wal(self, seconds: float) -> Iterator[float]:
        """The server panics, and cannot recover before there is space again."""
        wal = self.server.wal
        if wal is None:
            raise ValueError("full_wal needs a server with a place for its log")
        wal.fill()
        with ExitStack() as stack:
            stack.callback(self.server.revive)
            stack.callback(wal.free)
            try:
                with self.server.session() as session:
                    # What was written before is used again until there is no more.
                    for _ in range(_MOST_SWITCHES):
                        session.execute("SELECT pg_switch_wal()")
                        session.execute("SELECT pg_logical_emit_message(true, '', '')")
            except psycopg.OperationalError:
                pass
            yield seconds

    # --- F12: the network -------------------------------------------------------------

    @property
    def _network(self) -> FaultProxy:
        if self.proxy is None:
            raise ValueError("faults of the network need a proxy")
        return self.proxy

    def _delay(self, seconds: float) -> Iterator[float]:
        self._network.delay(DELAY_SECONDS)
        return self._heal_after(seconds)

    def _freeze(self, seconds: float) -> Iterator[float]:
        self._network.freeze()
        return self._heal_after(seconds)

    def _drop_questions(self, seconds: float) -> Iterator[float]:
        self._network.drop("to server")
        return self._heal_after(seconds)

    def _drop_answers(self, seconds: float) -> Iterator[float]:
        self._network.drop("to client")
        return self._heal_after(seconds)

    def _heal_after(self, seconds: float) -> Iterator[float]:
        yield seconds
        self._network.heal()

    def _cut(self, seconds: float) -> Iterator[float]:
        self._network.cut()
        yield seconds

    def _tear(self, seconds: float) -> Iterator[float]:
        self._network.tear()
        yield seconds

    def _cut_commits(self, seconds: float) -> Iterator[float]:
        self._network.cut_commits(COMMITS)
        yield seconds
        self._network.cut_commits(0)

    # --- F13: the pooler --------------------------------------------------------------

    def _kill_pooler(self, seconds: float) -> Iterator[float]:
        return self._end_pooler(signal.SIGKILL, seconds)

    def _pooler_away(self, seconds: float) -> Iterator[float]:
        return self._end_pooler(signal.SIGTERM, seconds)

    def _end_pooler(self, number: signal.Signals, seconds: float) -> Iterator[float]:
        if self.pooler is None:
            raise ValueError("there is no pooler to end")
        self.pooler.end(number)
        yield seconds
        self.pooler.start()
