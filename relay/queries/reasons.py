"""Reasons in words, kept apart from what stands in them: pages translate those."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from relay.queries.documents import Cause
from relay.queries.reading import instant

__all__ = ["Reason", "Sentence"]


@dataclass(frozen=True, slots=True)
class Sentence:
    """What is said, in English; a page may say it otherwise.

    Attributes:
        text: with places in braces, as str.format() has them.
        values: what stands in those: texts, numbers, times, or sentences.
    """

    text: str
    values: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        values = {name: _plain(value) for name, value in self.values.items()}
        return self.text.format(**values)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reason:
    """A Cause whose texts are not put together yet."""

    cause: str
    summary: Sentence
    remedy: Sentence
    detail: Mapping[str, Any]

    @classmethod
    def of(
        cls,
        cause: str,
        summary: str,
        remedy: str,
        said: Mapping[str, Any] | None = None,
        **detail: Any,
    ) -> Reason:
        """Return a reason.

        Args:
            said: what stands in the texts and is not of the detail.
        """
        values = {**detail, **(said or {})}
        return cls(
            cause=cause,
            summary=Sentence(summary, values),
            remedy=Sentence(remedy, values),
            detail=detail,
        )

    def told(self) -> Cause:
        """Return it as a document, in English."""
        return {
            "cause": self.cause,
            "summary": str(self.summary),
            "remedy": str(self.remedy),
            "detail": {
                name: instant(value) if isinstance(value, datetime) else value
                for name, value in self.detail.items()
            },
        }


def _plain(value: Any) -> str:
    if isinstance(value, datetime):
        return str(instant(value))
    return f"{value:,}" if isinstance(value, int) else str(value)
