"""A simulated year: four schedulers, fifty schedules, a clock that is turned."""

from __future__ import annotations

import random
import signal
import time
from collections import defaultdict
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final
from uuid import UUID

import psycopg

from relay.ids import uuid7
from tests.chaos.campaign import REPOSITORY
from tests.chaos.cluster import Cluster
from tests.chaos.supervisor import Owned, Supervisor
from tests.chaos.timing import clock
from tests.chaos.timing.almanac import FIFTY, Plan, changes, due
from tests.chaos.timing.judge import Fired, Missed, judge

__all__ = ["Year"]

SCHEDULERS: Final = 4
# Around a change of any clock the harness stops at every instant that is due, just
# before it; elsewhere at random, and what has passed meanwhile is caught up.
_FINE: Final = timedelta(hours=15)
_BEFORE: Final = timedelta(milliseconds=10)
_LONGEST_HOURS: Final = 24
_SETTLED_WITHIN_SECONDS: Final = 60.0
_KILL_SECONDS: Final = 2.5
_CUT_SECONDS: Final = 1.0

_RECORD: Final = """
CREATE TABLE chaos_fired (
    job uuid NOT NULL, schedule uuid NOT NULL, due_at timestamptz NOT NULL,
    at timestamptz NOT NULL
);
CREATE FUNCTION chaos_fired() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO chaos_fired
    VALUES (NEW.id, NEW.schedule_id, NEW.occurrence_at, turned.clock_timestamp());
    RETURN NULL;
END
$$;
CREATE TRIGGER chaos_fired AFTER INSERT ON relay_job
FOR EACH ROW EXECUTE FUNCTION chaos_fired();
"""
_ADD: Final = """
INSERT INTO relay_schedule
    (id, name, task, args, cron, timezone, catch_up, catch_up_window_ms)
VALUES (%(id)s, %(name)s, 'chaos:nothing', '{}', %(cron)s, %(zone)s, %(catch_up)s,
    31 * 86400000::bigint)
"""
_LEFT: Final = """
SELECT count(*) FROM relay_schedule
WHERE next_due_at IS NULL OR next_due_at <= turned.clock_timestamp()
"""
_CUT: Final = """
SELECT pg_terminate_backend(pid) FROM pg_stat_activity
WHERE datname = current_database() AND application_name LIKE 'relay %%'
ORDER BY md5(pid::text || %(dice)s) LIMIT 1
"""
_FIRED: Final = """
SELECT fired.schedule, fired.due_at, fired.at, occurrence.job_id IS NOT NULL
FROM chaos_fired AS fired LEFT JOIN relay_occurrence AS occurrence
    ON occurrence.schedule_id = fired.schedule AND occurrence.due_at = fired.due_at
    AND occurrence.job_id = fired.job AND occurrence.state = 'fired'
"""
_MISSED: Final = """
SELECT schedule_id, due_at, until_at, count FROM relay_occurrence
WHERE state = 'missed'
"""


