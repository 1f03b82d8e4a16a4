"""Tasks that print once the test says so."""

from __future__ import annotations

import logging
import sys
import time
from pathlib import Path

from relay import task
from tests.worker.effects import note


def _print_late(path: str) -> None:
    note("start")
    while not Path(path).exists():
        time.sleep(0.005)
    sys.stdout.write("late\n")
    sys.stderr.write("late\n")
    logging.getLogger("relay.worker").warning("late")


@task
def print_late(path: str) -> None:
    _print_late(path)


@task(isolation="process")
def print_late_apart(path: str) -> None:
    _print_late(path)
