"""The pictures of README and docs: RELAY_PICTURES=docs/images takes them anew."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from datetime import timedelta
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from django.utils import timezone

import relay
from relay.models import Job, Queue, Schedule, Stat, Worker
from relay.queries import queues

if TYPE_CHECKING:
    from playwright.sync_api import Page

TASKS = {
    "mail": ("shop.mail.send_receipt", "shop.mail.send_welcome"),
    "default": ("shop.orders.charge_card", "shop.search.reindex"),
    "reports": ("shop.reports.monthly_sales",),
}
ERRORS = (
    ("ConnectionError", "smtp.example.com:587 refused the connection"),
    ("TimeoutError", "the card provider did not answer within 10 s"),
)


def make_shop() -> None:
    """Fill a shop, of which the pictures are."""
    now, draw = timezone.now(), random.Random(7)
    worker_ids = []
    for number in range(1, 4):
        worker_ids.append(
            Worker.objects.create(
                name=f"web-{number}",
                host=f"web-{number}",
                pid=4_000 + number,
                queues=list(TASKS),
                concurrency=10,
                version="0.1.0",
                state="running" if number < 3 else "draining",
                lease_expires_at=now + timedelta(hours=1),  # however slow the machine
                started_at=now - timedelta(hours=7 * number),
            ).pk
        )
    for queue in TASKS:
        Queue.objects.create(name=queue)
    Queue.objects.filter(name="reports").update(paused_at=now - timedelta(minutes=9))
    for number in range(160):
        _job(number, draw, now, worker_ids)
    for name, cron in (("nightly report", "0 3 * * *"), ("sync stock", "*/5 * * * *")):
        due = now + timedelta(minutes=3 if "sync" in name else 400)
        Schedule.objects.create(
            name=name,
            task="shop.reports.monthly_sales",
            cron=cron,
            timezone="Europe/Rome",
            last_due_at=due - timedelta(hours=1),
            last_success_at=due - timedelta(hours=1),
        )
        Schedule.objects.filter(name=name).update(next_due_at=due)
    _stats(draw, now)


def _job(number: int, draw: random.Random, now: Any, workers: list[Any]) -> None:
    queue = draw.choice(list(TASKS))
    values: dict[str, Any] = {
        "task": draw.choice(TASKS[queue]),
        "queue": queue,
        "args": {
            "args": [1_000 + number],
            "kwargs": {"lang": draw.choice(["en", "it"])},
        },
        "created_at": now - timedelta(seconds=draw.randrange(60, 3_000)),
        "run_at": now - timedelta(seconds=draw.randrange(1, 40)),
    }
    state = draw.choices(
        ["completed", "queued", "running", "failed", "retrying"], [8, 4, 1, 2, 1]
    )[0]
    if state == "running":
        values |= {"worker_id": draw.choice(workers), "attempt": 1}
        values |= {"started_at": now - timedelta(seconds=draw.randrange(1, 30))}
    if state in ("completed", "failed", "retrying"):
        ended = now - timedelta(seconds=draw.randrange(1, 3_000))
        values |= {"attempt": 1, "finished_at": None if state == "retrying" else ended}
        values |= {"started_at": ended - timedelta(seconds=draw.random() * 4)}
    if state in ("failed", "retrying"):
        error_class, error = draw.choice(ERRORS)
        values |= {"error_class": error_class, "error_message": error, "failures": 1}
    Job.objects.create(state=state, **values)


def _stats(draw: random.Random, now: Any) -> None:
    minute = now.replace(second=0, microsecond=0)
    ended = [("completed", 90), ("failed", 6), ("retried", 9)]
    for ago in range(60):
        for queue, (outcome, most) in product(TASKS, ended):
            share = {"default": 3, "mail": 2, "reports": 1}[queue]
            count = draw.randrange(most // 9, most // 3) * share
            buckets = [0] * 24
            for _ in range(count):
                buckets[min(23, max(0, int(draw.gauss(8, 2))))] += 1
            Stat.objects.create(
                seconds=60,
                at=minute - timedelta(minutes=ago),
                queue=queue,
                task=TASKS[queue][0],
                outcome=outcome,
                count=count,
                run_seconds=count * 0.3,
                wait_seconds=count * 0.1,
                run_buckets=buckets,
                wait_buckets=buckets,
            )


PICTURES = Path(relay.__file__).parent.parent / "docs" / "images"
# What the pictures show, in words: every chromium draws the same ones.
SAID = Path(__file__).with_name("pictures.txt")
WORDS = ":is(nav a, h1, h2, th, button, main .state, main a.small):visible"
RENEW = "RELAY_PICTURES=docs/images python -m pytest tests/browser/test_pictures.py"
# Of 255, over the whole picture made small: letters that another chromium draws a bit
# larger come to 5, other colours to 20 and more.
MOST_APART = 10.0


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_pictures_are_of_the_pages_of_today(
    open_page: Callable[..., Page],
    log_in: Callable[[Page], None],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    theme: str,
) -> None:
    # Without the queues of the tasks that other tests have registered.
    monkeypatch.setattr(queues, "known_queues", set)
    make_shop()
    folder = Path(os.environ.get("RELAY_PICTURES", tmp_path))
    page = open_page(theme=theme)
    log_in(page)
    name = f"dashboard-{theme}.png"

    page.goto("./")
    page.wait_for_selector(".chart rect")
    page.screenshot(path=folder / name)
    said = "\n".join(page.locator(WORDS).all_inner_texts()) + "\n"
    if "RELAY_PICTURES" in os.environ:
        SAID.write_text(said)

    step = page.locator(".chart .step").nth(30)
    step.locator("rect").hover()
    step.locator("text").wait_for(state="visible")
    assert "completed" in str(step.locator("text").text_content())
    assert said == SAID.read_text(), f"the overview has changed; renew it: {RENEW}"
    assert apart(folder / name, PICTURES / name) < MOST_APART, RENEW


def apart(one: Path, other: Path) -> float:
    """Return by how much two pictures differ, made small, of 255."""
    images = pytest.importorskip("PIL.Image")
    changes = pytest.importorskip("PIL.ImageChops")
    stats = pytest.importorskip("PIL.ImageStat")
    drawn, kept = (images.open(each).convert("RGB") for each in (one, other))
    assert drawn.size == kept.size, f"another size; renew it: {RENEW}"
    small = [each.resize((80, 56), images.Resampling.BOX) for each in (drawn, kept)]
    return max(stats.Stat(changes.difference(*small)).mean)
