"""python -m relay.standalone.demo.manage COMMAND: the demo project's manage.py."""

from __future__ import annotations

import ctypes
import os
import signal
import sys

from django.core.management import execute_from_command_line

__all__ = ["main"]

_PR_SET_PDEATHSIG = 1


def end_with(parent: int) -> None:
    """Have the kernel send SIGTERM when the demo dies, however it dies (Linux)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    if os.getppid() != parent:
        sys.exit(1)  # it died in between


def main() -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "relay.standalone.demo.settings")
    if parent := os.environ.pop("RELAY_DEMO_PARENT", None):
        end_with(int(parent))
    program = "python -m relay.standalone.demo.manage"
    execute_from_command_line([program, *sys.argv[1:]])


if __name__ == "__main__":
    main()
