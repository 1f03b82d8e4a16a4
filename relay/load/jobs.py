"""A request that enqueues, over a connection of its client's own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from django.db import DatabaseError, connections

from relay.conf import get_settings
from relay.handles import JobHandle
from relay.inserting import enqueue_many
from relay.load.driver import Send
from relay.load.waiting import ID_BYTES
from relay.tasks import BoundTask

__all__ = ["Enqueuing"]


class Enqueuing:
    """Requests that enqueue a task, as an application does: bound, checked, encoded.

    The jobs carry nothing that marks them: a tag would make each INSERT a longer one.

    Args:
        batch: jobs of one request; one is an enqueue(), more are an enqueue_many().
        keeps_ids: whether ids() returns those of the jobs that were made.
    """

    def __init__(
        self,
        bound: BoundTask[..., Any],
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        *,
        batch: int,
        keeps_ids: bool,
    ) -> None:
        self._bound = bound
        self._args = tuple(args)
        self._kwargs = dict(kwargs)
        self._batch = batch
        self._keeps_ids = keeps_ids
        self._ids: list[bytearray] = []

    def check(self) -> None:
        """Make one job without enqueueing it.

        Raises:
            RelayError: the task cannot take the arguments, or they cannot be stored.
        """
        self._bound.job(*self._args, **self._kwargs).new_job()

    @contextmanager
    def connect(self) -> Iterator[Send]:
        """Connect this thread to the database; give what makes one request.

        A connection that a request has broken is made anew for the next one.

        Raises:
            django.db.DatabaseError: there is no connection to be had.
        """
        connection = connections[get_settings().database]
        connection.ensure_connection()
        ids = bytearray()
        self._ids.append(ids)

        def send() -> int:
            try:
                handles = self._enqueue()
            except DatabaseError:
                connection.close_if_unusable_or_obsolete()
                raise
            made = [handle for handle in handles if not handle.is_duplicate]
            if self._keeps_ids:
                for handle in made:
                    ids.extend(handle.id.bytes)
            return len(made)

        try:
            yield send
        finally:
            connection.close()

    def ids(self) -> bytearray:
        """Return the ids of the jobs made, 16 bytes each, the oldest first."""
        joined = b"".join(self._ids)
        places = range(0, len(joined), ID_BYTES)
        return bytearray().join(sorted(joined[at : at + ID_BYTES] for at in places))

    def _enqueue(self) -> list[JobHandle[Any]]:
        if self._batch == 1:
            return [self._bound.enqueue(*self._args, **self._kwargs)]
        return enqueue_many(
            self._bound.job(*self._args, **self._kwargs) for _ in range(self._batch)
        )
