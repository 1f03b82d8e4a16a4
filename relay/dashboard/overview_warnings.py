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
    SoundnessDocument,
    UpcomingDocument,
    WorkerCounts,
)

__all__ = ["Warned", "warnings_of"]

# Of queues so many are named, as of schedules; the pages of both have all.
MOST: Final = 5


class Warned(TypedDict):
    """One thing that is not as it should be, and the page that has more of it."""

    text: str
    url: str
    is_error: bool


def warnings_of(
    *,
    soundness: Callable[[], SoundnessDocument],
    workers: Callable[[], WorkerCounts],
    queues: Callable[[], Sequence[QueueDocument]],
    schedules: Callable[[], UpcomingDocument],
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


def _of_workers(found: WorkerCounts) -> Iterator[Warned]:
    if not found["alive"]:
        text = _("No worker is there: nothing runs jobs.")
        yield _warned(text, link("workers"), is_error=True)
    if lost := found["lost_lately"]:
        text = ngettext(
            "%(count)s worker was lost within the hour: its lease ran out.",
            "%(count)s workers were lost within the hour: their leases ran out.",
            lost,
        )
        yield _warned(text % {"count": f"{lost:,}"}, link("workers"))


def _of_queues(queues: Sequence[QueueDocument]) -> Iterator[Warned]:
    if not any(queue["workers"] for queue in queues):
        return  # there is no worker at all, or none of theirs: that was said
    left = [queue for queue in queues if queue["queued"]["count"]]
    for queue in [each for each in left if not each["workers"]][:MOST]:
        text = _("No worker serves {name}: its jobs wait.").format(name=queue["name"])
        yield _warned(text, at("queue", queue["name"]))


def _of_schedules(found: UpcomingDocument) -> Iterator[Warned]:
    for schedule in found["late"]:
        if schedule["error"]:
            text = _("The schedule {name} cannot be kept.")
        elif schedule["is_late"]:
            text = _("The schedule {name} is late by {span}.")
        else:
            text = _("The schedule {name} has had no success for too long.")
        known = {"name": schedule["name"], "span": span(schedule["late_by"])}
        yield _warned(text.format(**known), at("schedule", schedule["name"]))
