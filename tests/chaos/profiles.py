"""What a run is made of: processes, jobs and faults."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

__all__ = [
    "BLOAT",
    "ENDINGS",
    "FENCE",
    "FIXED_SEED",
    "KILL",
    "KILL100",
    "LEASE_SECONDS",
    "PROFILES",
    "SMOKE",
    "TRANSACTIONAL",
    "VOLUME",
    "Planned",
    "Profile",
    "plan",
]

LEASE_SECONDS: Final = 1.0
FIXED_SEED: Final = 20261129

# Children of a stopped worker go on this long before its keeper and parent, so that
# what they finish late reaches the database. Source: F4.
HEAD_START_SECONDS: Final = 0.3

# How a job of each task must end, however often it was killed on the way.
ENDINGS: Final = {
    "chaos:nothing": "completed",
    "chaos:nap": "completed",
    "chaos:doze": "completed",
    "chaos:stumble": "completed",
    "chaos:refuse": "failed",
    "chaos:doomed": "failed",
    "chaos:tick": "completed",
    "chaos:transact": "completed",
    "chaos:newer": "completed",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """One kind of run.

    Attributes:
        workers: child processes of each worker, one entry per worker.
        tasks: weights of the tasks that the producers enqueue.
        longest_seconds: sleeping jobs last between shortest_seconds and this.
        faults: how many of each kind strike, at random times within `seconds`.
        stops: how long a SIGSTOP may last, in leases.
        lease_seconds: of the workers; only "volume" and "bloat" set another.
        until_caught: end as soon as stale writes were seen (for mutants).
    """

    name: str
    workers: tuple[int, ...]
    concurrency: int = 4
    schedulers: int = 2
    producers: int = 2
    jobs: int
    seconds: float
    tasks: Mapping[str, float]
    shortest_seconds: float = 0.0
    longest_seconds: float = 1.5
    faults: Mapping[str, int]
    stops: tuple[float, ...] = (0.5, 1.5, 5.0)
    lease_seconds: float = LEASE_SECONDS
    until_caught: bool = False


_ALL_TASKS: Final = {
    "nothing": 0.62,
    "nap": 0.16,
    "doze": 0.12,
    "stumble": 0.06,
    "refuse": 0.02,
    "doomed": 0.02,
}

SMOKE: Final = Profile(
    name="smoke",
    workers=(2, 1, 2, 1, 2, 1),
    jobs=3_100,
    seconds=50,
    tasks=_ALL_TASKS,
    faults={
        "parent": 18,
        "child": 36,
        "keeper": 15,
        "scheduler": 12,
        "stop": 27,
        "term": 15,
        "backend": 27,
    },
)

KILL100: Final = Profile(
    name="kill100",
    workers=(2, 1, 2, 1, 2, 1),
    jobs=10_400,
    seconds=90,
    tasks={**_ALL_TASKS, "nothing": 3.0},
    faults={"child": 40, "keeper": 20, "parent": 25, "scheduler": 15},
)

# A tenth of the campaign "kill". Nearly all jobs are short: what is in flight at a
# strike runs twice, and that must be less than one job of 200.
KILL: Final = Profile(
    name="kill",
    workers=(2, 1, 2, 1, 2, 1),
    jobs=20_600,
    seconds=48,
    tasks={
        "nothing": 0.972,
        "nap": 0.006,
        "doze": 0.006,
        "stumble": 0.006,
        "refuse": 0.005,
        "doomed": 0.005,
    },
    longest_seconds=0.5,
    faults={
        "child": 40,
        "parent": 30,
        "keeper": 18,
        "scheduler": 12,
        "stop": 20,
        "backend": 10,
    },
    stops=(1.5, 2.0, 5.0),
)

# Long jobs that end while their worker is stopped and run elsewhere meanwhile.
FENCE: Final = Profile(
    name="fence",
    workers=(1, 1, 1, 1),
    # Half of the slots stay free: what is taken must start elsewhere at once.
    concurrency=12,
    schedulers=0,
    jobs=320,
    seconds=40,
    tasks={"nap": 0.7, "doze": 0.3},
    shortest_seconds=1.2,
    longest_seconds=2.6,
    faults={"stop": 32},
    stops=(1.6, 1.9, 2.2),
    until_caught=True,
)


# A thousand kills, at any moment of handlers whose effects commit with their finish.
TRANSACTIONAL: Final = Profile(
    name="transactional",
    workers=(3, 3, 3, 2, 2),
    schedulers=0,
    jobs=30_000,
    seconds=600,
    tasks={"transact": 1},
    longest_seconds=0.3,
    faults={"child": 780, "keeper": 100, "parent": 120},
)

# Both processors are busy all the time: a lease of a second would run out by itself.
VOLUME: Final = Profile(
    name="volume",
    workers=(1, 1, 1),
    concurrency=10,
    schedulers=0,
    producers=2,
    jobs=1_000_000,
    seconds=0,
    tasks={"nothing": 0.997, "nap": 0.001, "stumble": 0.001, "doomed": 0.001},
    longest_seconds=0.2,
    faults={"child": 30, "parent": 10, "keeper": 10},
    lease_seconds=3.0,
)

# No faults but the held snapshot; the lease is the default's, as are its timeouts.
BLOAT: Final = Profile(
    name="bloat",
    workers=(1, 1),
    concurrency=10,
    schedulers=0,
    producers=1,
    jobs=1_000_000,
    seconds=0,
    tasks={"nothing": 1},
    faults={},
    lease_seconds=30.0,
)

PROFILES: Final = {
    profile.name: profile
    for profile in (SMOKE, KILL100, FENCE, TRANSACTIONAL, KILL, VOLUME, BLOAT)
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """One fault of the stream.

    Attributes:
        at_seconds: when it strikes, counted from the start of the faults.
        slot: which worker or scheduler is struck, if that one can be just then.
        dice: decides what is left to chance, such as which child; 0 <= dice < 1.
        leases: how long a stop lasts.
    """

    at_seconds: float
    kind: str
    slot: int
    dice: float
    leases: float


def plan(profile: Profile, seeds: tuple[int, ...]) -> list[Planned]:
    """Return the faults of a run; each seed decides its own stretch of the time."""
    kinds = [kind for kind, count in profile.faults.items() for _ in range(count)]
    random.Random(0).shuffle(kinds)
    share = profile.seconds / len(seeds)
    stream: list[Planned] = []
    for index, seed in enumerate(seeds):
        rng = random.Random(seed)
        own = kinds[index :: len(seeds)]
        rng.shuffle(own)
        times = sorted(rng.uniform(0, share) for _ in own)
        stream += [
            Planned(
                at_seconds=index * share + at,
                kind=kind,
                slot=rng.randrange(len(profile.workers)),
                dice=rng.random(),
                leases=rng.choice(profile.stops),
            )
            for at, kind in zip(times, own, strict=True)
        ]
    return stream
