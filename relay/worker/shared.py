"""Memory that a worker's parent, keeper and children share.

The parent maps it before it forks and keeps it, so what a process wrote outlives it,
and a new keeper finds what the old one knew.
"""

from __future__ import annotations

import mmap
import struct
import time
from collections import deque
from collections.abc import Iterator
from typing import Final, NamedTuple
from uuid import UUID

__all__ = ["SharedState", "SlotTable", "Started"]

_CELL: Final = struct.Struct("=d")
# Until when the leases hold, when the keeper last went round, whether all is quiet,
# when the parent last went round.
_CELLS: Final = 4
# Of a child: worker id, whether it is registered, whether a job of its has or had a
# timeout, when its loop last went round.
_HEADER: Final = struct.Struct("=16sBBxxxxxxd")
# Of a started attempt: job id, attempt, from when its process may be killed for it,
# what then becomes of it, and the byte that makes the entry count. Each number stands
# on its natural boundary: it is written and read whole.
_ENTRY: Final = struct.Struct("=16sixxxxdddBxxxxxxx")
_LIMIT: Final = struct.Struct("=ddd")
_LIMIT_AT: Final = 24
_FLAG: Final = 48
_HAS_LIMITS: Final = 17
_RUNS: Final = 1
_IS_OVER: Final = 2


class Started(NamedTuple):
    """An attempt that was started, and whose end is not in the database yet.

    Attributes:
        kill_at: from when its process may be killed for it, by the monotonic clock; 0
            where it has no timeout.
        verdict: what becomes of the job then, as stuck.py writes it.
        is_over: whether the handler has ended, or runs in a process apart.
    """

    job_id: UUID
    attempt: int
    kill_at: float
    verdict: tuple[float, float]
    is_over: bool

    def is_late(self, now: float) -> bool:
        """Tell whether its process may be killed for it."""
        return not self.is_over and 0 < self.kill_at <= now


class SlotTable:
    """One child's part: who it is, and the attempts it has started.

    Only the child writes entries and its tick; only the keeper marks it registered;
    the parent resets it between two children.
    """

    def __init__(
        self,
        memory: memoryview,
        capacity: int,
        lease_cell: memoryview,
        quiet_cell: memoryview,
    ) -> None:
        # A job starts only while the lease holds for this much longer.
        self.reserve_seconds = 0.0
        self._memory = memory
        self._lease_cell = lease_cell
        self._quiet_cell = quiet_cell
        self._capacity = capacity
        self._free = self._all_entries()

    @classmethod
    def size_bytes(cls, capacity: int) -> int:
        """Return the bytes a table of this many entries takes."""
        return _HEADER.size + capacity * _ENTRY.size

    def reset(self, worker_id: UUID) -> None:
        """Forget everything, for a new child under this id."""
        self._memory[:] = bytes(len(self._memory))
        self._memory[:16] = worker_id.bytes
        self._free = self._all_entries()

    def _all_entries(self) -> deque[int]:
        return deque(
            _HEADER.size + place * _ENTRY.size for place in range(self._capacity)
        )

    @property
    def worker_id(self) -> UUID:
        """The id of the child the table belongs to now."""
        return UUID(bytes=bytes(self._memory[:16]))

    @property
    def is_registered(self) -> bool:
        """Whether the keeper has written the child's row: only then may it claim."""
        return self._memory[16] == 1

    def mark_registered(self) -> None:
        """Let the child claim."""
        self._memory[16] = 1

    def has_lease(self) -> bool:
        """Tell whether the leases surely hold now, so that a job may start.

        A process that was stopped wakes up with jobs that others may hold by now.
        """
        safe_until: float = _CELL.unpack(self._lease_cell)[0]
        return safe_until == 0 or time.monotonic() < safe_until - self.reserve_seconds

    @property
    def is_quiet(self) -> bool:
        """Whether the child is to claim nothing: somebody asked the worker for it."""
        return self._quiet_cell[0] == 1

    @property
    def ticked_at(self) -> float:
        """When the child's loop last went round, by the monotonic clock; 0 if never."""
        moment: float = _HEADER.unpack_from(self._memory)[3]
        return moment

    def tick(self, moment: float) -> None:
        """Say that the child's loop goes round."""
        _CELL.pack_into(self._memory, 24, moment)

    def begin(self, job_id: bytes, attempt: int) -> int:
        """Mark an attempt as started; return its entry for end().

        The byte that makes the entry count is written last: a process killed in
        between has not started the job.
        """
        entry = self._free.pop()
        _ENTRY.pack_into(self._memory, entry, job_id, attempt, 0.0, 0.0, 0.0, 0)
        self._memory[entry + _FLAG] = _RUNS
        return entry

    def limit(self, entry: int, kill_at: float, verdict: tuple[float, float]) -> None:
        """Say from when the process may be killed for a started attempt."""
        _LIMIT.pack_into(self._memory, entry + _LIMIT_AT, kill_at, *verdict)
        self._memory[_HAS_LIMITS] = 1

    @property
    def has_limits(self) -> bool:
        """Whether any attempt of this child's has, or had, a timeout."""
        return self._memory[_HAS_LIMITS] == 1

    def note_over(self, entry: int) -> None:
        """Say that this process is not to be killed for an attempt.

        Its handler has ended, or runs in a process apart.
        """
        self._memory[entry + _FLAG] = _IS_OVER

    def end(self, entry: int) -> None:
        """Forget a started attempt: its end is in the database, or it was given up."""
        self._memory[entry + _FLAG] = 0
        self._free.append(entry)

    @property
    def is_empty(self) -> bool:
        """Whether no attempt is started and not ended."""
        return not any(self._memory[_HEADER.size + _FLAG :: _ENTRY.size])

    def started(self) -> Iterator[tuple[UUID, int]]:
        """Return the attempts that were started and not ended."""
        return ((each.job_id, each.attempt) for each in self.entries())

    def entries(self) -> Iterator[Started]:
        """Return all that is known of them."""
        for job_id, attempt, kill_at, first, second, flag in _ENTRY.iter_unpack(
            self._memory[_HEADER.size :]
        ):
            if flag:
                yield Started(
                    UUID(bytes=job_id),
                    attempt,
                    kill_at,
                    (first, second),
                    flag == _IS_OVER,
                )


