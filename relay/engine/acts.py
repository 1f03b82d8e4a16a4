"""What the acts of an operator have in common: their report."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from uuid import UUID

from relay.exceptions import StateConflict

__all__ = ["ActReport", "Why", "only", "written"]

Why = Mapping[str, str]
"""What a job's history tells of an act besides the actor, by name: each job has it."""


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


def written(why: Why | None) -> str | None:
    """Return it as JSON for relay_history.detail; None where nothing is to be told."""
    return json.dumps(dict(why)) if why else None
