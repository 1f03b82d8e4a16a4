"""Which of the instants that have passed are run, and which are missed. Pure.

Source: docs/explanation/schedules.md, "Late, missed and caught up".
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, Literal, get_args

from relay.exceptions import ScheduleError
from relay.scheduler.cron import Survey
from relay.scheduler.timetable import Timetable

__all__ = [
    "BATCH",
    "LONGEST_WINDOW",
    "POLICIES",
    "CatchUpPolicy",
    "Decision",
    "decide",
]

CatchUpPolicy = Literal["none", "latest", "all"]
POLICIES: Final[tuple[str, ...]] = get_args(CatchUpPolicy)

# Occurrences of one schedule in one transaction and one tick: about 0.2 s.
BATCH: Final = 500

# Occurrence rows are kept for 32 days (engine/prune.py) and are what keeps an instant
# from being run twice, so nothing older is ever caught up.
LONGEST_WINDOW: Final = timedelta(days=31)

_MICROSECOND: Final = timedelta(microseconds=1)
_SECOND: Final = timedelta(seconds=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What becomes of the instants up to now.

    Attributes:
        fire: those to run, rising.
        missed: those that are not run; all of them lie before those to run.
        next_due_at: where to go on; at or before now if fire was cut at its limit, None
            if nothing is due any more.
    """

    fire: tuple[datetime, ...]
    missed: Survey
    next_due_at: datetime | None


def decide(
    timetable: Timetable,
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
        ScheduleError: the policy is unknown.
    """
    if catch_up not in POLICIES:
        raise ScheduleError(
            f"catch_up {catch_up!r} is not known: {', '.join(POLICIES)}"
        )
    before = next_due_at - _MICROSECOND
    if now - next_due_at <= timetable.on_time:
        due = list(timetable.occurrences(after=before, until=now, limit=limit + 1))
        return _decision(timetable, due, Survey(0, None, None), now, limit)
    passed = timetable.survey(after=before, until=now)
    if passed.last is None:
        return _decision(timetable, [], passed, now, limit)
    reach = min(max(window, timedelta(0)), LONGEST_WINDOW)
    due = []
    if catch_up == "all":
        after = max(before, now - reach - _MICROSECOND)
        due = list(timetable.occurrences(after=after, until=now, limit=limit + 1))
    elif catch_up == "latest" and now - passed.last <= reach:
        due = [passed.last]
    if not due and now - passed.last <= timetable.on_time:
        due = [passed.last]
    missed = passed
    if due:
        missed = timetable.survey(after=before, until=due[0] - _SECOND)
    return _decision(timetable, due, missed, now, limit)


def _decision(
    timetable: Timetable,
    due: list[datetime],
    missed: Survey,
    now: datetime,
    limit: int,
) -> Decision:
    next_due_at = due[limit] if len(due) > limit else timetable.first_after(now)
    return Decision(fire=tuple(due[:limit]), missed=missed, next_due_at=next_due_at)
