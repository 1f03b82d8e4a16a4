"""What is done to queues: pause, resume, order, weigh."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

from relay.engine import pause, policy
from relay.engine import weight as weights
from relay.exceptions import ArgumentError
from relay.operations.registry import Act, operation
from relay.tasks import known_queues

__all__ = ["order_queue", "pause_queue", "resume_queue", "weigh_queue"]


@operation("manage_queue", subject="queue")
def pause_queue(act: Act, queue: str, *, until: datetime | None = None) -> None:
    """Start no more jobs of a queue, until it is resumed or the given instant.

    Raises:
        NotAllowed: the actor lacks manage_queue.
        UnknownQueue: nothing names the queue.
        ArgumentError: the name can be no queue's, or until has no time zone.
    """
    try:
        pause.pause(
            queue,
            until=until,
            actor=act.actor.name,
            using=act.using,
            known=known_queues(),
        )
    except ValueError as error:
        raise ArgumentError(str(error)) from None
    act.note(queue, until=None if until is None else until.isoformat())
    act.log("queue.paused", "queue paused", queue=queue)


@operation("manage_queue", subject="queue")
def resume_queue(act: Act, queue: str) -> bool:
    """Let a queue's jobs start again; tell whether it was paused.

    Raises:
        NotAllowed: the actor lacks manage_queue.
    """
    is_changed = pause.resume(queue, actor=act.actor.name, using=act.using)
    if is_changed:
        act.note(queue)
        act.log("queue.resumed", "queue resumed", queue=queue)
    return is_changed


@operation("manage_queue", subject="queue")
def order_queue(act: Act, queue: str, order: policy.Policy) -> bool:
    """Order a queue's jobs by "priority" or as they come, "fifo"; tell if that is new.

    Raises:
        NotAllowed: the actor lacks manage_queue.
        UnknownQueue: nothing names the queue.
        ArgumentError: the name can be no queue's, or the order is none.
    """
    return _set(act, queue, policy.set_policy, order=order)


@operation("manage_queue", subject="queue")
def weigh_queue(act: Act, queue: str, weight: int) -> bool:
    """Claim from a queue first as often as its weight says; tell if that is new.

    It counts in workers that start without -q from now on.

    Args:
        weight: 1 to 1,000; 1 unless set.

    Raises:
        NotAllowed: the actor lacks manage_queue.
        UnknownQueue: nothing names the queue.
        ArgumentError: the name can be no queue's, or the weight is none.
    """
    return _set(act, queue, weights.set_weight, weight=weight)


def _set(act: Act, queue: str, change: Callable[..., bool], **value: Any) -> bool:
    """Set one value of a queue; tell if it is new, and if so put it on record."""
    try:
        is_changed = change(
            queue,
            *value.values(),
            actor=act.actor.name,
            using=act.using,
            known=known_queues(),
        )
    except ValueError as error:
        raise ArgumentError(str(error)) from None
    if is_changed:
        act.note(queue, **value)
    return is_changed
