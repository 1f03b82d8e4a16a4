"""Reads that stay quick at millions of rows and take whatever rows hold."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime, timedelta
from typing import Any, Final, overload
from uuid import UUID

import psycopg.errors
from django.db import OperationalError, connections, models, transaction
from django.db.models.functions import Left

from relay.engine.connection import check_vendor
from relay.exceptions import ReadTimeout
from relay.instants import aware
from relay.queries.documents import CountDocument
from relay.redaction import redact_value
from relay.sensitive import MASK

__all__ = [
    "COUNT_CAP",
    "CUT",
    "LOOK_SECONDS",
    "SHOWN_CHARACTERS",
    "bounded_read",
    "clamped",
    "counted",
    "cut",
    "instant",
    "payload",
    "pretty",
    "reading_together",
    "seconds",
    "shown_text",
    "small",
    "text_id",
    "texted",
    "value_of",
]

# A list counts no further: "10,000+". Source: docs/reference/admin.md, "Counts".
COUNT_CAP: Final = 10_000
# Longest that the statements of one list may take each.
LOOK_SECONDS: Final = 2
BOUND: Final = """
SELECT set_config('statement_timeout', %(timeout)s, true),
       set_config('enable_seqscan', 'off', true),
       set_config('enable_bitmapscan', %(bitmaps)s, true),
       set_config('enable_sort', %(bitmaps)s, true),
       set_config('random_page_cost', '1', true),
       statement_timestamp()
