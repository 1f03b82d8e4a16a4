"""What the model of the protocol knows at one moment, and what can follow."""

from __future__ import annotations

from typing import Final, NamedTuple

__all__ = ["FINAL", "Cell", "Job", "Limits", "State", "Step", "Worker"]

FINAL: Final = ("completed", "failed", "cancelled")


class Job(NamedTuple):
    """A row of relay_job.

    Attributes:
        state: waiting (queued, retrying), running, completed, failed or cancelled.
        is_asked: somebody asked the running attempt to stop.
        is_haunted: an outcome of a worker that is gone is in flight, for ever.
        is_seen: a mutant's reaper has looked at it, and will not again.
    """

    state: str = "waiting"
    is_asked: bool = False
    failures: int = 0
    crashes: int = 0
    losses: int = 0
    is_haunted: bool = False
    is_seen: bool = False


class Cell(NamedTuple):
    """What lies between one worker and one job.

    Attributes:
        owns: the job's row names the worker.
        hand: "r": a handler runs, or is about to; "" no handler. A capital where the
            row names the worker no more, or under a later attempt.
        wire: "o": an outcome is in flight or will be sent again; a capital likewise.
    """

    owns: bool = False
    hand: str = ""
    wire: str = ""


class Worker(NamedTuple):
    """A child process and its row of relay_worker.

    Attributes:
        process: up, paused (SIGSTOP), late (goes on after a pause that outlasted its
            lease) or dead.
        is_lost: whether its row is lost or stopped.
        is_seen: a mutant's reaper has seen its lease end and will not look again.
    """

    process: str = "up"
    is_lost: bool = False
    is_seen: bool = False
    cells: tuple[Cell, ...] = ()


class State(NamedTuple):
    """Everything at one moment."""

    jobs: tuple[Job, ...]
    workers: tuple[Worker, ...]


class Limits(NamedTuple):
    """How many failures, crashes and losses end a job."""

    max_retries: int = 1
    crashes: int = 2
    losses: int = 2


class Step(NamedTuple):
    """One transition.

    Attributes:
        verb, worker, job: what was done by or to whom, None where to nobody in
            particular.
        is_fault: needs a fault, or somebody's will: no liveness rests on it.
        is_fenced: for a write, whether its token was the row's.
        charged: the jobs that are charged a failure, a crash or a loss.
    """

    verb: str
    worker: int | None
    job: int | None
    state: State
    is_fault: bool = False
    is_fenced: bool = True
    charged: tuple[int, ...] = ()
