"""What handlers did, one line each in a file that no fault reaches."""

from __future__ import annotations

import json
import os
import time
from dataclasses import dataclass
from pathlib import Path

from relay import current_job

__all__ = ["Effect", "note", "read"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """One line.

    Attributes:
        at: by the monotonic clock of the machine.
        said: what the handler had to say.
    """

    job: str
    attempt: int
    pid: int
    phase: str
    at: float
    said: object = None


def note(phase: str, said: object = None) -> None:
    """Append a line for the job that runs here; one write, so that none is torn."""
    job = current_job()
    line = json.dumps(
        {
            "job": str(job.id),
            "attempt": job.attempt,
            "pid": os.getpid(),
            "phase": phase,
            "at": time.monotonic(),
            "said": said,
        }
    )
    file = os.open(
        os.environ["WORKER_TESTS_EFFECTS"], os.O_WRONLY | os.O_APPEND | os.O_CREAT
    )
    try:
        os.write(file, f"{line}\n".encode())
    finally:
        os.close(file)


def read(path: Path) -> list[Effect]:
    if not path.exists():
        return []
    whole, _, _ = path.read_text().rpartition("\n")  # what is being written is not
    return [Effect(**json.loads(line)) for line in whole.splitlines()]
