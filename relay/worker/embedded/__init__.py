"""A worker inside a web process: its loop in threads, its lease in a helper process."""

from __future__ import annotations

from relay.worker.embedded.asgi import with_worker
from relay.worker.embedded.process import astop, start, stop
from relay.worker.embedded.worker import EmbeddedWorker

__all__ = ["EmbeddedWorker", "astop", "start", "stop", "with_worker"]
