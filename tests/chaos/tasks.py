"""Where relay's autodiscovery looks for the tasks of the app tests.chaos."""

from __future__ import annotations

from tests.chaos import workload

__all__ = ["workload"]
