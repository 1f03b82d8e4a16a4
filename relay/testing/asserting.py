"""Assert what was enqueued, and what a task makes of its arguments."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from relay import sensitive
from relay.codec import decode_arguments
from relay.exceptions import RelayError
from relay.models import Job
from relay.tasks import Task, all_tasks
from relay.testing.running import perform
from relay.testing.session import alias_of

__all__ = [
    "approx",
    "assert_enqueued",
    "assert_idempotent",
    "assert_roundtrips",
    "enqueued",
    "refute_enqueued",
]

# Jobs that a failure shows.
SHOWN: Final = 3


class approx:
    """Equals every instant near one, or near so long from now.

    Args:
        value: an aware datetime, or a timedelta from now.
        within: how far off is still near.
    """

    def __init__(
        self,
        value: datetime | timedelta,
        *,
        within: timedelta = timedelta(seconds=10),
    ) -> None:
        if isinstance(value, timedelta):
            value = datetime.now(UTC) + value
        self._value = value
        self._within = within

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, datetime):
            return NotImplemented
        return abs(other - self._value) <= self._within

    __hash__ = None  # type: ignore[assignment] # equal to many, so of no one hash

    def __repr__(self) -> str:
        return f"approx({self._value.isoformat()}, within {self._within})"


class _Any:
    """In a wanted job: not asked for."""

    def __repr__(self) -> str:
        return "anything"


_ANY: Final[Any] = _Any()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wanted:
    """What a job must be; its columns by name, and its arguments."""

    task: Any
    args: Any
    queue: Any
    priority: Any
    run_at: Any
    state: Any
    tags: Any

    def __str__(self) -> str:
        asked = [
            f"{item.name}={getattr(self, item.name)!r}"
            for item in fields(self)
            if getattr(self, item.name) is not _ANY
        ]
        return f"a job with {', '.join(asked)}" if asked else "a job"

    def differences(self, job: Job) -> list[str]:
        """Say in what the job is another; nothing if it is one of those wanted."""
        found = [
            f"{name}: wanted {wanted!r}, is {getattr(job, name)!r}"
            for name in ("task", "queue", "priority", "run_at", "state")
            if (wanted := getattr(self, name)) is not _ANY
            and wanted != getattr(job, name)
        ]
        if self.tags is not _ANY and not set(self.tags) <= set(job.tags or ()):
            found.append(f"tags: wanted {list(self.tags)!r}, is {job.tags or []!r}")
        return found if self.args is _ANY else [*found, *_compare(self.args, job)]


def _compare(wanted: Any, job: Job) -> Iterator[str]:
    try:
        args, kwargs = sensitive.decode_arguments(job.args, job.id)
    except RelayError as error:
        yield f"args: cannot be read: {error}"
        return
    if not isinstance(wanted, Mapping):
        if list(wanted) != args:
            yield f"args: wanted {list(wanted)!r}, is {args!r}"
        return
    named = _named(job.task, args, kwargs)
    for name, value in wanted.items():
        if name not in named:
            yield f"args[{name!r}]: wanted {value!r}, is not there; there is {named!r}"
        elif value != named[name]:
            yield f"args[{name!r}]: wanted {value!r}, is {named[name]!r}"


def _named(task: str, args: list[Any], kwargs: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments by the names of the task's parameters, defaults too."""
    made = all_tasks().get(task)
    if made is None:
        return kwargs
    try:
        bound = made.signature.bind(*args, **kwargs)
    except TypeError:
        return kwargs
    bound.apply_defaults()
    named = dict(bound.arguments)
    for parameter in made.signature.parameters.values():
        if parameter.kind is parameter.VAR_KEYWORD:
            named |= named.pop(parameter.name)
    return named


def _want(
    task: Task[..., Any] | str | None,
    args: Mapping[str, Any] | Sequence[Any] | None,
    options: dict[str, Any],
) -> _Wanted:
    if isinstance(args, str):
        raise TypeError(f"args={args!r}: give a dict by parameter, or a list of all")
    if isinstance(options["tags"], str):
        raise TypeError(f"tags={options['tags']!r}: give a list of them")
    return _Wanted(
        task=_ANY if task is None else getattr(task, "name", task),
        args=_ANY if args is None else args,
        **options,
    )


def _jobs(using: str | None) -> list[Job]:
    return list(Job.objects.using(alias_of(using)).order_by("created_at", "id"))


def enqueued(
    task: Task[..., Any] | str | None = None,
    *,
    args: Mapping[str, Any] | Sequence[Any] | None = None,
    queue: Any = _ANY,
    priority: Any = _ANY,
    run_at: Any = _ANY,
    state: Any = _ANY,
    tags: Any = _ANY,
    using: str | None = None,
) -> list[Job]:
    """Return the jobs that are like this, oldest first, whatever became of them.

    Args:
        task: a task, or the name of one.
        args: a dict compares only the parameters it names, a list all positional ones.
        run_at: an instant, or approx(...).
        state: as 'queued', for those that still wait.
        tags: a job must have all of these; it may have others.
    """
    wanted = _want(
        task,
        args,
        {
            "queue": queue,
            "priority": priority,
            "run_at": run_at,
            "state": state,
            "tags": tags,
        },
    )
    return [job for job in _jobs(using) if not wanted.differences(job)]


