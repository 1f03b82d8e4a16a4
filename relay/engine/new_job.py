"""What an enqueue gives the engine, and what may stand in its way."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple
from uuid import UUID

from relay.unique import UniqueKey

__all__ = ["COPIED_COLUMNS", "COPY_ROWS", "KeyHolder", "NewJob", "copy_line"]

_MILLISECOND: Final = timedelta(milliseconds=1)
_NO_DELAY: Final = timedelta(0)
# In the order of NewJob.copied().
COPIED_COLUMNS: Final = (
    "state, run_at, timeout_ms, deadline_at, meta, tags, schedule_id, occurrence_at, "
    "replay_of"
)

# Rows sent to COPY at once. The server takes in one block while the next is made.
COPY_ROWS: Final = 50


def copy_line(
    job_id: UUID, task: str, queue: str, priority: int, max_retries: int, args: str
) -> str:
    """Return the beginning of a row as COPY reads it: write_row() takes twice as long.

    Of what has to be escaped there only a backslash can stand in a row: names have no
    white space, and in JSON text the control characters are escaped.
    """
    line = f"{job_id.hex}\t{task}\t{queue}\t{priority}\t{max_retries}\t{args}"
    return line.replace("\\", "\\\\") if "\\" in line else line


class NewJob(NamedTuple):
    """A job to insert; every value has been checked. Give them by name.

    A tuple: one is made for each job of a bulk, in a quarter of a dataclass's time.

    Attributes:
        args: the JSON text of the arguments, from codec.encode_arguments.
        run_at: due then; run_in: due that long from now, by the database's clock. At
            most one of the two; with neither, or a time that has come, ready now.
        deadline: never starts later; deadline_in: the same from now, by the database's
            clock. At most one of the two.
        meta: JSON text.
        unique: the key that no other job may hold, if any.
    """

    id: UUID
    task: str
    queue: str
    args: str
    max_retries: int
    priority: int = 0
    run_at: datetime | None = None
    run_in: timedelta | None = None
    timeout: timedelta | None = None
    deadline: datetime | None = None
    deadline_in: timedelta | None = None
    meta: str | None = None
    tags: tuple[str, ...] = ()
    schedule_id: UUID | None = None
    occurrence_at: datetime | None = None
    replay_of: UUID | None = None
    unique: UniqueKey | None = None

    @property
    def timeout_ms(self) -> int | None:
        """The timeout as its column has it."""
        return None if self.timeout is None else self.timeout // _MILLISECOND

    def due_at(self, now: datetime) -> datetime:
        """Return when the job is due; now is the database's."""
        if self.run_at is not None:
            return self.run_at
        return now if self.run_in is None else now + max(self.run_in, _NO_DELAY)

    def copied(self, due_at: datetime, now: datetime) -> tuple[Any, ...]:
        """Return what COPIED_COLUMNS name, for COPY; now is the database's."""
        return (
            "scheduled" if due_at > now else "queued",
            due_at,
            self.timeout_ms,
            self.deadline if self.deadline_in is None else now + self.deadline_in,
            self.meta,
            list(self.tags) or None,
            self.schedule_id,
            self.occurrence_at,
            self.replay_of,
        )

    @property
    def is_plain(self) -> bool:
        """Whether the job is ready now and says nothing a short statement cannot."""
        return (
            self.run_at is None
            and self.run_in is None
            and self.timeout is None
            and self.deadline is None
            and self.deadline_in is None
            and self.meta is None
            and not self.tags
            and self.schedule_id is None
            and self.occurrence_at is None
            and self.replay_of is None
        )


@dataclass(frozen=True, slots=True)
class KeyHolder:
    """The job that holds a unique key another was to be enqueued with."""

    id: UUID
    task: str
