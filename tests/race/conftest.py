"""The fixtures of the engine's tests."""

from __future__ import annotations

from tests.engine.conftest import duty, hot, in_thread

__all__ = ["duty", "hot", "in_thread"]
