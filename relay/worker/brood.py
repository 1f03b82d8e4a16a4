"""All isolated processes of one child, as the parent sees them: some left, or none."""

from __future__ import annotations

import os
from typing import Final

from relay.worker.apart import Nursery, is_isolation_needed
from relay.worker.bell import readable

__all__ = ["Brood"]

# A dead child's isolated processes are killed within milliseconds, by its nursery or by
# the kernel. What a handler forked and moved into a group of its own may stay: nobody
# waits longer for that. Source: docs/explanation/isolation.md, "Constants".
GONE_SECONDS: Final = 1.0


class Brood:
    """A pipe that is open for writing in a nursery and in all that it forks.

    A dead child's jobs must not be given out while one of them still runs.
    """

    def __init__(self) -> None:
        self._reader, self._writer = os.pipe()

    @classmethod
    def expect(cls) -> Brood | None:
        """Make one for a child about to be forked; None if no task is isolated."""
        return cls() if is_isolation_needed() else None

    def start_nursery(self, slots: int) -> Nursery:
        """Start the nursery. In the child, before it starts any thread."""
        os.close(self._reader)
        nursery = Nursery.start(slots)
        os.close(self._writer)
        return nursery

    def watch(self) -> None:
        """Leave the pipe to the child. In the parent, after the fork."""
        os.close(self._writer)

    def wait_until_gone(self) -> None:
        """Wait until no process is left, for a second at most. After the child."""
        readable([self._reader], GONE_SECONDS)
        os.close(self._reader)
