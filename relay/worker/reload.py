"""--reload: restart the worker when the code changes. For development only."""

from __future__ import annotations

import logging
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from django.utils.autoreload import iter_all_python_module_files

__all__ = ["changed", "run_with_reload", "snapshot"]

logger = logging.getLogger("relay.worker")

LOOK_SECONDS: Final = 0.5
# A worker that does not drain is ended, so that an edit is not waited for.
DRAIN_SECONDS: Final = 5.0


def snapshot(paths: Iterable[Path]) -> dict[Path, float]:
    """Return when each of the files that exist was last changed."""
    times: dict[Path, float] = {}
    for path in paths:
        try:
            times[path] = path.stat().st_mtime
        except OSError:
            continue  # gone between the listing and the look
    return times


def changed(before: Mapping[Path, float], after: Mapping[Path, float]) -> Path | None:
    """Return a file that is new, gone or different, if there is one."""
    for path in before.keys() | after.keys():
        if before.get(path) != after.get(path):
            return path
    return None


def run_with_reload() -> int:
    """Run this command again without --reload, and anew at each change of the code.

    A worker that ended by itself, as after a syntax error, starts at the next change.
    Only an error that is there at the start ends the command: Django imports the
    project before it calls this.

    Returns:
        the exit code: 0 after a signal.
    """
    command = [sys.executable, *_interpreter_arguments(), *_arguments()]
    stop = _StopFlag()
    while not stop.is_set:
        before = snapshot(iter_all_python_module_files())
        # In a session of its own: Ctrl-C in a terminal is for this process, which asks
        # the worker to drain once, not twice.
        worker = subprocess.Popen(command, start_new_session=True)  # noqa: S603 - this very command line
        path, has_ended = None, False
        while path is None and not stop.wait(LOOK_SECONDS):
            path = changed(before, snapshot(before))
            if not has_ended and worker.poll() is not None:
                has_ended = True
                logger.warning(
                    "the worker has ended: it starts again when the code changes",
                    extra={"event": "worker.reload_waits", "code": worker.returncode},
                )
        if path is not None:
            logger.info(
                "code changed: restarting",
                extra={"event": "worker.reload", "path": str(path)},
            )
        _end(worker)
    return 0


class _StopFlag:
    """Set by SIGTERM, SIGINT and the end of the terminal."""

    def __init__(self) -> None:
        self.is_set = False
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, self._set)

    def _set(self, *_: object) -> None:
        self.is_set = True

    def wait(self, seconds: float) -> bool:
        """Wait this long at most; tell whether it is set."""
        time.sleep(seconds)
        return self.is_set


def _end(worker: subprocess.Popen[bytes]) -> None:
    if worker.poll() is None:
        worker.terminate()
    try:
        worker.wait(DRAIN_SECONDS)
    except subprocess.TimeoutExpired:
        worker.terminate()  # the second signal: at once
        worker.wait()


def _interpreter_arguments() -> list[str]:
    """Return -m and the module where the command was started with them."""
    main = sys.modules["__main__"]
    spec = getattr(main, "__spec__", None)
    if spec is None:
        return [sys.argv[0]]
    name = spec.name.removesuffix(".__main__")
    return ["-m", name]


def _arguments() -> list[str]:
    return [argument for argument in sys.argv[1:] if argument != "--reload"]
