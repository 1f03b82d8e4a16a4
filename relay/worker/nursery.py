"""The nursery: forks a child's isolated processes, and tells how each has ended.

A child has threads, so forking from it is not safe. Its nursery is forked before it
starts any, or started anew beside a process that has some; it runs no user code.
"""

from __future__ import annotations

import os
import signal
import socket
import struct
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from django.db import connections

from relay.worker.bell import Bell
from relay.worker.fork import die_with, fork
from relay.worker.isolated import CANCEL, WITHDRAW, serve
from relay.worker.sessions import keep_connections

__all__ = [
    "CODE",
    "DEATH_SIGNAL",
    "REQUEST",
    "REQUEST_CANCEL",
    "REQUEST_FORK",
    "REQUEST_KILL",
    "REQUEST_WITHDRAW",
    "run_nursery",
    "run_spawned_nursery",
]

# What a child asks for: an act, and the number that it gave the process. With a fork
# come two descriptors: the process's end of its socket, and the lifeline, on which the
# nursery writes its pid and, once it has ended, its exit code.
REQUEST: Final = struct.Struct("=cI")
REQUEST_FORK: Final = b"f"
REQUEST_CANCEL: Final = b"c"
REQUEST_WITHDRAW: Final = b"w"
REQUEST_KILL: Final = b"k"
CODE: Final = struct.Struct("=q")

# Sent to the nursery by the kernel when its child dies: it looks, and ends the rest.
DEATH_SIGNAL: Final = signal.SIGUSR2
LOOK_SECONDS: Final = 1.0


def run_nursery(control: socket.socket, owner: int) -> int:
    """Serve the process of this pid until it is gone; then end what was forked."""
    return _Nursery(control, owner).run()


def run_spawned_nursery(control: int, owner: int) -> None:
    """Serve, in a program of its own, the process that started it."""
    die_with(owner, DEATH_SIGNAL)
    connections.close_all()
    keep_connections()
    os._exit(run_nursery(socket.socket(fileno=control), owner))


@dataclass(frozen=True, slots=True)
class _Born:
    number: int
    lifeline: int


class _Nursery:
    def __init__(self, control: socket.socket, owner: int) -> None:
        self._control = control
        self._owner = owner
        self._bell = Bell()
        self._born: dict[int, _Born] = {}
        self._pids: dict[int, int] = {}

    def run(self) -> int:
        # Not ignored: each ends the wait. Only the end of the child ends the nursery.
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD, DEATH_SIGNAL):
            signal.signal(number, lambda *_: None)
        self._bell.ring_on_signals()
        while self._is_wanted():
            self._reap()
        self._end_all()
        return 0

    def _is_wanted(self) -> bool:
        """Wait a little and do what the child asks; False once it is gone."""
        ready = self._bell.wait([self._control], LOOK_SECONDS)
        if os.getppid() != self._owner:
            return False
        if self._control not in ready:
            return True
        try:
            request, descriptors, _, _ = socket.recv_fds(self._control, REQUEST.size, 2)
        except ConnectionError:
            return False
        if len(request) < REQUEST.size:
            return False
        for descriptor in descriptors:
            os.set_inheritable(descriptor, False)
        act, number = REQUEST.unpack(request)
        if act == REQUEST_FORK:
            self._fork(number, *descriptors)
        elif number in self._pids:
            pid = self._pids[number]
            if act == REQUEST_KILL:
                _kill_group(pid)
            else:
                os.kill(pid, CANCEL if act == REQUEST_CANCEL else WITHDRAW)
        return True

    def _fork(self, number: int, end: int, lifeline: int) -> None:
        try:
            pid = fork(lambda: self._become(end, lifeline))
        except OSError as error:
            _tell(lifeline, -(error.errno or 1))
            os.close(lifeline)
        else:
            # Here and there: whoever comes first, the group is there from now on.
            with suppress(OSError):
                os.setpgid(pid, pid)
            self._born[pid] = _Born(number, lifeline)
            self._pids[number] = pid
            _tell(lifeline, pid)
        os.close(end)

    def _become(self, end: int, lifeline: int) -> int:
        os.setpgid(0, 0)
        signal.signal(DEATH_SIGNAL, signal.SIG_DFL)
        self._control.close()
        self._bell.close()
        os.close(lifeline)
        for other in self._born.values():
            os.close(other.lifeline)
        return serve(socket.socket(fileno=end))

    def _reap(self) -> None:
        while self._born:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            self._note_end(pid, os.waitstatus_to_exitcode(status))

    def _note_end(self, pid: int, code: int) -> None:
        born = self._born.pop(pid, None)
        if born is None:
            return  # of what a project starts as Django loads it
        del self._pids[born.number]
        if code != 0:
            # What its handler had started. The group's number is not given out anew
            # while one of it lives.
            _kill_group(pid)
        _tell(born.lifeline, code)
        os.close(born.lifeline)

    def _end_all(self) -> None:
        for pid in self._born:
            _kill_group(pid)
        while self._born:
            pid, status = os.waitpid(-1, 0)
            self._note_end(pid, os.waitstatus_to_exitcode(status))


def _kill_group(pid: int) -> None:
    with suppress(ProcessLookupError, PermissionError):  # macOS says so of zombies
        os.killpg(pid, signal.SIGKILL)


def _tell(lifeline: int, number: int) -> None:
    with suppress(OSError):  # the child listens no more
        os.write(lifeline, CODE.pack(number))
