"""What must hold of the occurrences of one schedule (S1 to S3, S5)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

__all__ = ["Fired", "Missed", "judge"]


@dataclass(frozen=True, slots=True)
class Fired:
    """A job that was inserted, as a trigger saw it.

    Attributes:
        due_at: the occurrence that it is for.
        at: when it was inserted, by the database's clock.
        is_recorded: whether the row of the occurrence names this job.
    """

    due_at: datetime
    at: datetime
    is_recorded: bool = True


@dataclass(frozen=True, slots=True)
class Missed:
    """A stretch of occurrences that were not run on purpose; both ends included."""

    first: datetime
    last: datetime
    count: int


def judge(
    name: str,
    expected: Sequence[datetime],
    fired: Sequence[Fired],
    missed: Sequence[Missed] = (),
) -> Iterator[str]:
    """Yield what is wrong, a line each.

    Args:
        expected: every instant that was due, by the independent generator.
        missed: none where the policy runs every occurrence.
    """
    wanted = set(expected)
    ran = Counter(one.due_at for one in fired)
    passed: Counter[datetime] = Counter()
    for stretch in missed:
        held = [at for at in expected if stretch.first <= at <= stretch.last]
        passed.update(held)
        if len(held) != stretch.count:
            yield (
                f"S2: {name}: {stretch.count} recorded as missed from "
                f"{stretch.first} to {stretch.last}, {len(held)} were due"
            )
    for one in fired:
        if one.at < one.due_at:
            yield f"S5: {name}: {one.due_at} fired early, at {one.at}"
        if not one.is_recorded:
            yield f"S1: {name}: a job for {one.due_at} has no row of its occurrence"
    for due_at, count in sorted((ran + passed).items()):
        if due_at not in wanted:
            yield f"S3: {name}: {due_at} fired, and is not due"
        if count > 1:
            yield f"S1: {name}: {due_at} was dealt with {count} times"
    for due_at in expected:
        if due_at not in ran and due_at not in passed:
            yield f"S2: {name}: {due_at} never fired"
