"""What the state machine's model is made of."""

from __future__ import annotations

from dataclasses import dataclass, field
from uuid import UUID

from relay.unique import Mode

__all__ = ["CRASH_LIMIT", "FINAL", "FOREVER", "HAND_BACK_LIMIT", "KEEP"]
__all__ += ["LEASE", "LOSS_LIMIT", "SNOOZE_LIMIT", "WAITING", "Asked", "Change"]
__all__ += ["Due", "Event", "Lease", "ModelJob", "Token"]

FINAL = ("completed", "failed", "cancelled")
WAITING = ("blocked", "scheduled", "queued", "retrying")
CRASH_LIMIT = 3
LOSS_LIMIT = 3
SNOOZE_LIMIT = 2
# In minutes.
LEASE = 10
KEEP = {"failed": 30, "cancelled": 20}
HAND_BACK_LIMIT = 40
FOREVER = 10**9

Due = tuple[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """What a claim has given: the right to finish this attempt."""

    id: UUID
    worker: UUID
    attempt: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What an enqueue asks for; key stands for its hash, in hex."""

    id: UUID
    queue: str
    priority: int
    max_retries: int
    run_in: int = 0
    deadline_in: int | None = None
    key: str | None = None
    mode: Mode | None = None
    window: int = 0
    raises: bool = False
    replaces: bool = False
    pushes: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One row of history."""

    name: str
    attempt: int
    at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelJob:
    """One row; place is the order of ready_seq, due that of run_at.

    is_asked says that somebody has asked its worker to stop it.
    """

    queue: str
    priority: int
    max_retries: int
    state: str
    place: int
    due: Due
    attempt: int = 0
    failures: int = 0
    crashes: int = 0
    losses: int = 0
    worker: UUID | None = None
    mode: Mode | None = None
    scope_key: str | None = None
    key: str | None = None
    deadline: int | None = None
    until: int | None = None
    expires: int | None = None
    is_asked: bool = False
    replay_of: UUID | None = None
    history: tuple[Event, ...] = ()
    attempts: tuple[tuple[int, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Lease:
    """One worker's row."""

    state: str
    until: int

    @property
    def is_live(self) -> bool:
        return self.state not in ("lost", "stopped")


@dataclass(slots=True, kw_only=True)
class Change:
    """What a statement writes: rows by their ids, None where it deletes one.

    Attributes:
        locked: rows that it locks besides those it writes.
        queues: minute at which a queue's pause ends; None where it is resumed.
    """

    jobs: dict[UUID, ModelJob | None] = field(default_factory=dict)
    workers: dict[UUID, Lease] = field(default_factory=dict)
    queues: dict[str, int | None] = field(default_factory=dict)
    locked: set[UUID] = field(default_factory=set)
