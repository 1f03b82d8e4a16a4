"""Health: of the server or the project, or of one worker by what it says itself."""

from __future__ import annotations

import argparse
import json
import time
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any, Final

from relay.cli.errors import UnhealthyError, UnreachableError
from relay.cli.printer import Document
from relay.cli.session import Session
from relay.cli.tree import Branch

__all__ = ["grow"]

# For an answer of a worker that is near, and most of it.
_PROBE_SECONDS: Final = 5.0
_MOST_BYTES: Final = 16 * 1024 * 1024
# A worker writes its file every second. Source: docs/howto/watch.md, "Probes".
_SILENT_SECONDS: Final = 30.0


def grow(root: Branch) -> None:
    """Add the verb."""
    health = root.verb(
        "health",
        _health,
        "tell whether relay, or one worker, is well",
        details="Tell whether the server or project can do its work, or with "
        "--probe-port or --probe-file whether a worker can. The exit code is 9 if not.",
    )
    where = health.add_mutually_exclusive_group()
    where.add_argument(
        "--probe-port",
        type=_address,
        metavar="[HOST:]PORT",
        help="ask the worker or scheduler that answers probes there",
    )
    where.add_argument(
        "--probe-file", metavar="PATH", help="read the file that one writes"
    )
    what = health.add_mutually_exclusive_group()
    what.add_argument(
        "--live", action="store_true", help="whether it answers, or has to be restarted"
    )
    what.add_argument(
        "--ready",
        action="store_true",
        help="whether it can do its work: the database answers and fits, all children "
        "of a worker are there (default)",
    )


def _address(text: str) -> tuple[str, int]:
    host, _, number = text.rpartition(":")
    if number.isascii() and number.isdigit() and 0 < int(number[:6]) < 65_536:
        return host or "127.0.0.1", int(number)
    raise argparse.ArgumentTypeError(f"{text!r} is no port: write 8001 or HOST:8001")


def _health(session: Session) -> None:
    options = session.options
    if options.probe_port or options.probe_file:
        document = _probed(options.probe_port, options.probe_file)
        is_well = bool(document["live" if options.live else "ready"])
        reasons = list(document.get("reasons", ()))
        silent_for = time.time() - document["at"]
        if silent_for > _SILENT_SECONDS:
            is_well, reasons = False, [f"it is silent for {silent_for:.0f} s"]
    else:
        document = session.transport.get_health(is_live=options.live)
        is_well = document["status"] == "ok"
        reasons = list(document.get("reasons", ()))
    session.show(
        document, lambda _: session.printer.line("ok" if is_well else "not well")
    )
    if not is_well:
        raise UnhealthyError("; ".join(map(str, reasons)) or "it is not well")


def _probed(address: tuple[str, int] | None, file: str | None) -> Document:
    """Return what a worker says of itself: by the standard library alone."""
    place = str(file) if address is None else f"{address[0]}:{address[1]}"
    try:
        text = _asked(*address) if address else Path(str(file)).read_bytes()
        found: Any = json.loads(text)
        return {
            **found,
            "live": found["live"],
            "ready": found["ready"],
            "at": float(found["at"]),
        }
    except (OSError, HTTPException) as error:
        raise UnreachableError(f"no worker answers at {place}: {error}") from None
    except (ValueError, TypeError, KeyError, RecursionError):
        raise UnreachableError(f"what answers at {place} is no worker") from None


def _asked(host: str, port: int) -> bytes:
    # It is on this machine, or near: no proxy is asked.
    connection = HTTPConnection(host, port, timeout=_PROBE_SECONDS)
    try:
        connection.request("GET", "/statusz")
        return connection.getresponse().read(_MOST_BYTES)
    finally:
        connection.close()
