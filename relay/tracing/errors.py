"""What was raised, as OpenTelemetry is told of it: in the span, as a log, or both.

Source: docs/reference/spans.md, "Errors".
"""

from __future__ import annotations

import traceback
from typing import Final

from opentelemetry import _logs, trace
from opentelemetry._logs import LoggerProvider, SeverityNumber
from opentelemetry.trace import Span, StatusCode

from relay.tracing.edge import edge, opted_in, version

__all__ = ["Errors"]

SIGNAL: Final = "OTEL_SEMCONV_EXCEPTION_SIGNAL_OPT_IN"
# What nobody else catches is an error; who enqueues may.
_SEVERITIES: Final = {"process": SeverityNumber.ERROR}


class Errors:
    """Records errors, as the project's environment asks for when this is made.

    Args:
        provider: of logs; the global one unless given.
    """

    def __init__(self, provider: LoggerProvider | None = None) -> None:
        self._provider = provider
        asked = opted_in(SIGNAL)
        self._is_in_span = "logs/dup" in asked or "logs" not in asked
        self._is_log = not asked.isdisjoint({"logs", "logs/dup"})
        self._logger = _logs.get_logger("relay", version(), provider)

    @property
    def provider(self) -> LoggerProvider:
        """Where logs go."""
        return self._provider or _logs.get_logger_provider()

    def note(
        self,
        span: Span,
        operation: str,
        error: BaseException,
        *,
        is_quoted: bool = True,
    ) -> None:
        """Mark a span as failed, and record why.

        Args:
            is_quoted: whether the error's message and traceback may be told, or its
                class alone.
        """
        with edge():
            span.set_attribute("error.type", type(error).__name__)
            span.set_status(StatusCode.ERROR)
            if self._is_in_span and is_quoted:
                span.record_exception(error)
            if self._is_log:
                self._log(span, operation, error, is_quoted=is_quoted)

    def _log(
        self, span: Span, operation: str, error: BaseException, *, is_quoted: bool
    ) -> None:
        kind = type(error)
        is_plain = kind.__module__ == "builtins"
        attributes = {
            "exception.type": kind.__qualname__
            if is_plain
            else f"{kind.__module__}.{kind.__qualname__}"
        }
        if is_quoted:
            attributes["exception.message"] = str(error)
            lines = traceback.format_exception(error)
            attributes["exception.stacktrace"] = "".join(lines)
        severity = _SEVERITIES.get(operation, SeverityNumber.WARN)
        self._logger.emit(
            context=trace.set_span_in_context(span),
            severity_number=severity,
            severity_text=severity.name,
            attributes=attributes,
            event_name=f"messaging.{operation}.exception",
        )
