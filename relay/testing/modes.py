"""What an enqueue does in a test: run the job, keep it, or as in production."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from typing import Any, Final, Literal, TypeVar, cast, get_args
from unittest import mock
from uuid import UUID

from asgiref.sync import iscoroutinefunction

from relay.conf import get_settings
from relay.engine import enqueue, outside, wakeup
from relay.engine.new_job import NewJob
from relay.testing.running import run_inline

__all__ = ["Mode", "follow_setting", "mode"]

Mode = Literal["inline", "manual", "off"]

CalledT = TypeVar("CalledT", bound=Callable[..., Any])

# Those entered and not left, the innermost last; of the whole process, so that it
# holds in the threads of a live server too.
_entered: Final[list[Mode]] = []
# What RELAY["TEST_MODE"] says: it holds below those, as long as the setting does.
_set: Final[list[Mode]] = []
_patches = ExitStack()


def follow_setting() -> None:
    """Let the mode that RELAY["TEST_MODE"] names hold, or none."""
    named = get_settings().test_mode
    has_begun = bool(_set or _entered)
    _set[:] = [] if named is None else [named]
    _hold(has_begun)


class mode:
    """Say what an enqueue does, for a block or a decorated test; they may nest.

    Each makes the row. inline runs the job at once, in the caller's transaction, if it
    is ready, and raises what its handler raises, a Retry aside. manual leaves it to
    drain() and run_job(), and sends no wake-up. off is as in production. In both of the
    others outside_transaction joins the caller's, as its row would outlive the test.
    """

    def __init__(self, name: Mode) -> None:
        if name not in get_args(Mode):
            raise ValueError(f"{name!r} is no mode: {', '.join(get_args(Mode))}")
        self._name = name

    def __enter__(self) -> None:
        has_begun = bool(_set or _entered)
        _entered.append(self._name)
        _hold(has_begun)

    def __exit__(self, *_: object) -> None:
        _entered.pop()
        _hold(True)

    def __call__(self, called: CalledT) -> CalledT:
        if isinstance(called, type):
            raise TypeError(
                f"mode({self._name!r}) on the class {called.__qualname__}: decorate "
                "its tests, or use RelayTestMixin and its relay_mode"
            )
        if iscoroutinefunction(called):

            @functools.wraps(called)
            async def arun(*args: Any, **kwargs: Any) -> Any:
                with mode(self._name):
                    return await called(*args, **kwargs)

            return cast("CalledT", arun)

        @functools.wraps(called)
        def run(*args: Any, **kwargs: Any) -> Any:
            with mode(self._name):
                return called(*args, **kwargs)

        return cast("CalledT", run)


def _hold(has_begun: bool) -> None:
    """Stand in for the engine's enqueue as long as there is a mode."""
    is_wanted = bool(_set or _entered)
    if is_wanted and not has_begun:
        _install()
    elif has_begun and not is_wanted:
        _patches.close()


def _current() -> Mode:
    return (_entered or _set)[-1]


def _install() -> None:
    insert, insert_many = enqueue.insert, enqueue.insert_many
    insert_new, insert_ready = enqueue.insert_new, enqueue.insert_ready
    announce, insert_outside = wakeup.announce, outside.insert

    def _insert(job: NewJob, *, using: str) -> Any:
        done: Any = insert(job, using=using)
        _after([job.id], using)
        return done

    def _insert_new(row: enqueue.ReadyRow, *, using: str) -> None:
        insert_new(row, using=using)
        _after([row[0]], using)

    def _insert_ready(rows: Iterable[enqueue.ReadyRow], *, using: str) -> None:
        made = list(rows)
        insert_ready(made, using=using)
        _after([row[0] for row in made], using)

    def _insert_many(jobs: Sequence[NewJob], *, using: str) -> Any:
        done: Any = insert_many(jobs, using=using)
        _after([job.id for job in jobs], using)
        return done

    def _insert_outside(job: NewJob, *, using: str) -> None:
        if _current() == "off":
            insert_outside(job, using=using)
        else:
            _insert(job, using=using)

    def _announce(*args: Any, **kwargs: Any) -> None:
        if _current() == "off":
            announce(*args, **kwargs)

    for module, name, instead in (
        (enqueue, "insert", _insert),
        (enqueue, "insert_many", _insert_many),
        (enqueue, "insert_new", _insert_new),
        (enqueue, "insert_ready", _insert_ready),
        (outside, "insert", _insert_outside),
        (wakeup, "announce", _announce),
    ):
        _patches.enter_context(mock.patch.object(module, name, instead))


def _after(ids: Sequence[UUID], alias: str) -> None:
    if _current() == "inline":
        for job_id in ids:
            run_inline(job_id, alias)
