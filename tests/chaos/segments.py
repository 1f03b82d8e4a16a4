"""What the database campaign is made of: stretches of time, each with its faults."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from tests.chaos.profiles import Profile

__all__ = ["LOAD", "SEGMENTS", "Segment", "Strike", "length_of", "strikes_of"]

# Between two faults, in which everybody must recover: longer than the 5 s allowed.
REST_SECONDS: Final = 5.2, 6.2

# Faults are chosen by segments, jobs and seconds too.
LOAD: Final = Profile(
    name="database",
    workers=(2, 1, 2, 1),
    schedulers=2,
    producers=4,
    jobs=100_000,
    seconds=670,
    tasks={
        "nothing": 3.0,
        "nap": 0.10,
        "doze": 0.10,
        "transact": 0.3,
        "stumble": 0.06,
        "refuse": 0.02,
        "doomed": 0.02,
    },
    longest_seconds=0.6,
    faults={},
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Strike:
    """One fault: its kind, and how long it lasts where that is ours to say."""

    kind: str
    seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """A run with faults of one family, one after the other.

    Attributes:
        share: of the campaign's jobs and seconds.
        strikes: how often each fault strikes at full length.
        errors: what the server's log may complain of; regular expressions.
        charged: what the faults may charge to a job that uses the database itself.
        network: what stands between the processes and the server.
        has_rooms: the server's files are in file systems that can be filled.
    """

    name: str
    about: str
    share: float
    strikes: Mapping[Strike, int]
    errors: tuple[str, ...] = ()
    charged: tuple[str, ...] = ()
    network: str = "socket"
    has_rooms: bool = False


_RESTARTS: Final = {
    Strike(kind="restart"): 8,
    Strike(kind="crash"): 5,
    Strike(kind="kill"): 2,
}
_READ_ONLY: Final = r"cannot execute .* in a read-only transaction"

SEGMENTS: Final = (
    Segment(
        name="restarts-1",
        about="F7: fast and immediate restarts, kill -9 of the server",
        share=0.16,
        strikes=_RESTARTS,
    ),
    Segment(
        name="restarts-2",
        about="F7: as before",
        share=0.16,
        strikes={**_RESTARTS, Strike(kind="restart"): 7, Strike(kind="crash"): 6},
    ),
    Segment(
        name="spells",
        about="F8: read-only spells, no sessions to be had, all sessions ended",
        share=0.15,
        strikes={
            Strike(kind="read_only", seconds=4): 3,
            Strike(kind="read_only", seconds=30): 1,
            Strike(kind="no_sessions", seconds=4): 2,
            Strike(kind="end_sessions"): 3,
        },
        errors=(_READ_ONLY,),
    ),
    Segment(
        name="errors",
        about="F9: statements of 50 ms at most, locks, deadlocks, serialization",
        share=0.115,
        strikes={
            Strike(kind="lock_jobs", seconds=2): 4,
            Strike(kind="lock_workers", seconds=2): 3,
            Strike(kind="hasty", seconds=6): 2,
        },
        errors=("injected by the campaign",),
        charged=("OperationalError",),
    ),
    Segment(
        name="disk",
        about="F10: no space for files, none for the write-ahead log",
        share=0.12,
        strikes={
            Strike(kind="full_disk", seconds=8): 2,
            Strike(kind="full_disk", seconds=20): 1,
            Strike(kind="full_wal", seconds=5): 2,
        },
        errors=("could not extend file", "could not write", "No space left on device"),
        has_rooms=True,
    ),
    Segment(
        name="network",
        about="F12: a proxy that delays, freezes, cuts, tears, drops, and loses the "
        "answers to commits",
        share=0.225,
        strikes={
            Strike(kind="delay", seconds=4): 1,
            Strike(kind="freeze", seconds=4): 1,
            Strike(kind="freeze", seconds=60): 1,
            Strike(kind="drop_questions", seconds=4): 1,
            Strike(kind="drop_answers", seconds=4): 1,
            Strike(kind="cut"): 2,
            Strike(kind="tear"): 2,
            Strike(kind="cut_commits", seconds=2): 4,
        },
        network="proxy",
    ),
    Segment(
        name="pooler",
        about="F13: pgbouncer in transaction mode, killed, restarted and away",
        share=0.07,
        strikes={
            Strike(kind="kill_pooler"): 3,
            Strike(kind="pooler_away", seconds=2): 2,
            Strike(kind="restart"): 2,
        },
        network="pooler",
    ),
)


def strikes_of(segment: Segment, *, scale: float, rng: random.Random) -> list[Strike]:
    """Return a segment's faults in a random order, each kind at least once.

    Args:
        scale: of the campaign's whole length; a short one has short spells.
    """
    found = [
        Strike(
            kind=strike.kind,
            seconds=max(min(strike.seconds, 2.0), strike.seconds * min(1.0, scale)),
        )
        for strike, count in segment.strikes.items()
        for _ in range(max(1, round(count * scale)))
    ]
    rng.shuffle(found)
    return found


def length_of(strikes: list[Strike]) -> float:
    """Return about how many seconds the faults take, with the rests after them."""
    return sum(strike.seconds + 0.5 + max(REST_SECONDS) for strike in strikes)
