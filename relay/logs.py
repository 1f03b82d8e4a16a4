"""The log of one attempt: what its handler logs and prints, kept beside the job.

What belongs to an attempt is told by a context variable, so threads and coroutines that
share the handler's context are heard, and other jobs of the process are not. The hooks
into logging and sys.stdout are there only while some attempt is captured.
"""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections import deque
from collections.abc import Mapping, MutableMapping
from contextvars import ContextVar
from typing import Any, Final, TextIO

from relay.packing import clean_text

__all__ = ["Capture", "JobLog", "begin", "end"]

# Of one line; a longer one is cut. Source: docs/howto/job-logs.md.
LINE_LIMIT: Final = 8_000
LINES_LIMIT: Final = 2_000


class Capture:
    """The lines of one attempt: of many the first and the last, half of each.

    Args:
        limit_bytes: most bytes that are kept.
        with_stdout: whether what is printed belongs to it.
    """

    def __init__(self, *, limit_bytes: int, with_stdout: bool = False) -> None:
        self.with_stdout = with_stdout
        self._half_bytes = limit_bytes // 2
        # In characters of up to four bytes: one line always fits.
        self._line_limit = min(LINE_LIMIT, self._half_bytes // 4)
        self._head: list[str] = []
        self._tail: deque[str] = deque()
        self._head_bytes = self._tail_bytes = self._left_out = 0
        self._is_head_full = False
        self._printed = ""

    def add(self, text: str) -> None:
        """Take in the lines of a record. One caller at a time."""
        for line in text.splitlines() or [""]:
            self._add_line(clean_text(line, limit=self._line_limit))

    def _add_line(self, line: str) -> None:
        size = len(line.encode()) + 1
        if not self._is_head_full:
            if (
                self._head_bytes + size <= self._half_bytes
                and len(self._head) < LINES_LIMIT // 2
            ):
                self._head.append(line)
                self._head_bytes += size
                return
            self._is_head_full = True
        self._tail.append(line)
        self._tail_bytes += size
        while self._tail and (
            self._tail_bytes > self._half_bytes or len(self._tail) > LINES_LIMIT // 2
        ):
            self._tail_bytes -= len(self._tail.popleft().encode()) + 1
            self._left_out += 1

    def print(self, text: str) -> None:
        """Take in what was printed; a line is added once it is whole."""
        _handler.acquire()
        try:
            *lines, self._printed = (self._printed + text).split("\n")
            for line in lines:
                _handler.handle(_record("stdout", line))
            if len(self._printed) > LINE_LIMIT:
                self.flush()
        finally:
            _handler.release()

    def flush(self) -> None:
        """Add what was printed without a line's end."""
        rest, self._printed = self._printed, ""
        if rest:
            _handler.handle(_record("stdout", rest))

    def text(self) -> str:
        """Return what is kept, a line each; "" if nothing was told."""
        left_out = [f"… {self._left_out:,} lines left out …"] * bool(self._left_out)
        return "\n".join([*self._head, *left_out, *self._tail])


_capture: ContextVar[Capture] = ContextVar("relay_capture")


def _record(name: str, message: str) -> logging.LogRecord:
    return logging.makeLogRecord(
        {"name": name, "levelno": logging.INFO, "levelname": "PRINT", "msg": message}
    )


class _Formatter(logging.Formatter):
    """UTC, as the times of rows; a person's zone is not the worker's."""

    converter = staticmethod(time.gmtime)
    default_time_format = "%Y-%m-%dT%H:%M:%S"
    default_msec_format = "%s.%03dZ"


class _Handler(logging.Handler):
    """Gives each record to the attempt that it belongs to, if that is captured."""

    def emit(self, record: logging.LogRecord) -> None:
        capture = _capture.get(None)
        if capture is not None:
            try:
                capture.add(self.format(record))
            except Exception:  # an edge: arguments that do not fit their message
                self.handleError(record)


_handler: Final = _Handler()
_handler.setFormatter(_Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))


class _Stdout:
    """sys.stdout, which a captured attempt's lines pass on their way."""

    def __init__(self, inner: TextIO | None) -> None:
        self.inner = inner  # None where a handler, or a daemon, has left none

    def write(self, text: str) -> int:
        capture = _capture.get(None)
        if capture is not None and capture.with_stdout:
            capture.print(text)
        return len(text) if self.inner is None else self.inner.write(text)

    def flush(self) -> None:
        if self.inner is not None:
            self.inner.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


_lock: Final = threading.Lock()
# Attempts that are being captured, and those of them whose prints are.
_running = {"logs": 0, "stdout": 0}


def begin(capture: Capture) -> None:
    """Capture what is logged in this context from now on; end() must follow."""
    with _lock:
        _running["logs"] += 1
        if _running["logs"] == 1:
            logging.getLogger().addHandler(_handler)
        if capture.with_stdout:
            _running["stdout"] += 1
            # A handler's own redirection may have put back one that was left behind.
            if _running["stdout"] == 1 and not isinstance(sys.stdout, _Stdout):
                sys.stdout = _Stdout(sys.stdout)
    _capture.set(capture)


def end(capture: Capture) -> str:
    """Stop capturing; return the text."""
    capture.flush()
    with _lock:
        _running["logs"] -= 1
        if _running["logs"] == 0:
            logging.getLogger().removeHandler(_handler)
        if capture.with_stdout:
            _running["stdout"] -= 1
            if _running["stdout"] == 0 and isinstance(sys.stdout, _Stdout):
                sys.stdout = sys.stdout.inner
    return capture.text()


class JobLog(logging.LoggerAdapter[logging.Logger]):
    """The log of the job that is running: the logger relay.job, told which job it is.

    Where the job's log is captured it takes records from INFO on, whatever level the
    project's logging has; others go where the project's logging sends them.
    """

    def __init__(self, fields: Mapping[str, object]) -> None:
        super().__init__(logging.getLogger("relay.job"), fields)

    def process(
        self, msg: Any, kwargs: MutableMapping[str, Any]
    ) -> tuple[Any, MutableMapping[str, Any]]:
        kwargs["extra"] = {**(kwargs.get("extra") or {}), **(self.extra or {})}
        return msg, kwargs

    def isEnabledFor(self, level: int) -> bool:
        return super().isEnabledFor(level) or self._is_only_captured(level)

    def _is_only_captured(self, level: int) -> bool:
        return level >= logging.INFO and _capture.get(None) is not None

    def log(self, level: int, msg: object, *args: object, **kwargs: Any) -> None:
        if self.logger.isEnabledFor(level):
            super().log(level, msg, *args, **kwargs)
        elif self._is_only_captured(level):
            record = self.logger.makeRecord(
                self.logger.name, level, "", 0, msg, args, _exc_info(kwargs)
            )
            _handler.handle(record)


def _exc_info(kwargs: Mapping[str, Any]) -> Any:
    error = kwargs.get("exc_info")
    if isinstance(error, BaseException):
        return type(error), error, error.__traceback__
    return error if isinstance(error, tuple) or not error else sys.exc_info()
