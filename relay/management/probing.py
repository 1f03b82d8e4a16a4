"""What relay_worker and relay_scheduler share: the options for probes."""

from __future__ import annotations

import argparse
import socket
from functools import partial

from django.core.management.base import CommandError, CommandParser

from relay import metrics
from relay.probes import bind, register

__all__ = ["add_probe_arguments", "bind_probes", "clear_metrics", "show_gauges"]


def add_probe_arguments(parser: CommandParser) -> None:
    """Add --probe-port and --probe-file."""
    parser.add_argument(
        "--probe-port",
        type=_port,
        metavar="[HOST:]PORT",
        help="answer GET /livez, /readyz, /statusz and /metrics here, without any "
        "login: give a HOST such as 127.0.0.1 where strangers could ask",
    )
    parser.add_argument(
        "--probe-file",
        metavar="PATH",
        help="write the answers to this file every second, for probes without a port",
    )


def bind_probes(address: tuple[str, int] | None) -> socket.socket | None:
    """Return a socket that listens; None if nobody asked for one.

    Raises:
        CommandError: the port cannot be had.
    """
    if address is None:
        return None
    host, port = address
    try:
        return bind(port, host)
    except OSError as error:
        raise CommandError(
            f"--probe-port {host}{':' if host else ''}{port} cannot be used: {error}"
        ) from error


def clear_metrics() -> None:
    """Remove what processes that are gone have left in PROMETHEUS_MULTIPROC_DIR."""
    if metrics.is_available():
        from relay.metrics.exposition import clear_stale_files  # needs the extra

        clear_stale_files()


def show_gauges(alias: str) -> None:
    """Have /metrics of this process show the database's gauges too."""
    from relay.metrics.collector import Collector  # needs the extra
    from relay.metrics.exposition import render

    register("/metrics", partial(render, collector=Collector(alias)))


def _port(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if port.isascii() and port.isdigit() and 0 <= int(port) <= 65_535:
        return host.strip("[]"), int(port)
    raise argparse.ArgumentTypeError(
        f"{text!r} is no port from 0 to 65535, nor host:port"
    )
