"""Jobs by what they have in common: which, in which order, by which index.

Made by relay.operations.filters out of text. No text of a user becomes the name of a
column: what a term's name stands for is written here.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final
from uuid import UUID

from django.db import models
from django.db.models.functions import Coalesce
from django.db.models.lookups import In
from django.utils import timezone

from relay.exceptions import ArgumentError
from relay.ids import read_id
from relay.models import FINAL_STATES, Job, Occurrence, Schedule, Worker
from relay.operations.first_line import has_first_line
from relay.sensitive import MASK

__all__ = [
    "ORDERS",
    "FilterError",
    "IdPrefix",
    "JobFilter",
    "Term",
    "exactly",
    "in_marks",
    "quoted",
]

# What no index serves is looked for among this many of the newest jobs.
NEWEST: Final = 50_000
# Of a schedule, the jobs of so many of its latest occurrences.
LATEST_OCCURRENCES: Final = 1_000
# Free words are looked for in the errors of jobs that ended so long ago at most.
WORDS_WITHIN: Final = timedelta(hours=24)
# States whose jobs an index finds, however few of them have the rest.
_WHOLE: Final = frozenset(
    {
        *("blocked", "scheduled", "retrying", "queued", "running"),
        *("failed", "cancelled"),
    }
)
_ENDED: Final = frozenset(state.value for state in FINAL_STATES)
# The order that an index gives, so that a list reads no more rows than it shows.
_ORDERS: Final[Mapping[str, tuple[str, ...]]] = {
    "scheduled": ("run_at",),  # relay_job_due_idx
    "retrying": ("run_at",),  # relay_job_retrying_idx
    "queued": ("queue", "-priority", "ready_seq"),  # relay_job_ready_idx
    "running": ("queue", "worker_id"),  # relay_job_held_idx
    "completed": ("-finished_at", "-id"),  # relay_job_final_idx
}
_NEWEST_FIRST: Final = ("-id",)
# Qualifiers that lead to their jobs by an index without an order.
_FOUND: Final = frozenset({"id", "tag", "replay_of", "schedule", "unique_key"})
# What a list may be asked to be ordered by, of what its own index gives.
ORDERS: Final[Mapping[str, tuple[str, ...]]] = {
    "id": ("id",),
    "-id": _NEWEST_FIRST,
    "run_at": ("run_at",),
    "finished_at": ("finished_at", "id"),
    "-finished_at": ("-finished_at", "-id"),
}


class FilterError(ArgumentError):
    """A filter that cannot be read.

    Attributes:
        qualifier: the part that is wrong, or None.
    """

    def __init__(self, message: str, qualifier: str | None = None) -> None:
        super().__init__(message)
        self.qualifier = qualifier


class IdPrefix(str):
    """The first digits of ids, without hyphens."""

    __slots__ = ()

    @property
    def condition(self) -> models.Q:
        """What has to hold of an id that begins so."""
        return models.Q(
            pk__gte=UUID(self.ljust(32, "0")), pk__lte=UUID(self.ljust(32, "f"))
        )


@dataclass(frozen=True, slots=True)
class Term:
    """One part: a qualifier and what its value may be, one of several."""

    name: str
    values: tuple[Any, ...]

    @property
    def is_of_payload(self) -> bool:
        """Whether it is about what only some may see: arguments, or their hash."""
        return self.name.startswith("args.") or self.name == "unique_key"

    def __str__(self) -> str:
        return f"{self.name}:" + ",".join(quoted(_text(each)) for each in self.values)


@dataclass(frozen=True, slots=True)
class JobFilter:
    """Which jobs; made by parse().

    Attributes:
        terms: what has to hold, all of it.
        words: what their errors must say.
    """

    terms: tuple[Term, ...]
    words: tuple[str, ...] = ()

    def __str__(self) -> str:
        """Return the filter as text that means the same at any later time."""
        return " ".join([*map(str, self.terms), *map(in_marks, self.words)])

    def told(self) -> str:
        """Return it as text for who may not see arguments, and for the record."""
        terms = (
            f"{term.name}:{MASK}" if term.is_of_payload else str(term)
            for term in self.terms
        )
        return " ".join([*terms, *map(in_marks, self.words)])

    @property
    def is_empty(self) -> bool:
        """Whether all jobs are meant."""
        return not (self.terms or self.words)

    @property
    def permissions(self) -> frozenset[str]:
        """What an actor needs to ask this: of arguments or their hash, to see them."""
        has_payload = any(term.is_of_payload for term in self.terms)
        return frozenset({"view_payload"} if has_payload else ())

    @property
    def states(self) -> frozenset[str] | None:
        """The states that the jobs may be in; None where that is not said."""
        found: frozenset[str] | None = None
        for term in self.terms:
            if term.name == "state":
                given = frozenset(term.values)
            elif term.name in ("finished_after", "finished_before"):
                given = _ENDED
            else:
                continue
            found = given if found is None else found & given
        if self.words:
            found = _ENDED if found is None else found & _ENDED
        if found is None and any(term.name == "worker" for term in self.terms):
            found = frozenset({"running"})
        return found

    @property
    def is_windowed(self) -> bool:
        """Whether only the newest NEWEST jobs are searched: no index finds the rest."""
        names = {term.name for term in self.terms}
        if names & _FOUND or not (names or self.words):
            return False
        if names & {"finished_after"} or self.words:
            return False
        states = self.states
        if states is not None and len(states) == 1 and states <= _WHOLE:
            return False
        of_index = {"state", "finished_before"}  # relay_job_final_idx
        return states != frozenset({"completed"}) or not names <= of_index

    def conditions(self, *, without_states: bool = False) -> models.Q:
        """Return what has to hold, apart from the window."""
        found = models.Q()
        for term in self.terms:
            if term.name != "state":
                found &= _condition(term)
        for word in self.words:
            found &= models.Q(error_message__icontains=word)
        if self.words and not any(t.name == "finished_after" for t in self.terms):
            found &= models.Q(finished_at__gte=timezone.now() - WORDS_WITHIN)
        states = self.states
        if states is not None and not without_states:
            found &= models.Q(state__in=sorted(states))
        return found

    def jobs(self, *, using: str) -> models.QuerySet[Job]:
        """Return the jobs, in the order that an index gives."""
        rows = self.among(Job.objects.using(using), using=using)
        return rows.order_by(*self.order)

    def among(self, rows: models.QuerySet[Job], *, using: str) -> models.QuerySet[Job]:
        """Return those of the rows that are meant, in whatever order they have."""
        rows = rows.filter(self.conditions())
        if self.states == frozenset({"queued"}):
            rows = rows.filter(concurrency_key__isnull=True)  # as the index says
        names = {term.name for term in self.terms}
        if names & _FOUND == {"schedule"}:
            rows = rows.filter(pk__in=self._latest_of_schedules(using))
        if self.is_windowed:
            newest = Job.objects.using(using).order_by("-id").values("id")
            edge = models.Subquery(newest[NEWEST : NEWEST + 1])
            first = Coalesce(edge, models.Value(UUID(int=0)))
            rows = rows.filter(pk__gte=first)
        return rows

    @property
    def order(self) -> tuple[str, ...]:
        """The order of jobs()."""
        names = {term.name for term in self.terms}
        if self.is_windowed or names & _FOUND:
            return _NEWEST_FIRST
        states = self.states
        if states is not None and len(states) == 1:
            return _ORDERS.get(next(iter(states)), _NEWEST_FIRST)
        ended = bool(self.words) or "finished_after" in names
        return _ORDERS["completed"] if ended else _NEWEST_FIRST

    def ordered(self, by: str) -> tuple[str, ...]:
        """Return the order that a word of ORDERS stands for.

        Raises:
            FilterError: there is no such word, or the index of this list gives it not.
        """
        mine = self.order
        given = {
            word: order
            for word, order in ORDERS.items()
            if order[0].lstrip("-") == mine[0].lstrip("-")
        }
        if by not in given:
            words = " or ".join(given) or "its own order alone"
            raise FilterError(
                f"order={by!r}: the index of this list gives {words}; a state, or when "
                "a job ended, leads to another index",
                "order",
            )
        return given[by]

    @property
    def needs_bitmaps(self) -> bool:
        """Whether an index without an order finds the jobs, so that they are sorted."""
        names = {term.name for term in self.terms}
        return bool(names & _FOUND)

    def _latest_of_schedules(self, using: str) -> list[UUID]:
        # Index: relay_occurrence_once, from its end.
        names = [
            n for term in self.terms if term.name == "schedule" for n in term.values
        ]
        schedules = Schedule.objects.using(using).filter(name__in=names)
        found: list[UUID] = []
        for schedule_id in schedules.values_list("pk", flat=True):
            rows = Occurrence.objects.using(using).filter(
                schedule_id=schedule_id, job_id__isnull=False
            )
            latest = rows.order_by("-due_at").values_list("job_id", flat=True)
            found += latest[:LATEST_OCCURRENCES]
        return found


# --- what each part means ------------------------------------------------------------

_COMPARED: Final = {
    "created_after": "created_at__gte",
    "created_before": "created_at__lt",
    "finished_after": "finished_at__gte",
    "finished_before": "finished_at__lt",
    "run_at_after": "run_at__gte",
    "run_at_before": "run_at__lt",
}
# At the end of a task's name: the star itself, not all names that begin so.
_STAR: Final = r"\*"
_PLAIN: Final = re.compile(r'[^\s,"]+')
_EQUAL: Final = {
    "queue": "queue__in",
    "replay_of": "replay_of__in",
}


def _condition(term: Term) -> models.Q:
    if (column := _EQUAL.get(term.name)) is not None:
        return models.Q(**{column: list(term.values)})
    if (column := _COMPARED.get(term.name)) is not None:
        return _any(models.Q(**{column: value}) for value in term.values)
    if term.name == "id":
        return _of_ids(term.values)
    if term.name == "error":
        return _of_class(term.values)
    if term.name == "error_line":
        return has_first_line(term.values)
    if term.name == "task":
        return _any(_of_task(value) for value in term.values)
    if term.name == "unique_key":  # relay_job_unique_idx
        return models.Q(unique_key__in=[bytes.fromhex(each) for each in term.values])
    if term.name == "tag":  # relay_job_tags_idx
        return _any(models.Q(tags__contains=[value]) for value in term.values)
    if term.name == "worker":
        return _any(_of_worker(value) for value in term.values)
    if term.name == "schedule":
        rows = Schedule.objects.filter(name__in=term.values)
        return models.Q(schedule_id__in=rows.values("pk"))
    return _of_argument(term)


def _any(conditions: Iterable[models.Q]) -> models.Q:
    found = models.Q()
    for condition in conditions:
        found |= condition
    return found


def _of_ids(values: Iterable[UUID | IdPrefix]) -> models.Q:
    given = list(values)
    whole = [each for each in given if isinstance(each, UUID)]
    parts = [each.condition for each in given if isinstance(each, IdPrefix)]
    return _any([*([models.Q(pk__in=whole)] if whole else []), *parts])


def _of_task(value: str) -> models.Q:
    if value.endswith(_STAR):
        return models.Q(task=value.removesuffix(_STAR) + "*")
    if value.endswith("*"):
        return models.Q(task__startswith=value[:-1])
    return models.Q(task=value)


def _of_class(values: Collection[str]) -> models.Q:
    found = models.Q(error_class__in=list(values))
    return found | models.Q(error_class__isnull=True) if "" in values else found


def _of_worker(value: str) -> models.Q:
    worker_id = read_id(value)
    if worker_id is not None:
        return models.Q(worker_id=worker_id)
    rows = Worker.objects.filter(name=value)
    return models.Q(worker_id__in=rows.values("pk"))


def _of_argument(term: Term) -> models.Q:
    """Return the condition on an argument: its name, or its place; both are values."""
    first, *rest = term.name.split(".")[1:]
    path = ["args" if first.isdigit() else "kwargs", first, *rest]
    value = models.Func(
        models.F("args"),
        *(models.Value(step) for step in path),
        function="jsonb_extract_path_text",
        output_field=models.TextField(),
    )
    return models.Q(In(value, list(term.values)))


def _text(value: Any) -> str:
    if isinstance(value, datetime):
        return value.isoformat().replace("+00:00", "Z")
    return str(value)


def exactly(task: str) -> str:
    """Return the value of task: that means this one only, whatever ends its name."""
    return task.removesuffix("*") + _STAR if task.endswith("*") else task


def quoted(text: str) -> str:
    """Return a text as one value, whatever it holds: parse() reads the same text."""
    return text if _PLAIN.fullmatch(text) else in_marks(text)


def in_marks(text: str) -> str:
    """Return a text between quotation marks; one that is within stands twice."""
    return '"' + text.replace('"', '""') + '"'
