"""The first line of an error's message, which tells failures of one class apart."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Final

from django.db import models
from django.db.models.lookups import In

__all__ = ["FIRST_LINE", "first_line", "has_first_line"]

# Looked for among so many characters, and so many of it tell it from others.
LOOKED_AT: Final = 1_000
CHARACTERS: Final = 200

# Without a message it is empty. FIRST_LINE and first_line() agree on every text: what a
# group of failures shows is what the filter term error_line: finds.
_LINE_OF: Final = f"""
left(split_part(translate(
    ltrim(left(coalesce(%(expressions)s, ''), {LOOKED_AT}), E' \\t\\r\\n'),
    E'\\r', E'\\n'), E'\\n', 1), {CHARACTERS})
"""
# Of relay_job's column, for SQL that is written out.
FIRST_LINE: Final = _LINE_OF.replace("%(expressions)s", "error_message")


def first_line(text: str) -> str:
    """Return the first line of a message that is not blank, up to 200 characters."""
    head = text[:LOOKED_AT].lstrip(" \t\r\n")
    return re.split(r"[\r\n]", head, maxsplit=1)[0][:CHARACTERS]


def has_first_line(lines: Collection[str]) -> models.Q:
    """Return the condition that a job's last error has one of these first lines."""
    found = models.Func(
        models.F("error_message"),
        template=_LINE_OF,
        output_field=models.TextField(),
    )
    return models.Q(In(found, list(lines)))
