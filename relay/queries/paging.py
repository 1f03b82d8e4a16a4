"""Pages by the place of their last row: as quick far back as at the front.

An order is that of an index. A page behind a row is found by ranges, with which the
index is entered one after the other: no one condition does that over columns of which
some rise and some fall.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal
from uuid import UUID

from django.db import DataError, models
from django.db.models.expressions import Combinable, OrderBy, RawSQL
from django.db.models.functions import Cast

from relay.exceptions import ArgumentError

__all__ = ["MOST_ROWS", "Page", "read_page"]

MOST_ROWS: Final = 500

# Where the columns of an order are not unique, the rows' places in the table tell them
# apart: an index has its equals in this order. Source: PostgreSQL, nbtree/README.
PLACE: Final = "ctid"
_UNIQUE: Final = frozenset({"id", "name", "ready_seq"})
_PLACE: Final = re.compile(r"\(\d{1,10},\d{1,5}\)")
_KEY: Final = "page_key_"
_LONGEST_CURSOR: Final = 2_000
_MOST_DIGITS: Final = 20

_Range = tuple[models.Q, tuple[str | OrderBy, ...]]


@dataclass(frozen=True, slots=True)
class Page:
    """Rows as dicts, and the cursors of the pages around them."""

    rows: list[dict[str, Any]]
    next: str | None
    previous: str | None


@dataclass(frozen=True, slots=True)
class _Cursor:
    """A place in an order: behind, or before, the row with this key."""

    backward: bool
    order: tuple[str, ...]
    key: tuple[str, ...]

    def __str__(self) -> str:
        document = json.dumps([int(self.backward), self.order, self.key])
        return base64.urlsafe_b64encode(document.encode()).decode().rstrip("=")


def read_page(
    rows: models.QuerySet[Any],
    order: Sequence[str],
    columns: Sequence[str],
    *,
    shown: Mapping[str, Combinable],
    limit: int,
    cursor: str | None,
) -> Page:
    """Return a page of rows.

    Args:
        order: as for order_by(); an index gives it.
        columns: what to read of each row.
        shown: what to read besides, by its name, which is no column's.
        cursor: next or previous of another page in this order; None is the first.

    Raises:
        ArgumentError: the limit or the cursor cannot be used.
    """
    most = _checked(limit)
    full = (*order, *(() if _UNIQUE & {_bare(name) for name in order} else (PLACE,)))
    at = None if cursor is None else _parsed(cursor, full)
    keys = {f"{_KEY}{place}": _as_text(name) for place, name in enumerate(full)}
    rows = rows.annotate(**shown, **keys)
    found: list[dict[str, Any]] = []
    try:
        for condition, by in _ranges(rows.model, full, at):
            part = rows.filter(condition).order_by(*by)
            part = part.values(*columns, *shown, *keys)
            found += part[: most + 1 - len(found)]
            if len(found) > most:
                break
    except DataError as error:  # a time in a cursor that is none
        raise _unreadable(cursor) from error
    return _page(found, most, full, at)


def _page(
    found: list[dict[str, Any]], limit: int, order: tuple[str, ...], at: _Cursor | None
) -> Page:
    has_more = len(found) > limit
    del found[limit:]
    is_backward = at is not None and at.backward
    if is_backward:
        found.reverse()
    keys = [
        tuple(row.pop(f"{_KEY}{place}") for place in range(len(order))) for row in found
    ]
    has_next = has_more or is_backward
    has_previous = has_more if is_backward else at is not None
    return Page(
        found,
        _cursor(False, order, keys[-1]) if has_next and keys else None,
        _cursor(True, order, keys[0]) if has_previous and keys else None,
    )


def _cursor(
    backward: bool, order: tuple[str, ...], key: tuple[str | None, ...]
) -> str | None:
    known = tuple(part for part in key if part is not None)
    if len(known) < len(order):
        return None  # a row made by hand, of which an index's order ends
    return str(_Cursor(backward, order, known))


def _checked(limit: object) -> int:
    if (
        not isinstance(limit, bool)
        and isinstance(limit, int)
        and 1 <= limit <= MOST_ROWS
    ):
        return limit
    raise ArgumentError(f"limit={limit!r}: give a whole number from 1 to {MOST_ROWS}")


def _bare(name: str) -> str:
    return name.removeprefix("-")


def _as_text(name: str) -> Combinable:
    if name == PLACE:
        return RawSQL('"relay_job"."ctid"::text', [], models.TextField())
    return Cast(_bare(name), models.TextField())


def _ranges(
    model: type[models.Model], order: tuple[str, ...], at: _Cursor | None
) -> Iterator[_Range]:
    """Yield the ranges behind, or before, a place, each with its order.

    The first has all columns but the last one equal, the last none.
    """
    by = tuple(name for name in order if name != PLACE)
    if at is None:
        yield models.Q(), by
        return
    if at.backward:
        by = tuple(name[1:] if name.startswith("-") else f"-{name}" for name in by)
    values = [
        _value(model, name, text) for name, text in zip(order, at.key, strict=True)
    ]
    for last in reversed(range(len(order))):
        equal = {_bare(name): values[place] for place, name in enumerate(order[:last])}
        condition, name = models.Q(**equal), order[last]
        if name != PLACE:
            word = "lt" if name.startswith("-") != at.backward else "gt"
            condition &= models.Q(**{f"{_bare(name)}__{word}": values[last]})
            yield condition, by
        elif at.backward:
            # Where all columns are equal their order says nothing of the places'.
            places = RawSQL('"relay_job"."ctid"', []).desc()
            yield condition & _beyond(values[last], "<"), (places,)
        else:
            yield condition & _beyond(values[last], ">"), by


def _beyond(place: str, sign: Literal["<", ">"]) -> models.Q:
    # Hidden in a CASE: seen, it draws the planner from the index to the table.
    hidden = f'CASE WHEN "relay_job"."ctid" {sign} %s::tid THEN true ELSE false END'
    is_beyond = RawSQL(hidden, [place], models.BooleanField())  # noqa: S611 - one of two
    return models.Q(is_beyond)


# --- cursors, which anybody may write ------------------------------------------------


def _unreadable(cursor: str | None) -> ArgumentError:
    return ArgumentError(
        f"cursor={str(cursor)[:100]!r} is of no page of this list: take next or "
        "previous of one, or ask for the first page without it"
    )


def _parsed(cursor: str, order: tuple[str, ...]) -> _Cursor:
    try:
        if len(cursor) > _LONGEST_CURSOR:
            raise ValueError
        padded = cursor + "=" * (-len(cursor) % 4)
        backward, names, key = json.loads(
            base64.urlsafe_b64decode(padded.encode("ascii"))
        )
        is_key = isinstance(key, list) and all(isinstance(part, str) for part in key)
        if backward not in (0, 1) or tuple(names) != order or not is_key:
            raise ValueError
        if len(key) != len(order) or any("\x00" in part for part in key):
            raise ValueError
        "".join(key).encode()  # which no lone surrogate is
    except (ValueError, TypeError, RecursionError):
        raise _unreadable(cursor) from None
    return _Cursor(bool(backward), order, tuple(key))


def _value(model: type[models.Model], name: str, text: str) -> Any:
    """Return a part of a key as the value that its column is compared with.

    Raises:
        ArgumentError: it is none.
    """
    try:
        if name == PLACE:
            if not _PLACE.fullmatch(text):
                raise ValueError
            return text
        field = model._meta.get_field(_bare(name))
        if isinstance(field, models.UUIDField):
            return UUID(text)
        if isinstance(field, models.IntegerField):
            if len(text) > _MOST_DIGITS:
                raise ValueError
            return int(text)
    except ValueError:
        raise _unreadable(text) from None
    if isinstance(field, models.DateTimeField):
        # As PostgreSQL has written it: Python cannot hold every time.
        return Cast(models.Value(text), models.DateTimeField())
    return text
