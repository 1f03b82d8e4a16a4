"""Which of the instants that have passed are run, and which are missed. Pure.

Source: docs/explanation/schedules.md, "Late, missed and caught up".
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, Literal, get_args
from zoneinfo import ZoneInfo

from relay.exceptions import ScheduleError
from relay.scheduler.cron import CronSpec, Survey, occurrences, survey

__all__ = [
    "BATCH",
    "LONGEST_WINDOW",
    "POLICIES",
    "CatchUpPolicy",
    "Decision",
    "decide",
    "first_after",
    "on_time",
]

CatchUpPolicy = Literal["none", "latest", "all"]
POLICIES: Final[tuple[str, ...]] = get_args(CatchUpPolicy)

# Occurrences of one schedule in one transaction and one tick: about 0.2 s.
BATCH: Final = 500

# Occurrence rows are kept for 32 days (engine/prune.py) and are what keeps an instant
# from being run twice, so nothing older is ever caught up.
LONGEST_WINDOW: Final = timedelta(days=31)

# A deploy or a failover is not an outage: what is found within this time is current,
# whatever the policy says. Five fields are never due twice in a minute, so that this
# is one run at most; with seconds it is a short burst. Source: failure 11.
ON_TIME: Final = timedelta(seconds=60)
ON_TIME_WITH_SECONDS: Final = timedelta(seconds=10)

_MICROSECOND: Final = timedelta(microseconds=1)
_SECOND: Final = timedelta(seconds=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What becomes of the instants up to now.

    Attributes:
        fire: those to run, rising.
        missed: those that are not run; all of them lie before those to run.
        next_due_at: where to go on; at or before now if fire was cut at its limit.
    """

    fire: tuple[datetime, ...]
    missed: Survey
    next_due_at: datetime


def on_time(spec: CronSpec) -> timedelta:
    """Return how late an occurrence may be found and still count as current."""
    return ON_TIME_WITH_SECONDS if spec.has_seconds else ON_TIME


def decide(
    spec: CronSpec,
    zone: ZoneInfo,
    *,
    next_due_at: datetime,
    now: datetime,
    catch_up: str,
    window: timedelta,
    limit: int = BATCH,
) -> Decision:
    """Decide about the instants from next_due_at to now, both inclusive.

    Where the first of them is found on time, all are run. Else no scheduler ran for
    a while, and the policy holds: none runs the newest only if that is on time;
    latest runs the newest, all runs every one, if inside the window.

    Args:
        catch_up: none, latest or all.
        window: how far back from now the policy reaches.
        limit: how many to run at most; the rest follows with the next decision.

    Raises:
        ScheduleError: the policy is unknown, or the schedule is never due again.
    """
    if catch_up not in POLICIES:
        raise ScheduleError(
            f"catch_up {catch_up!r} is not known: {', '.join(POLICIES)}"
        )
    before = next_due_at - _MICROSECOND
    if now - next_due_at <= on_time(spec):
        due = list(occurrences(spec, zone, after=before, until=now, limit=limit + 1))
        return _decision(spec, zone, due, Survey(0, None, None), now, limit)
    passed = survey(spec, zone, after=before, until=now)
    if passed.last is None:
        return _decision(spec, zone, [], passed, now, limit)
    reach = min(max(window, timedelta(0)), LONGEST_WINDOW)
    due = []
    if catch_up == "all":
        after = max(before, now - reach - _MICROSECOND)
        due = list(occurrences(spec, zone, after=after, until=now, limit=limit + 1))
    elif catch_up == "latest" and now - passed.last <= reach:
        due = [passed.last]
    if not due and now - passed.last <= on_time(spec):
        due = [passed.last]
    missed = passed
    if due:
        missed = survey(spec, zone, after=before, until=due[0] - _SECOND)
    return _decision(spec, zone, due, missed, now, limit)


def _decision(
    spec: CronSpec,
    zone: ZoneInfo,
    due: list[datetime],
    missed: Survey,
    now: datetime,
    limit: int,
) -> Decision:
    next_due_at = due[limit] if len(due) > limit else first_after(spec, zone, now)
    return Decision(fire=tuple(due[:limit]), missed=missed, next_due_at=next_due_at)


def first_after(spec: CronSpec, zone: ZoneInfo, now: datetime) -> datetime:
    """Return the first instant after now.

    Raises:
        ScheduleError: there is none before the year 9990.
    """
    for instant in occurrences(spec, zone, after=now, limit=1):
        return instant
    raise ScheduleError(f"{spec.expression!r} is never due again")
