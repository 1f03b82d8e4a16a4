"""The fixtures of the engine's and the workers' tests."""

from __future__ import annotations

from tests.engine.conftest import duty, hot, in_thread
from tests.worker.conftest import database, workers

__all__ = ["database", "duty", "hot", "in_thread", "workers"]
