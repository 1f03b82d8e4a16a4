"""Processes apart, as the child or the web process sees them that uses them."""

from __future__ import annotations

import itertools
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from multiprocessing.spawn import get_executable
from typing import Any, Final

from django.conf import settings

from relay import traces
from relay.engine.claim import ClaimedJob
from relay.tasks import Task, all_tasks
from relay.worker.fork import fork
from relay.worker.frames import Frames
from relay.worker.nursery import (
    CODE,
    DEATH_SIGNAL,
    REQUEST,
    REQUEST_FORK,
    run_nursery,
)

__all__ = ["Apart", "Gone", "Nursery", "is_isolation_needed"]

# How long a nursery may take to fork a process and say so, on a machine at its slowest:
# the slot that waits for it runs nothing else.
BIRTH_SECONDS: Final = 30.0
# How long a nursery may take to kill and reap what it forked.
CLOSE_SECONDS: Final = 2.0
# How long idle processes may take to end by themselves: a little more than they wait
# for their spans to be sent on.
LET_END_SECONDS: Final = 2.0


def is_isolation_needed() -> bool:
    """Tell whether a registered task asks for a process apart."""
    return any(task.isolation is not None for task in all_tasks().values())


class Gone(Exception):
    """An isolated process has ended.

    Attributes:
        code: its exit code; None where nobody knows, as the nursery is gone too.
    """

    def __init__(self, code: int | None) -> None:
        super().__init__(code)
        self.code = code


class Apart:
    """An isolated process, as the thread that uses it sees it."""

    def __init__(
        self, number: int, end: socket.socket, lifeline: int, control: socket.socket
    ) -> None:
        self.number = number
        # Of the nursery that forked it.
        self.control = control
        self.jobs = 0
        self._end = end
        self._lifeline = lifeline
        self._frames = Frames(end)
        is_told = select.poll()
        is_told.register(lifeline, select.POLLIN)
        self.pid = (
            self._read_lifeline() if is_told.poll(BIRTH_SECONDS * 1_000) else None
        )
        if self.pid is None or self.pid < 0:
            self.close()
            raise Gone(self.pid)
        end.setblocking(False)
        self._poll = select.poll()
        self._poll.register(lifeline, select.POLLIN)
        self._poll.register(end, select.POLLIN)

    def _read_lifeline(self) -> int | None:
        """Return the next number that the nursery says of it; None if it is gone.

        To be called once there is something to read.
        """
        message = os.read(self._lifeline, CODE.size)
        return CODE.unpack(message)[0] if len(message) == CODE.size else None

    def is_alive(self) -> bool:
        """Tell whether it has not ended, nor sent what nobody asked for."""
        return not self._poll.poll(0)

    def let_end(self) -> int:
        """Have it end by itself; return what is readable once it has."""
        with suppress(OSError):
            self._end.shutdown(socket.SHUT_RDWR)
        return self._lifeline

    def send(self, frame: bytes, seconds: float) -> bytes:
        """Send what the process has room for; return the rest."""
        try:
            return frame[self._end.send(frame) :]
        except BlockingIOError:
            self._poll.modify(self._end, select.POLLIN | select.POLLOUT)
            self._poll.poll(seconds * 1_000)
            self._poll.modify(self._end, select.POLLIN)
            return frame
        except ConnectionError:
            self._poll.poll(seconds * 1_000)
            return b""  # it is gone: the lifeline tells how

    def receive(self, seconds: float) -> bytes | None:
        """Wait for its answer, so long at most.

        Raises:
            Gone: it has ended, and has not answered before.
        """
        if (frame := self._frames.take()) is not None:
            return frame  # it has come together with the one before
        ready = dict(self._poll.poll(seconds * 1_000))
        if self._end.fileno() in ready:
            try:
                return self._frames.read()
            except BlockingIOError:
                pass
            except (EOFError, ConnectionError):
                # Closed by its death, which the lifeline tells in a moment, or by its
                # handler: then nothing more comes of it.
                self._poll.unregister(self._end)
        if self._lifeline in ready:
            raise Gone(self._read_lifeline())
        return None

    def close(self) -> None:
        """Let it go: it ends by itself."""
        with suppress(OSError):
            # Also if a copy of the socket is open somewhere.
            self._end.shutdown(socket.SHUT_RDWR)
        self._end.close()
        os.close(self._lifeline)


