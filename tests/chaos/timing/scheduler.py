"""A scheduler for simulated years: relay's own loop and duty, without its pauses."""

from __future__ import annotations

import select
import signal
from types import FrameType

import django

PAUSE_SECONDS = 0.015


class Hurry:
    """Waits hardly at all; is set by SIGTERM."""

    is_set = False

    def wait(self, seconds: float) -> None:
        # Not time.sleep(), which fails under libfaketime.
        select.select([], [], [], min(seconds, PAUSE_SECONDS))

    def set(self, number: int, frame: FrameType | None) -> None:
        self.is_set = True


def main() -> None:
    django.setup()
    # After the setup: it loads the models.
    from relay.scheduler.process import run

    stop = Hurry()
    signal.signal(signal.SIGTERM, stop.set)
    run("default", stop)


if __name__ == "__main__":
    main()
