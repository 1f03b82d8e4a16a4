"""What a judge says of a run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

__all__ = ["FINAL", "SHOWN", "Findings", "Violation", "percentile"]

FINAL: Final = frozenset({"completed", "failed", "cancelled"})
# What a run shows as its own: the first violations, each with the job's history.
SHOWN: Final = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """A broken promise. `job` is None where no single job is concerned."""

    rule: str
    text: str
    job: str | None = None

    def __str__(self) -> str:
        return f"{self.rule}: {self.text}" + (f" (job {self.job})" if self.job else "")


@dataclass(slots=True, kw_only=True)
class Findings:
    """What the checker made of a run."""

    violations: list[Violation] = field(default_factory=list)
    jobs: int = 0
    # Committed, and without a row.
    lost: int = 0
    # Jobs by what their producers know: ok, fail, unknown.
    ledger: Counter[str] = field(default_factory=Counter)
    occurrences: int = 0
    executions: int = 0
    # Executions beyond the first of each job, and the attempts that allow them: those
    # that failed and those that were cut short, started or not.
    extra: int = 0
    budget: int = 0
    # Executions beyond the first that no failure of the job's own explains; and the
    # attempts that struck owners held then, which allow them.
    duplicates: int = 0
    in_flight: int = 0
    # Seconds that jobs waited in their worker's hands, from claim to start.
    in_hand: list[float] = field(default_factory=list)
    # Attempts that ran to their end after their job had been taken from them.
    late: int = 0
    overlaps: int = 0
    # Attempts cut short by no fault that is known of: loss, release.
    unprovoked: Counter[str] = field(default_factory=Counter)
    # Rows that transactional jobs wrote.
    written: int = 0
    # Seconds from the strike until a job in flight there was ready again, by fault.
    ready_again: dict[str, list[float]] = field(default_factory=dict)
    # Those that were ready later than lease + 2 s, counted from the strike or from
    # when some keeper had been sound for a lease.
    overdue: list[Violation] = field(default_factory=list)

    def rules(self) -> Counter[str]:
        return Counter(violation.rule for violation in self.violations)


def percentile(values: Iterable[float], share: float) -> float:
    """Return the smallest value that `share` of the values do not exceed."""
    ordered = sorted(values)
    if not ordered:
        return 0.0
    return ordered[max(0, min(len(ordered) - 1, int(share * len(ordered) - 1e-9)))]
