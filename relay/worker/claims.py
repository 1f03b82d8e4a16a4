"""What one child asks the database for: when, over which queues, from which marks."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import timedelta
from typing import Final

from relay.conf import OWN_QUEUE
from relay.engine.claim import ClaimedJob, Marks, QueueOrder, Span
from relay.worker.hands import Hands
from relay.worker.hearing import Hearing
from relay.worker.link import LONGEST_BACKOFF_SECONDS
from relay.worker.options import LoopOptions
from relay.worker.pace import Sweeps

__all__ = ["Claims"]

# Between two claims while work keeps coming in; the idle one is the setting's.
BUSY_POLL_SECONDS: Final = 0.02


class Claims:
    """The claims of one child, sent by its loop.

    Attributes:
        order: of the queues it serves.
        is_hinted: whether there is something to claim, as far as anybody knows.
        poll_at: when to look all the same.
    """

    def __init__(self, options: LoopOptions, poll_interval: timedelta) -> None:
        self.order = QueueOrder(options.queues, strict=options.is_strict)
        self.is_hinted = True
        self.poll_at = 0.0
        self._idle_seconds = poll_interval.total_seconds()
        self._marks = Marks()
        self._sweeps = Sweeps()

    def hear(self, hearing: Hearing) -> None:
        """Take in what was heard of."""
        self.is_hinted |= hearing.take(self._marks, self._sweeps)

    def are_due(self, now: float) -> bool:
        """Tell whether to claim although nothing else has to be written."""
        return self.is_hinted or now >= self.poll_at

    def spans(self, now: float, hands: Hands) -> tuple[Sequence[str], list[Span]]:
        """Return the queues of the next claim, in their order, and what it spans.

        Args:
            hands: which take one of relay's own jobs at a time.
        """
        queues = self.order.next()
        if self._sweeps.are_due(now):
            self._marks.sweep()
            # First, and only here: what is seldom there slows no other claim.
            queues = queues if hands.own_jobs else (OWN_QUEUE, *queues)
        return queues, self._marks.spans(queues)

    def note(self, claimed: list[ClaimedJob], room: int, now: float) -> None:
        """Take in what a claim of at most room jobs, begun now, has brought."""
        self._marks.note(claimed, limit=room)
        moment = time.monotonic()
        if self._sweeps.are_due(now):
            self._sweeps.note(now, moment)
        self.is_hinted = len(claimed) == room
        self.poll_at = moment + (BUSY_POLL_SECONDS if claimed else self._idle_seconds)

    def put_off(self, now: float) -> None:
        """Leave a claim that failed while the finishes before it were sound."""
        self.is_hinted = False
        self.poll_at = now + min(self._idle_seconds, LONGEST_BACKOFF_SECONDS)