class SharedState:
    """The whole worker's shared memory: the keeper's cells, and a table a child.

    Args:
        file: a descriptor to map, for processes that no fork connects; whoever maps
            it second finds what is there. Unless given the memory is anonymous:
            inherited by fork, gone with the last process.
    """

    def __init__(self, processes: int, capacity: int, *, file: int = -1) -> None:
        each = SlotTable.size_bytes(capacity)
        cells = _CELLS * _CELL.size
        self._mapping = mmap.mmap(file, self.size_bytes(processes, capacity))
        view = memoryview(self._mapping)
        self._cells = view[:cells]
        self.tables = [
            SlotTable(
                view[start : start + each],
                capacity,
                view[: _CELL.size],
                view[2 * _CELL.size : 3 * _CELL.size],
            )
            for start in range(cells, cells + processes * each, each)
        ]

    @staticmethod
    def size_bytes(processes: int, capacity: int) -> int:
        """Return the bytes that it takes."""
        return _CELLS * _CELL.size + processes * SlotTable.size_bytes(capacity)

    @property
    def lease_safe_until(self) -> float:
        """Until when the leases surely hold, by the monotonic clock; 0 before any."""
        moment: float = _CELL.unpack_from(self._cells, 0)[0]
        return moment

    @lease_safe_until.setter
    def lease_safe_until(self, moment: float) -> None:
        _CELL.pack_into(self._cells, 0, moment)

    @property
    def keeper_ticked_at(self) -> float:
        """When the keeper's loop last went round, by the monotonic clock."""
        moment: float = _CELL.unpack_from(self._cells, _CELL.size)[0]
        return moment

    @keeper_ticked_at.setter
    def keeper_ticked_at(self, moment: float) -> None:
        _CELL.pack_into(self._cells, _CELL.size, moment)

    @property
    def is_quiet(self) -> bool:
        """Whether the children are to claim nothing; outlives each of them."""
        return self.tables[0].is_quiet

    @is_quiet.setter
    def is_quiet(self, is_quiet: bool) -> None:
        self._cells[2 * _CELL.size] = is_quiet

    @property
    def parent_ticked_at(self) -> float:
        """When the parent's loop last went round, by the monotonic clock."""
        moment: float = _CELL.unpack_from(self._cells, 3 * _CELL.size)[0]
        return moment

    @parent_ticked_at.setter
    def parent_ticked_at(self, moment: float) -> None:
        _CELL.pack_into(self._cells, 3 * _CELL.size, moment)
