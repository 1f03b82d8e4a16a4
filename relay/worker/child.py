"""The loop as the main thread of a child process."""

from __future__ import annotations

import os
import signal

from relay import counts
from relay.worker.loop import Loop
from relay.worker.tally import Forwarded

__all__ = ["ChildLoop"]


class ChildLoop(Loop):
    """A loop that SIGTERM drains, and that ends with its parent."""

    def run(self) -> None:
        """Run until drained."""
        signal.signal(signal.SIGTERM, self.drain)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        self._bell.ring_on_signals()
        if counts.is_on():
            # The keeper counts for all children: theirs would be seen by nobody.
            forwarded = self._hands.tally.forwarded = Forwarded()
            counts.install(forwarded)
        super().run()

    def _end_orphaned(self) -> None:
        os._exit(1)  # its jobs come back when the lease runs out
