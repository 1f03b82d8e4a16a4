"""What is not as it should be, in one list above all else on the overview."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, TypedDict

from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from relay.dashboard.drawing import link
from relay.dashboard.tags import at
from relay.dashboard.words import span
from relay.exceptions import NotAllowed, ReadTimeout
from relay.queries.documents import (
    QueueDocument,
    SchedulePage,
    SoundnessDocument,
    WorkerDocument,
    WorkerPage,
)

__all__ = ["Warned", "warnings_of"]

# Of queues and of schedules so many are named; the pages of both have all.
MOST: Final = 5
# For how long a lost worker is spoken of.
LOST_SECONDS: Final = 3_600


class Warned(TypedDict):
    """One thing that is not as it should be, and the page that has more of it."""

    text: str
    url: str
    is_error: bool


def warnings_of(
    *,
    soundness: Callable[[], SoundnessDocument],
    workers: Callable[[], WorkerPage],
    queues: Callable[[], Sequence[QueueDocument]],
    schedules: Callable[[], SchedulePage],
) -> list[Warned]:
    """Return all warnings; of what the actor may not see, or takes too long, none."""
    found: list[Warned] = []
    for read, tell in (
        (soundness, _of_soundness),
        (workers, _of_workers),
        (queues, _of_queues),
        (schedules, _of_schedules),
    ):
        try:
            document: Any = read()
        except (NotAllowed, ReadTimeout):
            continue
        found += tell(document)
    return found


def _warned(text: str, url: str, *, is_error: bool = False) -> Warned:
    return {"text": text, "url": url, "is_error": is_error}


def _of_soundness(found: SoundnessDocument) -> Iterator[Warned]:
    missing, skew = found["missing_migrations"], found["clock_skew"]
    if missing:
        text = _("Migrations are not applied: {names}. Run manage.py migrate.")
        names = ", ".join(missing)
        yield _warned(text.format(names=names), link("system"), is_error=True)
    if skew is not None:
        text = (
            _("The clock of the database is {span} ahead of this machine's.")
            if skew > 0
            else _("The clock of the database is {span} behind this machine's.")
        )
        yield _warned(text.format(span=span(abs(skew))), link("system"))


def _of_workers(page: WorkerPage) -> Iterator[Warned]:
    workers = page["results"]
    if not any(worker["is_alive"] for worker in workers):
        text = _("No worker is there: nothing runs jobs.")
        yield _warned(text, link("workers"), is_error=True)
    if lost := sum(map(_is_lost, workers)):
        text = ngettext(
            "%(count)s worker was lost within the hour: its lease ran out.",
            "%(count)s workers were lost within the hour: their leases ran out.",
            lost,
        )
        yield _warned(text % {"count": f"{lost:,}"}, link("workers"))


def _is_lost(worker: WorkerDocument) -> bool:
    """Tell whether its lease ran out, be it taken back by now or not."""
    if worker["state"] == "stopped" or worker["is_alive"]:
        return False
    return worker["silent_for"] < LOST_SECONDS


def _of_queues(queues: Sequence[QueueDocument]) -> Iterator[Warned]:
    if not any(queue["workers"] for queue in queues):
        return  # there is no worker at all, or none of theirs: that was said
    left = [queue for queue in queues if queue["queued"]["count"]]
    for queue in [each for each in left if not each["workers"]][:MOST]:
        text = _("No worker serves {name}: its jobs wait.").format(name=queue["name"])
        yield _warned(text, at("queue", queue["name"]))


def _of_schedules(page: SchedulePage) -> Iterator[Warned]:
    shown = 0
    for schedule in page["results"]:
        if schedule["error"]:
            text = _("The schedule {name} cannot be kept.")
        elif schedule["is_late"]:
            text = _("The schedule {name} is late by {span}.")
        elif schedule["is_unsuccessful"]:
            text = _("The schedule {name} has had no success for too long.")
        else:
            continue
        known = {"name": schedule["name"], "span": span(schedule["late_by"])}
        yield _warned(text.format(**known), at("schedule", schedule["name"]))
        shown += 1
        if shown == MOST:
            return
