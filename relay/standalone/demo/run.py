"""The demo from start to end; Django is set up when this is imported."""

from __future__ import annotations

import os
import platform
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final
from uuid import UUID

import django
from django.conf import settings
from django.contrib.auth import get_user_model
from django.core.management import call_command
from django.db import connection, connections, transaction

from relay import JobRequest, enqueue_many
from relay.conf import get_settings
from relay.exceptions import StandaloneError
from relay.models import FINAL_STATES, Job, Worker
from relay.scheduler.registry import declared
from relay.standalone.demo import tasks
from relay.standalone.demo.environment import STARTED_AT, data_folder
from relay.standalone.demo.files import Files
from relay.standalone.demo.processes import Process, Processes
from relay.standalone.demo.report import Verdict, judge, show_table
from relay.standalone.demo.server import AdminServer
from relay.standalone.demo.terminal import Stop, Terminal, printable, seconds
from relay.standalone.demo.watch import Strike, Watch, clock, plural
from relay.standalone.postgres import EmbeddedPostgres, serve

__all__ = ["Options", "run", "versions"]

SIZES: Final = (64, 128, 256, 512)
WORKERS: Final = ("worker-a", "worker-b")
USER: Final = "demo"
LOOK_SECONDS: Final = 0.1
# For two workers to say that they live.
REGISTER_SECONDS: Final = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What the command line says.

    Attributes:
        budget_seconds: how long the jobs may take, from the enqueue to the last end.
        is_once: end after the table instead of serving the admin.
    """

    data: Path
    budget_seconds: float
    port: int
    is_once: bool


def run(options: Options, files: Files, terminal: Terminal, stop: Stop) -> int:
    """Run the demo; return its exit code. What was started is stopped on every way.

    Raises:
        StandaloneError: something could not be started, or ended by itself.
        Stopped: somebody wanted it to stop before its end.
        django.db.Error: the database went away.
    """
    with _database(terminal):
        stop.check()
        _migrate(terminal)
        started_at = clock()
        stop.check()
        environment = {STARTED_AT: started_at.isoformat()}
        processes = Processes(options.data, environment)
        try:
            workers = _start(processes, terminal, stop, started_at)
            verdict = _show(
                options, files, terminal, stop, processes, workers, started_at
            )
            if not options.is_once:
                _serve_admin(options, terminal, stop, processes)
        finally:
            _stop(processes, terminal, stop)
        return 0 if verdict.is_good else 1


# --- the database --------------------------------------------------------------------


@contextmanager
def _database(terminal: Terminal) -> Iterator[None]:
    began = time.monotonic()
    server = _start_server(terminal)
    try:
        if server is None:
            _refuse_foreign_tables()
            named = connection.settings_dict
            terminal.step(f"database: {named['NAME']} of DATABASE_URL")
        else:
            server.create_database(settings.DATABASES["default"]["NAME"])
            how = "started" if server.was_started_here else "was running already"
            took = seconds(time.monotonic() - began)
            found = server.binaries
            terminal.step(
                f"database: PostgreSQL {found.version} from {found.origin}, {how} "
                f"({took})"
            )
        yield
    finally:
        connections.close_all()
        if server is not None and server.stop_if_last():
            terminal.step("stopped: PostgreSQL")


def _start_server(terminal: Terminal) -> EmbeddedPostgres | None:
    is_first = not (settings.POSTGRES_ROOT / "data").exists()
    if is_first and not os.environ.get("DATABASE_URL"):
        terminal.step("database: making one for the embedded PostgreSQL")
    return serve(settings.POSTGRES_ROOT)


def _refuse_foreign_tables() -> None:
    """Keep away from a real project: migrating would retire its schedules.

    Raises:
        StandaloneError: the database has tables, but not from a run of the demo.
    """
    tables = connection.introspection.table_names()
    if not tables:
        return
    if "relay_schedule" in tables:
        with connection.cursor() as cursor:
            cursor.execute("SELECT name FROM relay_schedule WHERE source = 'code'")
            names = {row[0] for row in cursor.fetchall()}
        if names & set(declared()):
            return
    raise StandaloneError(
        f"DATABASE_URL names {connection.settings_dict['NAME']}, which has tables that "
        "are not the demo's: give the demo an empty database, or unset DATABASE_URL"
    )


def _migrate(terminal: Terminal) -> None:
    began = time.monotonic()
    call_command("migrate", verbosity=0, interactive=False)
    terminal.step(
        f"migrate: tables are up to date, {seconds(time.monotonic() - began)}"
    )
    earlier = Job.objects.filter(queue=tasks.QUEUE)
    count = earlier.count()
    if count:
        left = earlier.exclude(state__in=FINAL_STATES).count()
        terminal.step(
            f"reused: the database has {plural(count, 'job')} of earlier runs"
            + (f"; {left} unfinished ones run now too" if left else "")
        )


# --- processes -----------------------------------------------------------------------


def _start(
    processes: Processes, terminal: Terminal, stop: Stop, started_at: datetime
) -> dict[str, Process]:
    """Start two workers and a scheduler; return the workers once they are ready."""
    slots, lease = get_settings().concurrency, get_settings().lease.total_seconds()
    workers: dict[str, Process] = {}
    for name in WORKERS:
        arguments = ("relay_worker", "--name", name, "-q", tasks.QUEUE)
        workers[name] = processes.start(name, *arguments)
    scheduler = processes.start("scheduler", "relay_scheduler")
    for name, worker in workers.items():
        terminal.step(
            f"start: {name}, relay_worker as process {worker.popen.pid}, "
            f"{slots} jobs at once, lease {seconds(lease)}"
        )
    terminal.step(f"start: relay_scheduler as process {scheduler.popen.pid}")
    ends_at = time.monotonic() + REGISTER_SECONDS
    while _registered(started_at) < len(workers):
        stop.wait(LOOK_SECONDS)
        processes.check()
        if time.monotonic() > ends_at:
            raise StandaloneError(
                f"the workers did not register within {seconds(REGISTER_SECONDS)}: see "
                f"the logs in {data_folder()}"
            )
    terminal.step("ready: both workers are registered and look for jobs")
    return workers


def _registered(started_at: datetime) -> int:
    recent = Worker.objects.filter(started_at__gte=started_at)
    return recent.values("name").distinct().count()


def _stop(processes: Processes, terminal: Terminal, stop: Stop) -> None:
    running = [process for process in processes.all if process.is_running]
    if not running:
        return
    killed = processes.stop(stop)
    terminal.step(f"stopped: {', '.join(process.name for process in running)}")
    for process in killed:
        terminal.step(f"stopped: {process.name} did not end by itself and was killed")


# --- the story -----------------------------------------------------------------------


def _show(
    options: Options,
    files: Files,
    terminal: Terminal,
    stop: Stop,
    processes: Processes,
    workers: dict[str, Process],
    started_at: datetime,
) -> Verdict:
    enqueued = _enqueue(files, terminal)
    watch = Watch(terminal, enqueued, started_at)
    ends_at = time.monotonic() + options.budget_seconds
    until: datetime | None = None
    while time.monotonic() < ends_at:
        watch.look()
        # Not at the look that sets until: a job made before it may commit after it.
        if until is not None and not watch.open_jobs(until=until):
            break
        if watch.strike is None:
            _strike(watch, workers, terminal)
        elif until is None and not watch.open_jobs():
            until = watch.now
        processes.check()
        stop.wait(LOOK_SECONDS)
    until = until or clock()
    verdict = judge(watch, set(enqueued), started_at=started_at, until=until)
    _report(options, verdict, watch, terminal)
    return verdict


def _enqueue(files: Files, terminal: Terminal) -> dict[UUID, str]:
    """Enqueue the work in one transaction; return what each job works on by its id."""
    work: list[tuple[JobRequest[object], str]] = []

    def add(request: JobRequest[object], subject: str) -> None:
        work.append((request, subject))

    add(
        tasks.list_files.using(priority=tasks.FIRST + 1).job(
            [str(path) for path in files.taken]
        ),
        plural(len(files.taken), "file"),
    )
    for path in files.taken:
        name = printable(path.name)
        add(tasks.checksum.using(priority=tasks.FIRST).job(str(path)), name)
        for size in SIZES if path in files.images else ():
            add(
                tasks.thumbnail.using(priority=tasks.FIRST).job(str(path), size),
                f"{name} {size} px",
            )
    began = time.monotonic()
    with transaction.atomic():
        handles = enqueue_many(request for request, _ in work)
    took = (time.monotonic() - began) * 1000
    thumbnails = len(files.images) * len(SIZES)
    terminal.step(
        f"enqueue: {len(work)} jobs in one transaction, {took:.0f} ms: "
        f"{plural(thumbnails, 'thumbnail')}, {plural(len(files.taken), 'checksum')}, "
        "and a list that fails once on purpose; a schedule adds a count every 2 s"
    )
    terminal.step(
        f"enqueue: each takes {seconds(tasks.PACE_SECONDS)} longer than it needs, so "
        "that you can follow"
    )
    subjects = (subject for _, subject in work)
    return {handle.id: what for handle, what in zip(handles, subjects, strict=True)}


def _strike(watch: Watch, workers: dict[str, Process], terminal: Terminal) -> None:
    """Kill a worker with all its processes if this is a good moment."""
    target = watch.target()
    if target is None:
        return
    worker_id = target
    row = watch.workers.get(worker_id, "")
    process = workers.get(row.rpartition("-")[0])
    if process is None:
        return
    # It may have finished all that it held since the last look, on a busy machine.
    process.freeze()
    watch.look()
    if not watch.held_by(worker_id):
        process.go_on()
        return
    at = clock()
    process.kill()
    watch.look()
    jobs = watch.held_by(worker_id)
    watch.strike = Strike(
        at=at, worker_id=worker_id, worker=row, jobs=frozenset(job.id for job in jobs)
    )
    terminal.step(
        f"kill: SIGKILL to {row}, its whole process group {process.popen.pid}, with "
        f"{plural(len(jobs), 'job')} in hand:",
        strong=True,
    )
    for job in jobs:
        terminal.step(f"kill:   {watch.describe(job)}, attempt {job.attempt}")
    for (expires_at,) in Worker.objects.filter(id=worker_id).values_list(
        "lease_expires_at"
    ):
        left = seconds((expires_at - at).total_seconds())
        terminal.step(
            f"kill: nobody is told; its lease ends in {left}, then its jobs are free"
        )


def _report(
    options: Options, verdict: Verdict, watch: Watch, terminal: Terminal
) -> None:
    terminal.write()
    show_table(terminal, watch)
    terminal.write()
    if watch.strike is None:
        terminal.write("no worker was killed: none was running a job at a good moment")
    else:
        held = watch.count_lost() or len(watch.strike.jobs)
        terminal.write(
            f"{watch.strike.worker} was killed with {plural(held, 'job')} in hand; the "
            f"other worker took over and completed {verdict.taken_over} of them"
        )
    if verdict.unfinished:
        terminal.write(
            f"the budget of {seconds(options.budget_seconds)} was not enough"
        )
    own = verdict.enqueued - verdict.scheduled
    terminal.write(f"{own} jobs by the demo, {verdict.scheduled} by its schedule")
    terminal.write(f"thumbnails, lists and logs: {options.data}")
    terminal.strong(verdict.sentence())


# --- the admin -----------------------------------------------------------------------


def _serve_admin(
    options: Options, terminal: Terminal, stop: Stop, processes: Processes
) -> None:
    """Serve until a signal; the remaining worker and the scheduler go on."""
    with AdminServer(options.port) as server:
        terminal.write()
        if server.port != options.port:
            terminal.write(f"port {options.port} is in use, so this is {server.port}")
        terminal.write(f"dashboard {server.address}relay/dashboard/")
        terminal.write(f"admin     {server.address}admin/")
        terminal.write(f"user      {USER}")
        terminal.write(f"password  {_make_user()}")
        terminal.write("The other worker and the scheduler go on. Ctrl-C stops it all.")
        while not stop.count:
            _note_ends(processes, terminal)
            time.sleep(LOOK_SECONDS)
    terminal.write()


def _note_ends(processes: Processes, terminal: Terminal) -> None:
    try:
        processes.check()
    except StandaloneError as error:
        terminal.step(str(error))


def _make_user() -> str:
    """Make the admin's user, or give it a new password; return that."""
    password = secrets.token_urlsafe(12)
    user, _ = get_user_model().objects.get_or_create(username=USER)
    user.set_password(password)
    user.is_staff = user.is_superuser = user.is_active = True
    user.save()
    return password


def versions() -> str:
    """Return what runs here, in a few words."""
    return f"Django {django.get_version()}, Python {platform.python_version()}"