class Year:
    """One stretch of simulated time in a database of its own.

    Attributes:
        violations: what was wrong, a line each.
        fired, passed: how many occurrences got a job, or were passed over by policy.
        stops: at how many instants the clock was stopped.
    """

    def __init__(
        self,
        cluster: Cluster,
        folder: Path,
        begin: datetime,
        end: datetime,
        rng: random.Random,
    ) -> None:
        self._cluster = cluster
        self._begin, self._end = begin, end
        self._rng = rng
        self._database = folder.name.replace("-", "_")
        self._supervisor = Supervisor(
            folder,
            {
                **cluster.environment(self._database),
                "DJANGO_SETTINGS_MODULE": "tests.chaos.settings",
                "PYTHONPATH": str(REPOSITORY),
                "RELAY_CHAOS_CODE": str(REPOSITORY),
                "RELAY_CHAOS_EFFECTS": str(folder / "effects.txt"),
            },
        )
        self._schedulers: list[Owned] = []
        self._struck_at = self._cut_at = 0.0
        self._ids = {plan: uuid7() for plan in FIFTY}
        self.violations: list[str] = []
        self.fired = self.passed = self.stops = self.kills = self.cuts = 0

    def go(self) -> None:
        """Let the time pass, and judge what came of it."""
        self._cluster.create(self._database)
        with self._cluster.connect(self._database) as connection:
            clock.install(connection, self._database)
        self._supervisor.run("migrate", ["django", "migrate", "-v0"])
        with self._cluster.connect(self._database) as connection:
            connection.execute(_RECORD)
            # What migrate has found declared in the workload of other campaigns.
            connection.execute("DELETE FROM relay_schedule")
            clock.turn_to(connection, self._begin)
            for plan in FIFTY:
                self._add(connection, plan)
            try:
                self._pass(connection)
            finally:
                self._supervisor.close()
            self._judge(connection)

    def _add(self, connection: psycopg.Connection[Any], plan: Plan) -> None:
        connection.execute(
            _ADD,
            {
                "id": self._ids[plan],
                "name": plan.name,
                "cron": plan.expression,
                "zone": plan.zone,
                "catch_up": plan.catch_up,
            },
        )

    def _pass(self, connection: psycopg.Connection[Any]) -> None:
        self._schedulers = [
            self._supervisor.start(
                f"scheduler{number}", ["tests.chaos.timing.scheduler"]
            )
            for number in range(SCHEDULERS)
        ]
        self._settle(connection)
        for instant in self._instants():
            clock.turn_to(connection, instant)
            self.stops += 1
            self._strike(connection)
            if not self._settle(connection):
                return

    def _instants(self) -> Iterator[datetime]:
        """Yield where to stop the clock, rising."""
        fine = [
            (change - _FINE, change + _FINE)
            for change in changes(self._begin, self._end)
        ]
        every = sorted(
            {at for plan in FIFTY for at in due(plan, self._begin, self._end)}
        )
        at = self._begin
        for begin, end in [*fine, (self._end, self._end)]:
            while at < begin:
                hours = self._rng.uniform(0.2, _LONGEST_HOURS)
                at = min(at + timedelta(hours=hours), begin)
                yield at
            for instant in every:
                if at < instant <= end:
                    at = instant
                    yield max(instant - _BEFORE, self._begin)

    def _settle(self, connection: psycopg.Connection[Any]) -> bool:
        """Wait until nothing is due that has not been dealt with."""
        deadline = time.monotonic() + _SETTLED_WITHIN_SECONDS
        time.sleep(_BEFORE.total_seconds())
        while True:
            self._supervisor.tick()
            row = connection.execute(_LEFT).fetchone()
            if row is not None and not row[0]:
                return True
            if time.monotonic() > deadline:
                self.violations.append(
                    f"S2: at {clock.now(connection)} schedules are still due after "
                    f"{_SETTLED_WITHIN_SECONDS:.0f} s"
                )
                return False
            time.sleep(0.003)

    def _strike(self, connection: psycopg.Connection[Any]) -> None:
        """Kill a scheduler or cut its session, at any moment after the clock's."""
        now = time.monotonic()
        if now - self._struck_at > _KILL_SECONDS:
            self._struck_at = now
            time.sleep(self._rng.uniform(0, 0.05))
            victim = self._rng.choice(self._schedulers)
            if victim.is_up:
                self._supervisor.signal(victim, signal.SIGKILL)
                self.kills += 1
        elif now - self._cut_at > _CUT_SECONDS:
            self._cut_at = now
            time.sleep(self._rng.uniform(0, 0.05))
            connection.execute(_CUT, {"dice": str(self._rng.random())})
            self.cuts += 1

    def _judge(self, connection: psycopg.Connection[Any]) -> None:
        fired: dict[UUID, list[Fired]] = defaultdict(list)
        for schedule, *row in connection.execute(_FIRED):
            fired[schedule].append(Fired(*row))
        missed: dict[UUID, list[Missed]] = defaultdict(list)
        for schedule, *row in connection.execute(_MISSED):
            missed[schedule].append(Missed(*row))
        for plan in FIFTY:
            key = self._ids[plan]
            expected = due(plan, self._begin, self._end)
            self.violations += judge(plan.name, expected, fired[key], missed[key])
            self.fired += len(fired[key])
            self.passed += sum(stretch.count for stretch in missed[key])
            if plan.catch_up == "all" and missed[key]:
                self.violations.append(f"S2: {plan.name}: {missed[key][0]} was missed")
