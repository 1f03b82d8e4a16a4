"""The tutorial, as somebody follows it who has nothing but an empty folder."""

from __future__ import annotations

import os
import shlex
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from tests.docs.pages import ROOT, Block, blocks
from tests.docs.project import Project, parameters

# After each page: what it asks the reader to do by hand, or to look at.
VIEW = """
from django.test import RequestFactory
from shop.views import pay
print(pay(RequestFactory().get("/"), 7).content.decode())
"""


class Tutorial(Project):
    """A folder in which the pages are followed from top to bottom."""

    def __init__(self, folder: Path, database: dict[str, Any]) -> None:
        self.folder = folder
        self.database = database
        self._workers = []
        self._supervisors = 0

    def environment(self) -> dict[str, str]:
        """Return what the reader's shell has; DATABASE_URL as the first page says."""
        given = parameters(self.database)
        address = {key: str(value) for key, value in given.items()}
        name = address.pop("dbname")
        found = os.environ | {
            "DATABASE_URL": f"postgresql:///{name}?{urlencode(address)}",
            "PYTHONPATH": str(ROOT),
            "DJANGO_SETTINGS_MODULE": "mysite.settings",
            "PYTHONWARNINGS": "default",
        }
        return found

    def follow(self, page: Path, after: str = "") -> list[str]:
        """Do what the page says, in its order; return what its own lines print."""
        loose: list[str] = []
        for block in blocks(page):
            if block.language == "console":
                for line in block.text.splitlines():
                    self._command(shlex.split(line))
            elif block.language == "python" and block.file:
                self._write(block)
            elif block.language == "python":
                loose.append(block.text)
        script = "\n".join(
            ["import django", "django.setup()", *loose, textwrap.dedent(after)]
        )
        (self.folder / "typed.py").write_text(script)
        return self.run("typed.py").splitlines()

    def _command(self, words: list[str]) -> None:
        if words[:3] == ["python", "-m", "relay.standalone.postgres"]:
            return  # DATABASE_URL names another
        assert words[0] == "python"
        if "relay_worker" in words:
            self.stop()
            self.start(*[word for word in words[1:] if word != "--reload"])
        else:
            self.run(*words[1:])

    def _write(self, block: Block) -> None:
        assert block.file is not None
        path = self.folder / block.file
        is_added = path.name == "settings.py"
        before = path.read_text() if is_added else ""
        path.write_text(before + "\n" + block.text)


@pytest.fixture
def tutorial(tmp_path: Path, database: dict[str, Any]) -> Iterator[Tutorial]:
    found = Tutorial(tmp_path, database)
    yield found
    assert set(found.stop()) <= {0}


def shown(page: Path) -> list[str]:
    """Return the lines that the page says are printed, without its commands."""
    return [
        line
        for block in blocks(page)
        if block.language == "text" and "python" not in block.text
        for line in block.text.splitlines()
    ]


@pytest.mark.slow
def test_the_tutorial_works_from_an_empty_folder(tutorial: Tutorial) -> None:
    folder = ROOT / "docs" / "tutorial"

    (answer,) = tutorial.follow(folder / "first-job.md", after=VIEW)
    assert '"result": "receipt for order 7 sent"' in answer

    printed = tutorial.follow(folder / "failures.md")
    assert printed == [*shown(folder / "failures.md"), "failed"]

    assert tutorial.follow(folder / "schedules.md") == shown(folder / "schedules.md")
