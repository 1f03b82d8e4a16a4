"""Output to a terminal that may be closed before the worker has ended."""

from __future__ import annotations

import errno
import io
import os
import sys
from typing import Any, Final

__all__ = ["outlive_terminal"]

# The streams in use before: their end would close the descriptors.
_before: Final[list[io.TextIOWrapper]] = []


def outlive_terminal() -> None:
    """Have what is printed dropped once the terminal that shows it is closed.

    Otherwise a handler that prints while the worker drains fails by OSError. Processes
    that are forked later write in the same way.
    """
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if isinstance(stream, io.TextIOWrapper) and _is_terminal(stream):
            stream.flush()
            _before.append(stream)
            setattr(sys, name, _outliving(stream))


def _is_terminal(stream: io.TextIOWrapper) -> bool:
    return not stream.closed and stream.isatty()


def _outliving(stream: io.TextIOWrapper) -> io.TextIOWrapper:
    raw = _Terminal(stream.fileno(), "w", closefd=False)
    return io.TextIOWrapper(
        raw if stream.write_through else io.BufferedWriter(raw),  # as python -u has it
        encoding=stream.encoding,
        errors=stream.errors,
        line_buffering=stream.line_buffering,
        write_through=stream.write_through,
    )


class _Terminal(io.FileIO):
    """A terminal that is /dev/null, for all of this process, once it is closed."""

    def write(self, data: Any) -> int:
        try:
            return super().write(data)
        except OSError as error:
            if error.errno != errno.EIO:
                raise
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, self.fileno())
        os.close(null)
        return super().write(data)
