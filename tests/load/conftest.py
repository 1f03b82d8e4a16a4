"""The workers' fixtures."""

from __future__ import annotations

from tests.worker.conftest import (
    cluster,
    database,
    duty,
    private,
    private_workers,
    workers,
)

__all__ = ["cluster", "database", "duty", "private", "private_workers", "workers"]
