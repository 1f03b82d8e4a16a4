"""What axe finds on the pages, in both themes, narrow and wide."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from itertools import cycle
from typing import TYPE_CHECKING, Any

import pytest

from relay.dashboard_settings import COLOURS
from relay.models import BulkOperation, Job, Queue, Worker
from relay.operations import Actor, mark
from relay.tasks import Task, _tasks
from tests.browser.conftest import AXE
from tests.dashboard.pages import PAGES
from tests.dashboard.test_pages import fill
from tests.operations.factory import make_job

if TYPE_CHECKING:
    from playwright.sync_api import Page

TAGS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
# What bears on the theme is asked in each, what bears on the width at each, and all of
# it once: nothing is shown in one width alone.
OF_WIDTH = ["target-size", "scrollable-region-focusable"]
ASKED = {
    ("light", 1280): TAGS,
    ("light", 320): {"type": "rule", "values": OF_WIDTH},
    ("dark", 320): {"type": "rule", "values": ["color-contrast", *OF_WIDTH]},
    ("dark", 1280): {"type": "rule", "values": OF_WIDTH},
}
LONG = "n" * 90
OPEN = "document.querySelectorAll('#shell').forEach(each => { each.open = true; })"
LINKS = {"LINKS": {"Logs": "https://logs.example.com/{job_id}"}}
OVERFLOWS = "document.documentElement.scrollWidth > window.innerWidth"


def test_axe_finds_nothing_serious_in_both_themes_at_320_and_1280_px(
    open_page: Callable[..., Page],
    log_in: Callable[[Page], None],
    monkeypatch: pytest.MonkeyPatch,
    settings: Any,
) -> None:
    job = fill(2)
    # Names that are as long as they may be must not widen the page.
    Queue.objects.create(name=LONG)
    long_task = Task(fill, name=f"tests.{LONG}", queue=LONG)
    monkeypatch.setitem(_tasks, long_task.name, long_task)
    make_job("failed", task=long_task.name, queue=LONG, error_class=LONG)
    mark(Actor(name="a", source="cli"), LONG)
    page = open_page()
    log_in(page)
    where = [f"{name}/" for name in PAGES if name != "overview"]
    where += ["./", *(f"jobs/{job.pk}/?show={show}" for show in ("now", "past"))]
    where += [f"jobs/{job.pk}/?show=logs", f"jobs/{job.pk}/replay/"]
    where += ["jobs/new/?task=testproject.tasks.add", "jobs/?q=colour:red"]
    where += ["queues/default/", "schedules/schedule 0/", "new-schedule/"]
    waiting = Job.objects.filter(state="queued").values_list("pk", flat=True)[0]
    where += [f"workers/{Worker.objects.get().pk}/", f"jobs/{waiting}/edit/"]
    where += [f"bulk/{BulkOperation.objects.all()[0].pk}/"]
    where += ["schedules/schedule 0/edit/"]

    found: list[str] = []
    for each, colour in zip(where, cycle(COLOURS), strict=False):
        settings.RELAY = {"DASHBOARD": {**LINKS, "ENV": ("production", colour)}}
        page.goto(each)
        page.evaluate(OPEN)
        found += [f"{each} {line}" for line in serious(page)]
    page.goto(f"jobs/{job.pk}/")
    page.click("button:text-is('Delete')")
    page.wait_for_selector("dialog:modal")
    found += [f"question {line}" for line in serious(page)]
    page.goto("queues/q1/")
    page.click("button[value=purge]")
    page.wait_for_selector("dialog:modal")
    found += [f"purge {line}" for line in serious(page)]
    page.goto("jobs/new/")
    page.keyboard.type("?")
    page.wait_for_selector("#keys:modal")
    found += [f"keys {line}" for line in serious(page)]

    assert found == [], "\n".join(found)


def serious(page: Page) -> Iterator[str]:
    page.evaluate(AXE.read_text())
    for (theme, width), asked in ASKED.items():
        # Without motion: what fades is not there yet.
        page.emulate_media(color_scheme=theme, reduced_motion="reduce")  # type: ignore[arg-type] # light or dark
        page.set_viewport_size({"width": width, "height": 900})
        look = f"{theme} {width}:"
        if page.evaluate(OVERFLOWS):
            yield f"{look} the page is wider than the window"
        rules = {"resultTypes": ["violations"], "runOnly": asked}
        found: dict[str, Any] = page.evaluate("r => axe.run(document, r)", rules)
        for one in found["violations"]:
            if one["impact"] in ("serious", "critical"):
                for node in one["nodes"]:
                    why = node["failureSummary"][:300]
                    yield f"{look} {one['id']}: {node['html'][:200]} {why}"


def test_axe_is_the_file_that_was_released() -> None:
    said = AXE.with_name("axe.min.js.sha256").read_text()

    digest = hashlib.sha256(AXE.read_bytes()).hexdigest()

    assert said.split() == [digest, "axe.min.js"]
    assert "Mozilla Public License" in AXE.with_name("axe.LICENSE").read_text()