class Nursery:
    """The isolated processes of one worker. Made by start() or spawn().

    Thread-safe. An idle process is kept for the next job of its task; there are at most
    as many processes as slots.

    Attributes:
        is_broken: whether it can make no more processes; its child is to be replaced.
    """

    def __init__(
        self, slots: int, begin: Callable[[], tuple[socket.socket, int]] | None
    ) -> None:
        self._slots = slots
        # Begins one where there is none; without it the first is the last.
        self._begin = begin
        self._control: socket.socket | None = None
        self._pid = 0
        self._numbers = itertools.count(1)
        # Held for moments, by threads that run isolated jobs only.
        self._lock = threading.Lock()
        self._idle: list[tuple[str, Apart]] = []
        self._count = 0
        self.is_broken = False

    @classmethod
    def start(cls, slots: int) -> Nursery:
        """Fork a nursery. Only where no thread has been started."""
        made = cls(slots, None)
        made._control, made._pid = _fork_nursery()
        return made

    @classmethod
    def spawn(cls, slots: int) -> Nursery:
        """Return one that starts with the first job, as a program of its own.

        For processes that have threads. It loads the project anew, by the name of its
        settings' module, and is started again if it dies.
        """
        return cls(slots, _spawn_nursery)

    def takes(self, job: ClaimedJob) -> bool:
        """Tell whether the job runs in a process apart."""
        task = all_tasks().get(job.task)
        return task is not None and task.isolation is not None

    def acquire(self, task: Task[..., Any]) -> Apart:
        """Return a process for one attempt of this task; release() must follow.

        Raises:
            Gone: none can be made.
        """
        found: Apart | None = None
        ended: list[Apart] = []
        with self._lock:
            for entry in list(self._idle):
                name, process = entry
                if not process.is_alive():
                    self._idle.remove(entry)
                    ended.append(process)
                elif found is None and name == task.name:
                    self._idle.remove(entry)
                    found = process
            self._count -= len(ended)
            if found is None:
                if self._count >= self._slots and self._idle:
                    ended.append(self._idle.pop(0)[1])
                    self._count -= 1
                self._count += 1
        for process in ended:
            process.close()
        if found is not None:
            return found
        try:
            return self._fork()
        except BaseException:
            with self._lock:
                self._count -= 1
            raise

    def _fork(self) -> Apart:
        near, far = socket.socketpair()
        lifeline, teller = os.pipe()
        number = next(self._numbers)
        try:
            control = self._ask(REQUEST_FORK, number, far.fileno(), teller)
        except OSError:
            near.close()
            os.close(lifeline)
            raise Gone(None) from None
        finally:
            far.close()
            os.close(teller)
        try:
            return Apart(number, near, lifeline, control)
        except Gone as gone:
            if gone.code is None:
                self._lose(control)
            raise

    def _ask(self, act: bytes, number: int, *descriptors: int) -> socket.socket:
        """Send a request; return where it went."""
        message = REQUEST.pack(act, number)
        with self._lock:
            if self._control is None:
                if self._begin is None:
                    raise ConnectionError
                self._control, self._pid = self._begin()
            control = self._control
            try:
                # As short as this is, it goes out whole or not at all.
                socket.send_fds(control, [message], descriptors)
            except OSError:
                self._drop()
                raise
        return control

    def _lose(self, control: socket.socket) -> None:
        """Take in that the nursery at this end is gone."""
        with self._lock:
            if self._control is control:
                self._drop()

    def _drop(self) -> None:
        if self._control is not None:
            self._control.close()
            self._control = None
            _reap(self._pid, seconds=0)
        self.is_broken = self._begin is None

    def release(self, task: Task[..., Any], process: Apart, *, is_good: bool) -> None:
        """Give a process back, for the next attempt if it is good for one."""
        if is_good and process.jobs < task.max_jobs:
            with self._lock:
                self._idle.append((task.name, process))
            return
        with self._lock:
            self._count -= 1
        process.close()

    def request(self, act: bytes, process: Apart) -> None:
        """Have a process interrupted, or killed with what its handler has started."""
        with self._lock, suppress(OSError):  # the nursery's end is its end
            if self._control is process.control:
                self._control.sendall(REQUEST.pack(act, process.number))

    def note_end(self, process: Apart, code: int | None) -> None:
        """Take in how a process has ended; without its nursery, end what is left."""
        if code is None:
            self._lose(process.control)
            with suppress(OSError):
                os.killpg(process.pid or 0, signal.SIGKILL)

    def close(self) -> None:
        """End all processes, and the nursery."""
        with self._lock:
            if traces.tracer() is not None:
                _let_end([process for _, process in self._idle])
            if self._control is not None:
                self._control.close()
                self._control = None
                _reap(self._pid, seconds=CLOSE_SECONDS)

    def disown(self) -> None:
        """Close, in a process forked from this one, what only this one may use."""
        if self._control is not None:
            self._control.close()


def _let_end(processes: Sequence[Apart]) -> None:
    """Let idle processes send their spans on before they are killed."""
    ends = select.poll()
    for process in processes:
        ends.register(process.let_end(), select.POLLIN)
    until, left = time.monotonic() + LET_END_SECONDS, len(processes)
    while left and (seconds := until - time.monotonic()) > 0:
        for lifeline, _ in ends.poll(seconds * 1_000):
            ends.unregister(lifeline)
            left -= 1


def _reap(pid: int, *, seconds: float) -> None:
    """Wait for a nursery to end, and kill it if it does not."""
    until = time.monotonic() + seconds
    with suppress(ChildProcessError):
        while not os.waitpid(pid, os.WNOHANG)[0]:
            if time.monotonic() >= until:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
                return
            time.sleep(0.005)


def _fork_nursery() -> tuple[socket.socket, int]:
    near, far = socket.socketpair()
    owner = os.getpid()

    def run() -> int:
        near.close()
        return run_nursery(far, owner)

    pid = fork(run, death_signal=DEATH_SIGNAL)
    far.close()
    return near, pid


def _spawn_nursery() -> tuple[socket.socket, int]:
    near, far = socket.socketpair()
    values = json.dumps(
        {
            "path": [path or os.getcwd() for path in sys.path],
            "settings": settings.SETTINGS_MODULE,
            "control": far.fileno(),
            "owner": os.getpid(),
        }
    )
    process = subprocess.Popen(  # noqa: S603 - this very Python, and no shell
        [os.fsdecode(get_executable()), "-P", "-c", _SPAWNED, values],
        pass_fds=[far.fileno()],
        stdin=subprocess.DEVNULL,
        # Signals for the web server's group are the server's to take.
        start_new_session=True,
    )
    far.close()
    # _reap() waits for it, by its pid.
    process.returncode = 0
    return near, process.pid


_SPAWNED: Final = """
import json, os, sys
order = json.loads(sys.argv.pop())
sys.path[:] = order["path"]
os.environ["DJANGO_SETTINGS_MODULE"] = order["settings"]
import django
django.setup()
from relay.worker.nursery import run_spawned_nursery
run_spawned_nursery(order["control"], order["owner"])
"""
