"""What an operator asks of a worker."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["LoopOptions"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopOptions:
    """What the operator asked of each child.

    Attributes:
        max_jobs: after this many jobs the child drains and a new one takes its place.
        max_memory_bytes: the same once its resident memory is larger.
    """

    queues: dict[str, int]
    is_strict: bool = False
    concurrency: int
    max_jobs: int | None = None
    max_memory_bytes: int | None = None
