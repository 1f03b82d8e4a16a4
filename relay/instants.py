"""Times with their zone: as settings have them without one, and as people type them."""

from __future__ import annotations

from datetime import UTC, datetime

from django.core.exceptions import ValidationError
from django.utils import timezone

__all__ = ["aware", "typed"]


def aware(at: datetime) -> datetime:
    """Return a time in UTC; without a zone it is in the project's, as USE_TZ says.

    Raises:
        OverflowError: in UTC it is before the year 1, or after 9999.
    """
    return (timezone.make_aware(at) if timezone.is_naive(at) else at).astimezone(UTC)


def typed(at: datetime | None, refusal: str) -> datetime | None:
    """Return a time out of a form's field in UTC; None of an empty one.

    Raises:
        ValidationError: there is no such time; it says the refusal.
    """
    try:
        return None if at is None else aware(at)
    except OverflowError as error:
        raise ValidationError(refusal, "invalid") from error
