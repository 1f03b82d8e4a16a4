"""What a task is told of a job that has failed for good."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

from asgiref.sync import sync_to_async
from django.db import connections

from relay import sensitive
from relay.codec import register
from relay.conf import get_settings
from relay.exceptions import JobNotFound

__all__ = ["Failure"]

# Primary key.
_READ_ARGUMENTS: Final = "SELECT args::text FROM relay_job WHERE id = %(id)s"


@register
@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A job that has failed for good: what the task named by on_failure is given.

    Attributes:
        job_id: the job; its row is there for its retention.
        task, queue: of the job.
        attempt: how often it was started.
        error_class: the name of the last error's class.
        error_message: of that error, without what is sensitive.
    """

    job_id: UUID
    task: str
    queue: str
    attempt: int
    error_class: str | None
    error_message: str | None

    def arguments(self) -> tuple[list[Any], dict[str, Any]]:
        """Read the arguments of the job that failed: those by place, those by name.

        Raises:
            JobNotFound: its row has outlived its retention.
            DecodeError: they cannot be turned back into values here.
            MissingKey: some are encrypted, and their key is not at hand here.
        """
        with connections[get_settings().database].cursor() as cursor:
            cursor.execute(_READ_ARGUMENTS, {"id": self.job_id})
            row = cursor.fetchone()
        if row is None:
            raise JobNotFound(self.job_id)
        return sensitive.decode_arguments(json.loads(row[0]), self.job_id)

    async def aarguments(self) -> tuple[list[Any], dict[str, Any]]:
        """As arguments, for async code."""
        return await sync_to_async(self.arguments, thread_sensitive=True)()
