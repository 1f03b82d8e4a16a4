"""What axe finds on the pages, in both themes, narrow and wide."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from tests.browser.conftest import AXE
from tests.dashboard.pages import PAGES
from tests.dashboard.test_pages import fill

if TYPE_CHECKING:
    from playwright.sync_api import Page

TAGS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
RULES = {"resultTypes": ["violations"], "runOnly": TAGS}


@pytest.mark.parametrize("width", [320, 1280])
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axe_finds_nothing_serious(
    open_page: Callable[..., Page],
    log_in: Callable[[Page], None],
    theme: str,
    width: int,
) -> None:
    job = fill(2)
    page = open_page(theme=theme, width=width)
    log_in(page)
    where = [*(f"{name}/" for name in PAGES if name != "overview"), "./"]
    where += [
        f"jobs/{job.pk}/",
        f"jobs/{job.pk}/?show=logs",
        f"jobs/{job.pk}/?show=past",
        f"jobs/{job.pk}/replay/",
    ]
    where += ["jobs/new/?task=testproject.tasks.add", "jobs/?q=colour:red"]
    where += ["queues/default/", "schedules/schedule 0/"]

    found: list[str] = []
    for each in where:
        page.goto(each)
        found += [f"{each}: {line}" for line in serious(page)]
    page.goto(f"jobs/{job.pk}/")
    page.click("button:text-is('Delete')")
    page.wait_for_selector("dialog:modal")
    found += [f"question: {line}" for line in serious(page)]

    assert found == [], "\n".join(found)


def serious(page: Page) -> list[str]:
    page.evaluate(AXE.read_text())
    result: dict[str, Any] = page.evaluate("rules => axe.run(document, rules)", RULES)
    overflow = "document.documentElement.scrollWidth > window.innerWidth"
    wide = ["the page is wider than the window"] if page.evaluate(overflow) else []
    return wide + [
        f"{one['id']}: {node['html'][:200]} {node['failureSummary'][:300]}"
        for one in result["violations"]
        if one["impact"] in ("serious", "critical")
        for node in one["nodes"]
    ]


def test_axe_is_the_file_that_was_released() -> None:
    said = AXE.with_name("axe.min.js.sha256").read_text()

    digest = hashlib.sha256(AXE.read_bytes()).hexdigest()

    assert said.split() == [digest, "axe.min.js"]
    assert "Mozilla Public License" in AXE.with_name("axe.LICENSE").read_text()
