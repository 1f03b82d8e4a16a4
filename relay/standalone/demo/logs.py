"""Log lines with the values that relay puts into extra."""

from __future__ import annotations

import logging
from typing import Final

__all__ = ["ExtraFormatter"]

_ALWAYS: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime"}


class ExtraFormatter(logging.Formatter):
    """Adds each value of extra as name=value."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        values = (
            f" {name}={value}"
            for name, value in vars(record).items()
            if name not in _ALWAYS
        )
        return super().formatMessage(record) + "".join(values)
