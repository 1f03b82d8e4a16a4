"""What has become of jobs, by the minute and by the hour: for charts and tables.

Workers add to it every ten seconds, so pruning jobs erases no history. Minutes are kept
for 72 hours, hours for 90 days.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any, Final, NamedTuple

from relay.buckets import STAT_BOUNDS, quantile
from relay.engine.connection import fetch_all
from relay.exceptions import ArgumentError

__all__ = [
    "Activity",
    "Durations",
    "Totals",
    "read_activity",
    "read_last",
    "read_series",
    "read_totals",
]

_EMPTY: Final = (0,) * (len(STAT_BOUNDS) + 1)
_MINUTE: Final = timedelta(minutes=1)
_HOUR: Final = timedelta(hours=1)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
# Of one series; more than that no chart can show.
MOST_POINTS: Final = 5_000


def _sums(column: str) -> str:
    places = range(1, len(_EMPTY) + 1)
    return f"ARRAY[{', '.join(f'sum({column}[{place}])' for place in places)}]::int8[]"


_COLUMNS: Final = (
    "outcome, sum(count)::int8, sum(run_seconds), sum(wait_seconds), "
    f"{_sums('run_buckets')}, {_sums('wait_buckets')}"
)
_WHERE: Final = """
WHERE seconds = %(seconds)s AND at >= %(since)s AND at < %(until)s
  AND (%(queue)s::text IS NULL OR queue = %(queue)s)
  AND (%(task)s::text IS NULL OR task = %(task)s)
"""

# Index: relay_stat_place_idx.
SERIES: Final = f"""
SELECT date_bin(%(step)s::interval, at, %(since)s) AS start, {_COLUMNS}
FROM relay_stat {_WHERE} GROUP BY start, outcome ORDER BY start
"""  # noqa: S608 - constants only
TOTALS: Final = f"""
SELECT queue, task, {_COLUMNS}
FROM relay_stat {_WHERE} GROUP BY queue, task, outcome ORDER BY queue, task
"""  # noqa: S608 - constants only
# Parts of time, by the minute or by the hour: each a range of the index.
LAST: Final = f"""
SELECT part.place, {_COLUMNS}
FROM unnest(%(places)s::int[], %(units)s::int2[], %(begins)s::timestamptz[],
            %(ends)s::timestamptz[]) AS part(place, unit, begins, ends)
CROSS JOIN LATERAL (
    SELECT * FROM relay_stat
    WHERE seconds = part.unit AND at >= part.begins AND at < part.ends
) AS stat
GROUP BY part.place, outcome
"""  # noqa: S608 - constants only
ACTIVITY: Final = f"""
SELECT queue, date_bin(%(step)s::interval, at, %(since)s) AS start, outcome,
       sum(count)::int8
