"""Settings of the processes whose clocks are wrong."""

from __future__ import annotations

from datetime import timedelta

from tests.chaos.settings import *  # noqa: F403 - the same but for what follows
from tests.chaos.settings import RELAY as _RELAY
from tests.chaos.timing.skewed import LEASE_SECONDS

RELAY = {**_RELAY, "LEASE": timedelta(seconds=LEASE_SECONDS)}
