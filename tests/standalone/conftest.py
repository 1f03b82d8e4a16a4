"""Folders for servers, and a cluster that need not be made each time."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from relay.standalone.postgres import EmbeddedPostgres


@pytest.fixture(autouse=True)
def _without_database_url(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DATABASE_URL", raising=False)


@pytest.fixture
def folder() -> Iterator[Path]:
    """A short folder, as pytest's own is too long for a socket under some names."""
    made = Path(tempfile.mkdtemp(prefix="relay-test-")).resolve()
    yield made
    shutil.rmtree(made)


@pytest.fixture(scope="session")
def spare() -> Iterator[Path]:
    """A stopped cluster that tests hand on, as making one takes a second."""
    made = Path(tempfile.mkdtemp(prefix="relay-test-")).resolve()
    with EmbeddedPostgres(made):
        pass
    yield made / "data"
    shutil.rmtree(made)


@pytest.fixture
def root(folder: Path, spare: Path) -> Iterator[Path]:
    """A folder with a cluster that is not running."""
    root = folder / "postgres"
    root.mkdir(mode=0o700)
    spare.rename(root / "data")
    yield root
    EmbeddedPostgres(root).stop()
    (root / "data").rename(spare)
