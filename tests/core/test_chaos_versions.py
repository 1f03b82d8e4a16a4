"""What the deploy campaign takes for other versions of relay."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chaos.campaign import REPOSITORY
from tests.chaos.versions import head, previous, widened


def test_the_previous_version_has_fewer_migrations_of_the_same(tmp_path: Path) -> None:
    if not (REPOSITORY / ".git").exists():
        pytest.skip("this is no clone")

    found = previous(None, tmp_path)

    if found is not None:  # a shallow clone has no earlier commit
        now = head().migrations
        assert found.migrations == now[: len(found.migrations)]
        assert 0 < len(found.migrations) < len(now)
        assert (tmp_path / "relay" / "__init__.py").is_file()


def test_a_revision_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="knows no revision 'nowhere'"):
        previous("nowhere", tmp_path)


def test_the_wider_version_has_one_migration_more_behind_the_last(
    tmp_path: Path,
) -> None:
    found = widened(head(), tmp_path)

    assert found.migrations[:-1] == head().migrations
    written = tmp_path / "relay" / "migrations" / f"{found.migrations[-1]}.py"
    assert f'"{head().migrations[-1]}"' in written.read_text(encoding="utf-8")
