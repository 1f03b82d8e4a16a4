"""Encrypt what is sensitive by the current key, so that an old one can be removed."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

from django.db import connections, transaction

from relay import sensitive
from relay.exceptions import DecodeError

__all__ = ["BATCH", "Resealed", "reseal"]

BATCH: Final = 1_000
_LAST: Final = UUID(int=2**128 - 1)

# Primary key: a stretch of it by the number of its rows, sensitive or not, so that no
# statement reads the whole table.
STRETCH: Final = """
SELECT id FROM relay_job WHERE id > %(after)s ORDER BY id OFFSET %(batch)s - 1 LIMIT 1
"""
# Locked in the order of the ids, as every act on many jobs. A claim passes by.
FIND: Final = """
SELECT id, CASE WHEN args ? 'sealed' THEN args::text END,
       CASE WHEN result->>'__relay__' = 'sealed' THEN result::text END
FROM relay_job
WHERE id > %(after)s AND id <= %(until)s
  AND (args ? 'sealed' OR result->>'__relay__' = 'sealed')
ORDER BY id
FOR NO KEY UPDATE
"""
RESEAL: Final = """
UPDATE relay_job
SET args = coalesce(%(args)s::jsonb, args), result = coalesce(%(result)s::jsonb, result)
WHERE id = %(id)s
"""

# Index: relay_step_name_idx. After the jobs' rows, in the order of their ids.
FIND_STEPS: Final = """
SELECT id, job_id, name, value::text FROM relay_step
WHERE job_id > %(after)s AND job_id <= %(until)s AND value->>'__relay__' = 'sealed'
ORDER BY job_id, name
FOR NO KEY UPDATE
"""
RESEAL_STEP: Final = "UPDATE relay_step SET value = %(value)s::jsonb WHERE id = %(id)s"


@dataclass(frozen=True, slots=True)
class Resealed:
    """What became of one stretch of jobs.

    Attributes:
        last: the id to go on after; None at the end of the table.
        changed: jobs that are encrypted by the current key now.
        unreadable: jobs whose ciphertext was altered or moved; left as they are.
    """

    last: UUID | None
    changed: int
    unreadable: tuple[UUID, ...]


def reseal(*, after: UUID | None = None, batch: int = BATCH, using: str) -> Resealed:
    """Encrypt a stretch of jobs anew where another than the current key did.

    Args:
        after: begin after this job; None begins at the first.
        batch: how many rows to look at.

    Raises:
        MissingKey: a key is not at hand in this process; nothing was changed.
        SettingsError: there is no key.

    Transaction: joins the caller's on Django's connection, or its own.
    """
    with transaction.atomic(using=using), connections[using].cursor() as cursor:
        values: dict[str, Any] = {"after": after or UUID(int=0), "batch": batch}
        cursor.execute(STRETCH, values)
        row = cursor.fetchone()
        last = None if row is None else row[0]
        stretch = {**values, "until": last or _LAST}
        changed, unreadable = set[UUID](), set[UUID]()
        cursor.execute(FIND, stretch)
        for job_id, args, result in cursor.fetchall():
            try:
                made = _resealed(job_id, args, result)
            except DecodeError:
                unreadable.add(job_id)
                continue
            if made is not None:
                cursor.execute(RESEAL, made)
                changed.add(job_id)
        cursor.execute(FIND_STEPS, stretch)
        for step_id, job_id, name, value in cursor.fetchall():
            try:
                again = sensitive.reseal_step(json.loads(value), job_id, name)
            except DecodeError:
                unreadable.add(job_id)
                continue
            if again is not None:
                values = {"id": step_id, "value": json.dumps(again)}
                cursor.execute(RESEAL_STEP, values)
                changed.add(job_id)
    return Resealed(last, len(changed), tuple(sorted(unreadable)))


def _resealed(
    job_id: UUID, args: str | None, result: str | None
) -> dict[str, Any] | None:
    made = args and sensitive.reseal_arguments(json.loads(args), job_id, job_id)
    again = result and sensitive.reseal_result(json.loads(result), job_id)
    if not made and not again:
        return None
    return {
        "id": job_id,
        "args": json.dumps(made) if made else None,
        "result": json.dumps(again) if again else None,
    }
