"""What the acts of an operator have in common: their report."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from relay.exceptions import StateConflict

__all__ = ["ActReport", "only"]


@dataclass(frozen=True, slots=True)
class ActReport:
    """What an act over many jobs came to.

    Attributes:
        done: the jobs that were changed, in the order of their ids.
        skipped: why each of the others was not: what the act on it alone would raise.
        asked: running jobs whose workers were asked to stop them.
    """

    done: tuple[UUID, ...]
    skipped: tuple[StateConflict, ...]
    asked: tuple[UUID, ...] = ()


def only(report: ActReport) -> None:
    """Raise why the act on a single job did nothing, if so."""
    if report.skipped:
        raise report.skipped[0]
