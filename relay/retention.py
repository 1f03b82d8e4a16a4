"""How long ended jobs, and their results, are kept. Pure: no database, no clock."""

from __future__ import annotations

from dataclasses import dataclass, fields
from datetime import timedelta
from enum import Enum
from typing import Final, Literal

from relay.exceptions import ArgumentError

__all__ = ["DEFAULT", "Default", "EndState", "Retention"]

EndState = Literal["completed", "failed", "cancelled"]


class Default(Enum):
    """Stands for what the settings say, where None has a meaning of its own."""

    DEFAULT = "default"


DEFAULT: Final = Default.DEFAULT


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """How long jobs are kept after their end, by how they ended.

    None keeps them for ever and 0 not at all. What is left out is as the queue, and
    then the settings, say.

    Attributes:
        completed, failed, cancelled: the job, with its attempts and history.
        result: of a completed job, its result; None keeps it as long as the job, and 0
            does not store it.
    """

    completed: timedelta | Default | None = DEFAULT
    failed: timedelta | Default | None = DEFAULT
    cancelled: timedelta | Default | None = DEFAULT
    result: timedelta | Default | None = DEFAULT

    def __post_init__(self) -> None:
        for field in fields(self):
            check(field.name, getattr(self, field.name))

    @classmethod
    def of(cls, given: object) -> Retention:
        """Return what an option says: a Retention, or that of completed jobs alone.

        Raises:
            ArgumentError: it is no Retention, timedelta of 0 or more, or None.
        """
        if isinstance(given, Retention):
            return given
        check("retention", given)
        return cls(completed=given)  # type: ignore[arg-type] # checked

    def within(self, outer: Retention) -> Retention:
        """Return this one, with what it leaves out as outer says."""
        return Retention(
            completed=outer.completed if self.completed is DEFAULT else self.completed,
            failed=outer.failed if self.failed is DEFAULT else self.failed,
            cancelled=outer.cancelled if self.cancelled is DEFAULT else self.cancelled,
            result=outer.result if self.result is DEFAULT else self.result,
        )


def check(name: str, keep: object) -> None:
    if keep is None or isinstance(keep, Default):
        return
    if not isinstance(keep, timedelta) or keep < timedelta(0):
        raise ArgumentError(
            f"{name}={keep!r}: give a timedelta of 0 or more, or None to keep for ever"
        )
