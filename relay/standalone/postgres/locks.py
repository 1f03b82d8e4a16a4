"""Locks between processes that the kernel drops when their holder dies."""

from __future__ import annotations

import os
import sys
import time
import weakref
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from relay.exceptions import StandaloneError

if sys.platform != "win32":
    import fcntl

__all__ = ["FileLock"]

POLL_SECONDS: Final = 0.02


class FileLock:
    """A flock on a file, of this process alone: a forked child does not hold it.

    Without the close in the child, a forked worker would keep its parent counted
    as a user of the server for as long as the child lives.
    """

    def __init__(self, path: Path) -> None:
        if sys.platform == "win32":
            raise StandaloneError(
                "the embedded PostgreSQL runs on Linux and macOS only: set DATABASE_URL"
            )
        self.path = path
        self._fd: int | None = None
        _LOCKS.add(self)

    @property
    def is_open(self) -> bool:
        return self._fd is not None

    def fileno(self) -> int:
        if self._fd is None:
            raise ValueError(f"{self.path} is not open")
        return self._fd

    def take(self, *, shared: bool = False, timeout: float = 0.0) -> bool:
        """Take the lock, or change the kind that is held; False after the timeout.

        A change is not atomic: where it fails, what was held may be lost.
        """
        if self._fd is None:
            self._fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            _give_to_owner_of_folder(self._fd, self.path.parent)
        kind = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
        deadline = time.monotonic() + timeout
        while True:
            try:
                fcntl.flock(self._fd, kind | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    return False
                time.sleep(POLL_SECONDS)
            else:
                return True

    def release(self) -> None:
        if self._fd is not None:
            fd, self._fd = self._fd, None
            os.close(fd)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.release()


def _give_to_owner_of_folder(fd: int, folder: Path) -> None:
    """Keep a folder usable by its owner after root has worked in it."""
    if os.geteuid() == 0:
        owner = folder.stat()
        os.fchown(fd, owner.st_uid, owner.st_gid)


_LOCKS: weakref.WeakSet[FileLock] = weakref.WeakSet()


def _close_in_child() -> None:
    for lock in list(_LOCKS):
        lock.release()


if sys.platform != "win32":
    os.register_at_fork(after_in_child=_close_in_child)