def assert_enqueued(
    task: Task[..., Any] | str | None = None,
    *,
    args: Mapping[str, Any] | Sequence[Any] | None = None,
    queue: Any = _ANY,
    priority: Any = _ANY,
    run_at: Any = _ANY,
    state: Any = _ANY,
    tags: Any = _ANY,
    count: int | None = None,
    using: str | None = None,
) -> list[Job]:
    """Fail unless jobs like this were enqueued; return them. Arguments as enqueued().

    Args:
        count: how many, exactly; at least one unless given.
    """
    __tracebackhide__ = True
    wanted = _want(
        task,
        args,
        {
            "queue": queue,
            "priority": priority,
            "run_at": run_at,
            "state": state,
            "tags": tags,
        },
    )
    jobs = _jobs(using)
    found = [job for job in jobs if not wanted.differences(job)]
    if len(found) == count or (count is None and found):
        return found
    many = "none" if not found else str(len(found))
    number = "at least 1" if count is None else str(count)
    raise AssertionError(
        f"wanted {number} of {wanted}; found {many}.\n{_nearest(wanted, jobs)}"
    )


def refute_enqueued(
    task: Task[..., Any] | str | None = None,
    *,
    args: Mapping[str, Any] | Sequence[Any] | None = None,
    queue: Any = _ANY,
    priority: Any = _ANY,
    run_at: Any = _ANY,
    state: Any = _ANY,
    tags: Any = _ANY,
    using: str | None = None,
) -> None:
    """Fail if a job like this was enqueued. Arguments as enqueued()."""
    __tracebackhide__ = True
    wanted = _want(
        task,
        args,
        {
            "queue": queue,
            "priority": priority,
            "run_at": run_at,
            "state": state,
            "tags": tags,
        },
    )
    found = [job for job in _jobs(using) if not wanted.differences(job)]
    if found:
        lines = "\n".join(map(_line, found[:SHOWN]))
        raise AssertionError(f"wanted no {wanted}; found {len(found)}:\n{lines}")


def _line(job: Job) -> str:
    return f"  {job.task} {job.id} {job.state} in {job.queue}, {job.args}"


def _nearest(wanted: _Wanted, jobs: list[Job]) -> str:
    """List the jobs that differ least, each with what differs."""
    if not jobs:
        return "No job was enqueued at all."
    apart = [(wanted.differences(job), job) for job in jobs]
    # Another task is further off than any other difference.
    apart.sort(key=lambda pair: (wanted.task not in (_ANY, pair[1].task), len(pair[0])))
    lines = [f"The nearest of {len(jobs)}:"]
    for differences, job in apart[:SHOWN]:
        lines += [_line(job), *(f"    {text}" for text in differences or ["it is one"])]
    return "\n".join(lines)


# --- what a task makes of its arguments ----------------------------------------------


def assert_idempotent(
    task: Task[..., Any],
    *args: Any,
    probe: Callable[[], object],
    kwargs: Mapping[str, Any] | None = None,
) -> None:
    """Run the task twice, and fail unless the probe says the same after both.

    Args:
        probe: returns what must not change, such as the rows it has made.
    """
    __tracebackhide__ = True
    seen: list[object] = []
    for attempt in (1, 2):
        outcome = perform(task, *args, kwargs=kwargs, attempt=attempt, failures=0)
        if outcome.error is not None:
            raise AssertionError(
                f"{task.name} raised in run {attempt} of 2: {outcome.error!r}"
            ) from outcome.error
        seen.append(probe())
    if seen[0] != seen[1]:
        raise AssertionError(
            f"{task.name} is not idempotent: after one run the probe said {seen[0]!r}, "
            f"after the second {seen[1]!r}"
        )


def assert_roundtrips(
    task: Task[..., Any], *args: Any, kwargs: Mapping[str, Any] | None = None
) -> None:
    """Fail unless the handler would be given arguments equal to these.

    Raises:
        ArgumentError: they do not fit the task's signature.
        EncodeError: one cannot be carried; its path is named.
    """
    __tracebackhide__ = True
    given = dict(kwargs or {})
    back, keywords = decode_arguments(json.loads(task.job(*args, **given).args))
    pairs = [
        (f"args[{place}]", *pair)
        for place, pair in enumerate(zip(args, back, strict=True))
    ]
    pairs += [(f"kwargs[{name!r}]", given[name], keywords[name]) for name in given]
    for path, before, after in pairs:
        if before != after or type(before) is not type(after):
            raise AssertionError(
                f"{path} of {task.name} changes on its way: {before!r} arrives as "
                f"{after!r}"
            )
