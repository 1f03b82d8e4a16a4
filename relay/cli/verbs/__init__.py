"""What each verb does, by what it is about."""

from __future__ import annotations

from relay.cli.tree import Branch
from relay.cli.verbs import (
    acts,
    bulk,
    completion,
    dlq,
    documents,
    enqueue,
    export,
    health,
    jobs,
    queues,
    schedules,
    system,
    tokens,
    top,
    waiting,
    workers,
)

__all__ = ["all_verbs"]


def all_verbs(root: Branch) -> None:
    """Add the verbs that both transports have."""
    noun = root.noun("jobs", "list, show, count, export and change jobs")
    jobs.grow(root, noun)
    export.grow(root, noun)
    enqueue.grow(root)
    acts.grow(root, noun)
    waiting.grow(root)
    for module in (
        dlq,
        queues,
        workers,
        schedules,
        bulk,
        health,
        system,
        top,
        documents,
        tokens,
        completion,
    ):
        module.grow(root)