FROM relay_stat {_WHERE} GROUP BY queue, start, outcome
"""  # noqa: S608 - constants only


@dataclass(frozen=True, slots=True, kw_only=True)
class Durations:
    """How long many attempts took, or had waited.

    Attributes:
        seconds: all of them together.
        buckets: how many were how long, by relay.buckets.STAT_BOUNDS.
    """

    seconds: float = 0.0
    buckets: Sequence[int] = _EMPTY

    @property
    def mean(self) -> float | None:
        """Seconds of one on average; None of none."""
        count = sum(self.buckets)
        return self.seconds / count if count else None

    def quantile(self, share: float) -> float | None:
        """Return below how many seconds this share of them lies; None of none.

        Buckets double in width: it is off by less than half of what it says. Above 70
        minutes it says so many.
        """
        return quantile(self.buckets, share)

    def __add__(self, other: Durations) -> Durations:
        return Durations(
            seconds=self.seconds + other.seconds,
            buckets=[a + b for a, b in zip(self.buckets, other.buckets, strict=True)],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """What became of jobs in one stretch of time.

    Attributes:
        at: when it begins; queue, task: whose jobs; None where of all of them.
        counts: attempts by outcome: completed, failed, cancelled, retried, snoozed.
        run: of the attempts that had started.
        wait: the same, from when their jobs were due to their claims.
    """

    at: datetime
    queue: str | None
    task: str | None
    counts: Mapping[str, int] = field(default_factory=dict)
    run: Durations = field(default_factory=Durations)
    wait: Durations = field(default_factory=Durations)

    @property
    def finished(self) -> int:
        """How many jobs ended for good."""
        return sum(self.counts.get(n, 0) for n in ("completed", "failed", "cancelled"))


class Activity(NamedTuple):
    """How many attempts of one queue ended how, in one step.

    Attributes:
        at: when the step begins.
        outcome: completed, failed, cancelled, retried or snoozed.
    """

    queue: str
    at: datetime
    outcome: str
    attempts: int


def read_series(
    *,
    using: str,
    since: datetime,
    until: datetime,
    step: timedelta = _MINUTE,
    queue: str | None = None,
    task: str | None = None,
) -> list[Totals]:
    """Return one Totals a step, the first at since; also of steps without jobs.

    Args:
        since, until: in whole minutes, or whole hours where the step is of hours.
        step: whole minutes, read from the last 72 hours, or whole hours, from 90 days.

    Raises:
        ArgumentError: the step is neither, or there would be more than 5,000.

    Transaction: one statement on Django's connection.
    """
    if step < _MINUTE or step % _MINUTE or (step > _HOUR and step % _HOUR):
        raise ArgumentError(
            f"step={step!r}: give whole minutes up to an hour, or whole hours"
        )
    count = -((since - until) // step)
    if count > MOST_POINTS:
        raise ArgumentError(
            f"{count} steps of {step} from {since} to {until}: ask for at most "
            f"{MOST_POINTS}, by a longer step or a later since"
        )
    values = _values(_HOUR if step % _HOUR == timedelta(0) else _MINUTE, locals())
    found: dict[datetime, list[Any]] = {}
    for at, *row in fetch_all(SERIES, values, using=using):
        found.setdefault(_aware(at), []).append(row)
    starts = [since + step * place for place in range(max(0, count))]
    return [_totals(at, queue, task, found.get(at, [])) for at in starts]


def read_totals(
    *,
    using: str,
    since: datetime,
    until: datetime,
    queue: str | None = None,
    task: str | None = None,
) -> list[Totals]:
    """Return one Totals for each queue and task with jobs in this time, by their names.

    Up to 72 hours it is read by the minute, a longer time by the hour.

    Transaction: one statement on Django's connection.
    """
    step = _MINUTE if until - since <= timedelta(hours=72) else _HOUR
    values = _values(step, locals())
    found: dict[tuple[str, str], list[Any]] = {}
    for queue_name, task_name, *row in fetch_all(TOTALS, values, using=using):
        found.setdefault((queue_name, task_name), []).append(row)
    return [_totals(since, *names, rows) for names, rows in found.items()]


def read_last(
    *, using: str, until: datetime, spans: Sequence[timedelta]
) -> list[Totals]:
    """Return what became of all jobs within each of these spans up to one instant.

    Whole hours are read by the hour, and by the minute what is left at their ends.

    Args:
        spans: the longest first, each of up to 72 hours.

    Transaction: one statement on Django's connection.
    """
    begins = [until - span for span in spans]
    parts = [
        (place, *part)
        for place, (begin, end) in enumerate(pairwise([*begins, until]))
        for part in _parts(begin, end)
    ]
    names = ("places", "units", "begins", "ends")
    values = {
        name: list(each)
        for name, each in zip(names, zip(*parts, strict=True), strict=True)
    }
    rows = fetch_all(LAST, values, using=using)
    return [
        _totals(begin, None, None, [row for at, *row in rows if at >= place])
        for place, begin in enumerate(begins)
    ]


def _parts(begin: datetime, end: datetime) -> Iterator[tuple[int, datetime, datetime]]:
    """Give the parts of a time: how long their rows are in seconds, from when to when.

    Its whole hours are one; those of a time without any are minutes alone.
    """
    first = begin + -(begin - _EPOCH) % _HOUR
    last = end - (end - _EPOCH) % _HOUR
    if first >= last:
        yield _MINUTE.seconds, begin, end
        return
    yield _MINUTE.seconds, begin, first
    yield _HOUR.seconds, first, last
    yield _MINUTE.seconds, last, end


def read_activity(
    *, using: str, since: datetime, until: datetime, step: timedelta = _MINUTE
) -> list[Activity]:
    """Return how many attempts of each queue ended how in each step; none of none.

    Args:
        since, until, step: as for read_series, by the minute.

    Transaction: one statement on Django's connection.
    """
    queue = task = None
    values = _values(_MINUTE, locals())
    return [
        Activity(name, _aware(at), outcome, count)
        for name, at, outcome, count in fetch_all(ACTIVITY, values, using=using)
    ]


def _values(unit: timedelta, given: Mapping[str, Any]) -> dict[str, Any]:
    names = ("since", "until", "step", "queue", "task")
    return {name: given.get(name) for name in names} | {"seconds": unit.seconds}


def _aware(at: datetime) -> datetime:
    return at if at.tzinfo else at.replace(tzinfo=UTC)


def _totals(
    at: datetime, queue: str | None, task: str | None, rows: Sequence[Sequence[Any]]
) -> Totals:
    run = wait = Durations()
    counts: Counter[str] = Counter()
    for outcome, count, run_s, wait_s, ran, waited in rows:
        counts[outcome] += count
        run += Durations(seconds=run_s, buckets=ran)
        wait += Durations(seconds=wait_s, buckets=waited)
    return Totals(at=at, queue=queue, task=task, counts=counts, run=run, wait=wait)