"""
# Of a text or a JSON document that is shown as text, so many characters are fetched.
SHOWN_CHARACTERS: Final = 20_000
# In a list a JSON document that takes more in its row stands as CUT.
SMALL_BYTES: Final = 2_000
CUT: Final = "…"

# What Python and every time zone can show; PostgreSQL's times go further, to infinity.
_FIRST: Final = datetime(1, 1, 2, tzinfo=UTC)
_LAST: Final = datetime(9999, 12, 30, tzinfo=UTC)
# Python refuses to read longer ones. Source: sys.set_int_max_str_digits.
_LONGEST_INTEGER: Final = 4_300


@contextmanager
def bounded_read(alias: str, *, bitmaps: bool = False) -> Iterator[datetime]:
    """Read in a transaction whose statements end after LOOK_SECONDS.

    It gives the database's time, in UTC.

    The planner is kept on the index that gives a list its order: its statistics are
    old at the moment of a burst, and a plan that sorts reads every row there is. Nor
    does it prefer the primary key for lying in the order of the table. The settings
    end with the block.

    Args:
        bitmaps: whether the index gives no order, as a GIN index: what it finds is
            sorted.

    Raises:
        ReadTimeout: a statement took longer.
    """
    together = _together.get()
    if together is None:
        with _bounded(alias, bitmaps=bitmaps) as now:
            yield now
    else:
        with together.read(alias, bitmaps=bitmaps) as now:
            yield now


@contextmanager
def _bounded(alias: str, *, bitmaps: bool) -> Iterator[datetime]:
    values = {
        "timeout": str(int(LOOK_SECONDS * 1_000)),
        "bitmaps": "on" if bitmaps else "off",
    }
    check_vendor(alias)
    try:
        with transaction.atomic(using=alias):
            with connections[alias].cursor() as cursor:
                cursor.execute(BOUND, values)
                [(*_, now)] = cursor.fetchall()
            yield aware(now)
            # Nothing was written. Inside the caller's transaction only this takes the
            # settings back.
            transaction.set_rollback(True, using=alias)
    except OperationalError as error:
        if not isinstance(error.__cause__, psycopg.errors.QueryCanceled):
            raise
        raise ReadTimeout(LOOK_SECONDS) from error


class _Together:
    """The transaction that reads share, as long as they are of one kind."""

    def __init__(self) -> None:
        self._open = ExitStack()
        self._kind: tuple[str, bool] | None = None
        self._now: datetime | None = None
        self._depth = 0

    @contextmanager
    def read(self, alias: str, *, bitmaps: bool) -> Iterator[datetime]:
        """As bounded_read(); after an error the next one begins anew."""
        kind = (alias, bitmaps)
        if self._depth and kind != self._kind:  # within one of another kind
            with _bounded(alias, bitmaps=bitmaps) as now:
                yield now
            return
        if self._now is None or kind != self._kind:
            self.close()
            self._now = self._open.enter_context(_bounded(alias, bitmaps=bitmaps))
            self._kind = kind
        self._depth += 1
        try:
            yield self._now
        except BaseException:
            self._now = None
            self._open.__exit__(*sys.exc_info())  # may raise what it means
            raise
        finally:
            self._depth -= 1

    def close(self) -> None:
        self._now = None
        self._open.close()


_together: ContextVar[_Together | None] = ContextVar("relay_reads", default=None)


@contextmanager
def reading_together() -> Iterator[None]:
    """Let the reads within share a transaction where they are alike.

    For an answer of several reads: what each bounded_read() asks the database besides
    is asked once. Nothing within may write.
    """
    together = _Together()
    token = _together.set(together)
    try:
        yield
    finally:
        _together.reset(token)
        together.close()


# --- columns -------------------------------------------------------------------------


def clamped(name: str) -> models.Expression:
    """Return a time column, with what Python cannot hold as the nearest it can."""
    return models.Case(
        models.When(**{f"{name}__gt": _LAST}, then=models.Value(_LAST)),
        models.When(**{f"{name}__lt": _FIRST}, then=models.Value(_FIRST)),
        default=models.F(name),
        output_field=models.DateTimeField(),
    )


def cut(expression: str | models.Expression) -> models.Expression:
    """Return a text column up to one character more than is shown."""
    return Left(expression, SHOWN_CHARACTERS + 1)


def pretty(name: str) -> models.Expression:
    """Return a JSON column as indented text, cut where cut() does."""
    return cut(
        models.Func(
            models.F(name), function="jsonb_pretty", output_field=models.TextField()
        )
    )


def texted(name: str) -> models.Expression:
    """Return a JSON column as text, for value_of(): psycopg cannot read all of them."""
    return models.Func(
        models.F(name),
        template="%(expressions)s::text",
        output_field=models.TextField(),
    )


def small(name: str) -> models.Expression:
    """Return a JSON column as text, or CUT as JSON where the row holds a large one."""
    return models.Func(
        models.F(name),
        template=(
            f"CASE WHEN pg_column_size(%(expressions)s) > {SMALL_BYTES} "
            f"THEN '\"{CUT}\"' ELSE %(expressions)s::text END"
        ),
        output_field=models.TextField(),
    )


# --- values --------------------------------------------------------------------------


@overload
def instant(value: datetime) -> str: ...
@overload
def instant(value: None) -> None: ...
def instant(value: datetime | None) -> str | None:
    """Return a time as RFC 3339 in UTC with Z."""
    if value is None:
        return None
    return aware(value).isoformat().removesuffix("+00:00") + "Z"


@overload
def seconds(value: timedelta | int) -> float: ...
@overload
def seconds(value: None) -> None: ...
def seconds(value: timedelta | int | None) -> float | None:
    """Return a span, or a number of milliseconds, as seconds."""
    if value is None:
        return None
    return value / 1_000 if isinstance(value, int) else value.total_seconds()


def shown_text(text: str | None) -> str | None:
    """Return a text from cut(), with CUT where it was cut."""
    if text is None or len(text) <= SHOWN_CHARACTERS:
        return text
    return text[:SHOWN_CHARACTERS] + CUT


def text_id(value: UUID | None) -> str | None:
    """Return an id as a text."""
    return None if value is None else str(value)


def counted(found: int, *, cap: int = COUNT_CAP, more: bool = False) -> CountDocument:
    """Return a count of at most cap + 1 rows.

    Args:
        more: whether there may be more all the same.
    """
    return {"count": min(found, cap), "capped": more or found > cap}


def value_of(text: str | None) -> Any:
    """Return the value of a JSON document; CUT where Python cannot hold it."""
    if text is None:
        return None
    try:
        return json.loads(text, parse_int=_integer, parse_float=_float)
    except (ValueError, RecursionError):
        return CUT


def payload(text: str | None, *, shown: bool) -> Any:
    """Return a document as a person may see it, from texted() or small().

    Args:
        shown: whether they have view_payload.
    """
    if text is None:
        return None
    if not shown:
        return MASK
    try:
        return redact_value(value_of(text))
    except RecursionError:
        return CUT


def _integer(text: str) -> int | str:
    return int(text) if len(text) <= _LONGEST_INTEGER else text


def _float(text: str) -> float | str:
    value = float(text)
    return value if math.isfinite(value) else text
