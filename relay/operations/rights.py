"""Which tasks somebody may have run, and in which queues, besides relay's permissions.

A task may ask for a permission of the host's, and so may a queue. Code that enqueues is
asked for none; each act that puts a job somewhere is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

from relay.conf import get_settings
from relay.engine.connection import fetch_all
from relay.exceptions import StateConflict
from relay.tasks import all_tasks

__all__ = ["Rights", "asked_permissions", "fits", "parted"]

# Primary key.
_CALLED: Final = """
SELECT id, task, queue, state FROM relay_job WHERE id = ANY(%(ids)s::uuid[]) ORDER BY id
"""


def permission_of_task(task: str) -> str | None:
    """Return what a task asks for; None also of one that is not registered here."""
    made = all_tasks().get(task)
    return None if made is None else made.permission


def asked_permissions() -> frozenset[str]:
    """Return all permissions of the host's that a task or a queue asks for."""
    of_tasks = {each.permission for each in list(all_tasks().values())}
    asked = of_tasks | {*get_settings().queue_permissions.values()}
    return frozenset(each for each in asked if each is not None)


def fits(task: str, pattern: str) -> bool:
    """Tell whether a name is the pattern, or begins as one that ends in * does."""
    if pattern.endswith("*"):
        return task.startswith(pattern[:-1])
    return task == pattern


@dataclass(frozen=True, slots=True, kw_only=True)
class Rights:
    """What somebody may have run, and where.

    Attributes:
        permissions: those of the host's that they have; None of a token, which has
            those of the tasks and queues that it names in full.
        tasks: names and patterns such as mail.*, of a token that is for no others.
        queues: of a token that is for no others.
    """

    permissions: frozenset[str] | None = frozenset()
    tasks: tuple[str, ...] | None = None
    queues: frozenset[str] | None = None

    def has_task(self, task: str) -> bool:
        """Tell whether they may have the task run."""
        tasks = self.tasks
        if tasks is not None and not any(fits(task, each) for each in tasks):
            return False
        # What ends in * is a pattern of a token's, also where a task is called so.
        is_named = task in (tasks or ()) and not task.endswith("*")
        return self._has(permission_of_task(task), is_named)

    def has_queue(self, queue: str) -> bool:
        """Tell whether they may put a job into the queue."""
        if self.queues is not None and queue not in self.queues:
            return False
        asked = get_settings().queue_permissions.get(queue)
        return self._has(asked, self.queues is not None)

    def _has(self, asked: str | None, is_named: bool) -> bool:
        if asked is None:
            return True
        return is_named if self.permissions is None else asked in self.permissions

    def covers(self, pattern: str) -> bool:
        """Tell whether a token of theirs may be for what the pattern means."""
        if not pattern.endswith("*"):
            return self.has_task(pattern)
        # Without the tasks that ask for a permission, which no pattern names in full.
        tasks = self.tasks
        return tasks is None or any(
            each.endswith("*") and fits(pattern[:-1], each) for each in tasks
        )

    @property
    def is_limited(self) -> bool:
        """Whether there may be something that they may not have run."""
        limits = (self.tasks, self.queues)
        return limits != (None, None) or bool(asked_permissions())

    def document(self) -> dict[str, Any]:
        """Return it as JSON carries it; of_document reads it."""
        return {
            "permissions": None if self.permissions is None else [*self.permissions],
            "tasks": None if self.tasks is None else [*self.tasks],
            "queues": None if self.queues is None else [*self.queues],
        }

    @classmethod
    def of_document(cls, document: Mapping[str, Any]) -> Rights:
        """Return what document() wrote."""
        permissions, tasks = document["permissions"], document["tasks"]
        queues = document["queues"]
        return cls(
            permissions=None if permissions is None else frozenset(permissions),
            tasks=None if tasks is None else tuple(tasks),
            queues=None if queues is None else frozenset(queues),
        )


def parted(
    rights: Rights | None, ids: Sequence[UUID], *, using: str
) -> tuple[Sequence[UUID], tuple[StateConflict, ...]]:
    """Return the jobs whose like somebody may have run, and why not of the others.

    Args:
        rights: None may have everything run.
    """
    if rights is None or not rights.is_limited:
        return ids, ()
    refused = {
        job_id: StateConflict(
            job_id, "replay", state, reason="needs a permission that is missing"
        )
        for job_id, task, queue, state in fetch_all(_CALLED, {"ids": ids}, using=using)
        if not (rights.has_task(task) and rights.has_queue(queue))
    }
    return [each for each in ids if each not in refused], tuple(refused.values())
