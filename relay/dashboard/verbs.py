"""What may be done to jobs, in the words of buttons, questions and reports."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlencode
from uuid import UUID

from django.contrib import messages
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from relay import operations
from relay.dashboard.drawing import link
from relay.operations import Actor, ActReport

__all__ = ["VERBS", "Verb", "job_link", "report_of", "verbs_for"]

_WAITING: Final = ("blocked", "scheduled", "queued", "retrying")
_ENDED: Final = ("completed", "failed", "cancelled")


@dataclass(frozen=True, slots=True, kw_only=True)
class Verb:
    """One act on jobs.

    Attributes:
        name: as start_bulk has it.
        label: as a button of one job says it.
        count: the same of so many jobs, with their number left out.
        means: what it does to them, for the question.
        done: what was done to so many.
        states: in which jobs it is of use.
        is_asked: whether it asks before a single job too.
        is_grave: whether nothing brings back what is gone.
    """

    name: str
    permission: str
    run: Callable[[Actor, Iterable[UUID]], ActReport]
    label: Any
    count: Callable[[int], str]
    means: Any
    done: Callable[[int], str]
    states: tuple[str, ...]
    is_asked: bool = False
    is_grave: bool = False

    def of(self, count: int) -> str:
        """Return what a button over so many jobs says."""
        return self.count(count) % {"count": f"{count:,}"}

    @property
    def of_ticked(self) -> str:
        """What it says where the script fills in the number, at %s."""
        return self.count(2) % {"count": "%s"}

    @property
    def of_one(self) -> str:
        return self.of(1)


VERBS: Final[Mapping[str, Verb]] = {
    verb.name: verb
    for verb in (
        Verb(
            name="retry",
            permission="retry_job",
            run=operations.retry_jobs,
            label=gettext_lazy("Retry"),
            count=lambda n: ngettext("Retry %(count)s job", "Retry %(count)s jobs", n),
            means=gettext_lazy("The same job runs again, with its whole retry budget."),
            done=lambda n: ngettext(
                "%(count)s job is ready again.", "%(count)s jobs are ready again.", n
            ),
            states=("failed", "cancelled"),
        ),
        Verb(
            name="replay",
            permission="retry_job",
            run=operations.replay_jobs,
            label=gettext_lazy("Replay"),
            count=lambda n: ngettext(
                "Replay %(count)s job", "Replay %(count)s jobs", n
            ),
            means=gettext_lazy("A new job like it is enqueued; this one stays."),
            done=lambda n: ngettext(
                "%(count)s job was replayed.", "%(count)s jobs were replayed.", n
            ),
            states=_ENDED,
        ),
        Verb(
            name="run_now",
            permission="retry_job",
            run=operations.run_jobs_now,
            label=gettext_lazy("Run now"),
            count=lambda n: ngettext(
                "Run %(count)s job now", "Run %(count)s jobs now", n
            ),
            means=gettext_lazy("It does not wait until it is due."),
            done=lambda n: ngettext(
                "%(count)s job is ready.", "%(count)s jobs are ready.", n
            ),
            states=("scheduled", "retrying"),
        ),
        Verb(
            name="cancel",
            permission="cancel_job",
            run=operations.cancel_jobs,
            label=gettext_lazy("Cancel"),
            count=lambda n: ngettext(
                "Cancel %(count)s job", "Cancel %(count)s jobs", n
            ),
            means=gettext_lazy(
                "What waits does not start. What runs is asked to stop, within seconds "
                "where Python can do it."
            ),
            done=lambda n: ngettext(
                "%(count)s job was cancelled.", "%(count)s jobs were cancelled.", n
            ),
            states=(*_WAITING, "running"),
            is_asked=True,
        ),
        Verb(
            name="delete",
            permission="delete_job",
            run=operations.delete_jobs,
            label=gettext_lazy("Delete"),
            count=lambda n: ngettext(
                "Delete %(count)s job", "Delete %(count)s jobs", n
            ),
            means=gettext_lazy(
                "It is gone for good, with its attempts, logs, steps and history."
            ),
            done=lambda n: ngettext(
                "%(count)s job was deleted.", "%(count)s jobs were deleted.", n
            ),
            states=(*_WAITING, *_ENDED),
            is_asked=True,
            is_grave=True,
        ),
    )
}


def verbs_for(actor: Actor, states: Iterable[str] | None) -> list[Verb]:
    """Return what the actor may do to jobs in some of these states; None is any."""
    wanted = None if states is None else frozenset(states)
    return [
        verb
        for verb in VERBS.values()
        if actor.may(verb.permission)
        and (wanted is None or wanted.intersection(verb.states))
    ]


def report_of(verb: Verb, report: ActReport) -> tuple[SafeString, int]:
    """Return what became of it, with a way to the jobs; and its level."""
    count = len(report.done)
    said: list[Any] = []
    if count or not report.asked:
        said.append(verb.done(count) % {"count": f"{count:,}"})
    if asked := len(report.asked):
        text = ngettext("%(count)s was asked to stop.", "%(count)s were asked.", asked)
        said.append(text % {"count": f"{asked:,}"})
    if report.skipped:
        reasons = Counter(skip.reason for skip in report.skipped)
        listed = ", ".join(f"{n:,} {why}" for why, n in sorted(reasons.items()))
        text = _("{count} left as they were: {reasons}.")
        said.append(text.format(count=f"{len(report.skipped):,}", reasons=listed))
    told = format_html("{}", " ".join(said))
    touched = [*report.done, *report.asked]
    if len(touched) == 1 and not verb.is_grave:
        told = format_html("{} {}", told, job_link(touched[0]))
    elif touched and not verb.is_grave:
        ids = ",".join(job_id.hex for job_id in touched)  # 100 fit into an address
        where = link("jobs", query=urlencode({"q": f"id:{ids}"}))
        told = format_html('{} <a href="{}">{}</a>', told, where, _("Show these jobs"))
    return told, messages.WARNING if report.skipped else messages.SUCCESS


def job_link(job_id: UUID) -> SafeString:
    return format_html('<a href="{}">{}</a>', link("job", job_id), job_id)
