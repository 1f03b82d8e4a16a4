"""settings.RELAY as one typed, checked object."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import timedelta
from functools import cache
from typing import Any, Final, Literal, TypeVar

from django.conf import settings
from django.core.signals import setting_changed
from django.db import connections

from relay.dashboard_settings import DashboardSettings
from relay.exceptions import SettingsError
from relay.key_settings import EncryptionKey, read_keys
from relay.nearest import nearest
from relay.queue_settings import read_permissions, read_retention
from relay.retention import Retention
from relay.retry import Backoff

__all__ = [
    "DEFAULT_QUEUE",
    "LONGEST",
    "MOST",
    "OWN_QUEUE",
    "QUEUE_NAME",
    "ApiSettings",
    "DashboardSettings",
    "OtelSettings",
    "Settings",
    "check_queue_name",
    "get_settings",
    "read_settings",
]

# Bytes, not characters, bound a NOTIFY payload: names are ASCII and short.
QUEUE_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:-]{0,99}")
DEFAULT_QUEUE: Final = "default"
# Of relay's own jobs. Every worker serves it besides its own queues. Nobody else can
# name it, as check_queue_name refuses it: it is never paused, weighed or ordered.
OWN_QUEUE: Final = "_relay"

# Added to or taken from the clock, a longer time is past what timestamptz holds; a
# larger number is past its column, or a slip. Source: docs/reference/settings.md.
LONGEST: Final = timedelta(days=36_525)
MOST: Final = 1_000_000
# What was done yesterday is not to be forgotten by a slip.
SHORTEST_AUDIT: Final = timedelta(days=1)

# The least that each may be.
_DURATIONS: Final = {
    "lease": timedelta(milliseconds=300),
    "poll_interval": timedelta(milliseconds=10),
    "grace": timedelta(0),
    "timeout_grace": timedelta(0),
    "cancel_grace": timedelta(0),
    "unknown_task_limit": timedelta(0),
}
_RETENTIONS: Final = ("completed", "failed", "cancelled", "result")
_SWITCHES: Final = (
    *("notify", "schedule_in_workers", "transaction_pooler", "read_only", "admin"),
    "log_args",
)
_NUMBERS: Final = {
    "max_retries": 0,
    "concurrency": 1,
    "crash_limit": 1,
    "loss_limit": 1,
    "snooze_limit": 1,
    "metrics_max_tasks": 0,
}
# The least and the most that each may be. jsonb holds far more, but a claim reads the
# arguments of many jobs at once; deeper values meet the limit of Python's recursion.
_SIZES: Final = {
    "max_argument_bytes": (1, 64 * 1024 * 1024),
    "max_result_bytes": (1, 64 * 1024 * 1024),
    "max_depth": (1, 128),
    "max_log_bytes": (1_000, 8 * 1024 * 1024),
}

TEST_MODES: Final = (None, "inline", "manual", "off")


def check_queue_name(name: object) -> str:
    """Return the name if it may name a queue.

    Raises:
        ValueError: it is no string of 1-100 letters, digits, '_', '.', ':' or '-'.
    """
    if isinstance(name, str) and QUEUE_NAME.fullmatch(name):
        return name
    raise ValueError(
        f"{name!r} cannot name a queue: use 1 to 100 ASCII letters, digits, "
        "'_', '.', ':' or '-', beginning with a letter or a digit"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiSettings:
    """What settings.RELAY["API"] says. An attribute is its key in lower case."""

    # Dotted paths of classes of DRF's that tell who calls, besides tokens.
    authentication_classes: tuple[str, ...] = ("relay.api.auth.SessionAuthentication",)
    # Most bytes of a request's body.
    max_body_bytes: int = 256 * 1024
    # Jobs that one caller may submit a second on average, and at once; None for any.
    submit_rate: int | None = None
    submit_burst: int = 200
    # Answer GET /v1/stream, under ASGI.
    stream: bool = False

    def __post_init__(self) -> None:
        _check_paths("api.authentication_classes", self.authentication_classes)
        paths = tuple(self.authentication_classes)
        object.__setattr__(self, "authentication_classes", paths)
        most = _SIZES["max_argument_bytes"][1]
        _check_number("api.max_body_bytes", self.max_body_bytes, 1, most)
        if self.submit_rate is not None:
            _check_number("api.submit_rate", self.submit_rate, 1)
        _check_number("api.submit_burst", self.submit_burst, 1)
        _check_switch("api.stream", self.stream)


@dataclass(frozen=True, slots=True, kw_only=True)
class OtelSettings:
    """What settings.RELAY["OTEL"] says. An attribute is its key in lower case."""

    # Spans of attempts are children of the enqueue's; else each is a trace of its own.
    parent: bool = True
    # Jobs of one enqueue_many that have a span each; those of more share one.
    create_limit: int = 100

    def __post_init__(self) -> None:
        _check_switch("otel.parent", self.parent)
        _check_number("otel.create_limit", self.create_limit, 0)


_Part = TypeVar("_Part", ApiSettings, DashboardSettings, OtelSettings)


def _read_part(key: str, value: object, made: type[_Part]) -> _Part:
    if isinstance(value, made):
        return value
    if not isinstance(value, Mapping):
        raise _refused(key, value, "give a dict")
    return made(**_arguments(made, value, f"RELAY[{key.upper()!r}]"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What settings.RELAY says. An attribute is its key in lower case."""

    # Alias in settings.DATABASES whose PostgreSQL holds the jobs.
    database: str = "default"
    # Queues that exist besides those that registered tasks name; as a dict, with what
    # holds for their jobs: {"mail": {"RETENTION": Retention(...)}}; and PERMISSION,
    # which people and clients need to put a job there, such as "billing.charge".
    queues: tuple[str, ...] = (DEFAULT_QUEUE,)
    queue_retention: Mapping[str, Retention] = field(
        init=False, default_factory=dict, hash=False
    )
    queue_permissions: Mapping[str, str] = field(
        init=False, default_factory=dict, hash=False
    )
    # Attempts that raise before a job is failed for good, less the first one.
    max_retries: int = 25
    # When a job that raised runs again, unless its task says otherwise.
    backoff: Backoff = field(default_factory=Backoff)
    # How long finished jobs are kept; None keeps them for ever, 0 not at all.
    retention_completed: timedelta | None = timedelta(days=1)
    retention_failed: timedelta | None = timedelta(days=30)
    retention_cancelled: timedelta | None = timedelta(days=30)
    # How long results are kept; None as long as their jobs, 0 not at all.
    retention_result: timedelta | None = None
    # The four as one value.
    retention: Retention = field(init=False, default_factory=Retention)
    # How long the record of acts, and ended bulk operations, are kept; None for ever.
    retention_audit: timedelta | None = timedelta(days=400)
    # How long a worker is taken to be alive after it was last heard of.
    lease: timedelta = timedelta(seconds=30)
    # Longest wait between two looks for work when no wake-up arrives.
    poll_interval: timedelta = timedelta(seconds=1)
    # How long running jobs may go on after SIGTERM.
    grace: timedelta = timedelta(seconds=25)
    # How long a job that ran out of time, or was cancelled, may take to stop before the
    # child process that runs it is killed.
    timeout_grace: timedelta = timedelta(seconds=5)
    cancel_grace: timedelta = timedelta(seconds=10)
    # Jobs that one child process runs at once, in threads and coroutines together.
    concurrency: int = 10
    # Started attempts that may die with their process before the job is poison.
    crash_limit: int = 3
    # Times a job may be taken from a lost worker before it is poison.
    loss_limit: int = 10
    # How long a job of a task that no worker knows is handed back before it fails.
    unknown_task_limit: timedelta = timedelta(hours=24)
    # How often a job's handler may raise Snooze before the job fails.
    snooze_limit: int = 10_000
    # Send NOTIFY after an enqueue and LISTEN in workers. Polling works without.
    notify: bool = True
    # Fire schedules from the workers too, not only from relay_scheduler.
    schedule_in_workers: bool = True
    # The database is reached through a pooler in transaction mode: no LISTEN, no
    # session settings, no prepared statements.
    transaction_pooler: bool = False
    # Dotted paths of what stands around every handler, the outermost first.
    middleware: tuple[str, ...] = ()
    # Most bytes of JSON that one job's arguments, and its result, may have.
    max_argument_bytes: int = 256 * 1024
    max_result_bytes: int = 1024 * 1024
    # How deep arguments and results may be nested.
    max_depth: int = 64
    # Of sensitive arguments, by key id; the first encrypts, all of them decrypt. Never
    # shown: not in the repr, not in a message.
    encryption_keys: Mapping[str, EncryptionKey] = field(
        default_factory=dict, repr=False, hash=False
    )
    # A dotted path of a callable that takes a request and returns the permissions its
    # sender has, such as {"view_job", "cancel_job"}; None leaves it to Django's.
    access: str | None = None
    # No surface changes anything: jobs run, nobody steers them.
    read_only: bool = False
    # Show relay in Django's admin; False leaves that to relay.admin.register().
    admin: bool = True
    # A regular expression: what is stored under a name in which it is found is shown
    # nowhere.
    redacted_names: str = "token|secret|pass|key|auth|cookie|card"
    # Keep what attempts log, unless their task says otherwise: True, False, or "failed"
    # for those that do not complete.
    capture_logs: bool | Literal["failed"] = False
    # relay's own records of a job say what it is called with, as far as that is no
    # secret.
    log_args: bool = False
    # Most bytes of one attempt's log that are kept: the first and the last half.
    max_log_bytes: int = 64 * 1024
    # Of spans: a dict with the keys of OtelSettings.
    otel: OtelSettings = field(default_factory=OtelSettings)
    # An attempt that runs so long is logged once it has ended; None logs none.
    slow_job: timedelta | None = None
    # Tasks that metrics and statistics tell apart; later ones are one task, "other".
    metrics_max_tasks: int = 200
    # In tests what an enqueue does where no mode() holds; None and "off" as ever.
    test_mode: Literal["inline", "manual", "off"] | None = None
    # Of the REST API: a dict with the keys of ApiSettings.
    api: ApiSettings = field(default_factory=ApiSettings)
    # Of the dashboard: a dict with the keys of DashboardSettings.
    dashboard: DashboardSettings = field(default_factory=DashboardSettings)

    def __post_init__(self) -> None:
        self._check_durations()
        for key, least in _NUMBERS.items():
            _check_number(key, getattr(self, key), least)
        for key, (least, most) in _SIZES.items():
            _check_number(key, getattr(self, key), least, most)
        self._read_parts()
        _check_pattern("redacted_names", self.redacted_names)
        for key in _SWITCHES:
            _check_switch(key, getattr(self, key))
        self._check_choices()
        if self.database not in connections:
            raise _refused("database", self.database, "give an alias in DATABASES")
        if self.access is not None and not isinstance(self.access, str):
            raise _refused("access", self.access, "give a dotted path, or None")
        _check_paths("middleware", self.middleware)
        object.__setattr__(self, "middleware", tuple(self.middleware))
        self._read_queues()

    def _check_durations(self) -> None:
        for key, shortest in _DURATIONS.items():
            _check_duration(key, getattr(self, key), shortest)
        for key in _RETENTIONS:
            _check_retention(f"retention_{key}", getattr(self, f"retention_{key}"))
        if self.retention_audit is not None:
            _check_duration("retention_audit", self.retention_audit, SHORTEST_AUDIT)
        if self.slow_job is not None:
            _check_duration("slow_job", self.slow_job, timedelta(milliseconds=1))
        said = {key: getattr(self, f"retention_{key}") for key in _RETENTIONS}
        object.__setattr__(self, "retention", Retention(**said))

    def _read_parts(self) -> None:
        """Read the settings that are dicts."""
        object.__setattr__(self, "api", _read_part("api", self.api, ApiSettings))
        object.__setattr__(self, "otel", _read_part("otel", self.otel, OtelSettings))
        dashboard = _read_part("dashboard", self.dashboard, DashboardSettings)
        object.__setattr__(self, "dashboard", dashboard)
        if self.api.stream and (self.transaction_pooler or not self.notify):
            raise _refused(
                "api.stream", True, "needs NOTIFY, and no TRANSACTION_POOLER"
            )
        object.__setattr__(self, "encryption_keys", read_keys(self.encryption_keys))

    def _check_choices(self) -> None:
        if self.test_mode not in TEST_MODES:
            raise _refused("test_mode", self.test_mode, f"give one of {TEST_MODES}")
        if not isinstance(self.capture_logs, bool) and self.capture_logs != "failed":
            raise _refused(
                "capture_logs", self.capture_logs, 'give True, False or "failed"'
            )
        if not isinstance(self.backoff, Backoff):
            raise _refused("backoff", self.backoff, "give a relay.Backoff")

    def _read_queues(self) -> None:
        if isinstance(self.queues, str):
            raise _refused("queues", self.queues, "give a list of queue names")
        if isinstance(self.queues, Mapping):
            permissions = read_permissions(self.queues)
            object.__setattr__(self, "queue_permissions", permissions)
            object.__setattr__(self, "queue_retention", read_retention(self.queues))
        try:
            object.__setattr__(
                self, "queues", tuple(check_queue_name(name) for name in self.queues)
            )
        except (TypeError, ValueError) as error:
            raise SettingsError(f"RELAY['QUEUES']: {error}") from error


def _refused(key: str, value: object, remedy: str) -> SettingsError:
    place = "".join(f"[{part.upper()!r}]" for part in key.split("."))
    return SettingsError(f"RELAY{place} is {value!r}: {remedy}")


def _check_duration(key: str, value: object, shortest: timedelta) -> None:
    if not isinstance(value, timedelta) or value < shortest:
        raise _refused(key, value, f"give a timedelta of at least {shortest}")
    if value > LONGEST:
        raise _refused(key, value, f"give a timedelta of at most {LONGEST.days} days")


def _check_switch(key: str, value: object) -> None:
    if not isinstance(value, bool):
        raise _refused(key, value, "give True or False")


def _check_retention(key: str, value: object) -> None:
    if value is not None and not (
        isinstance(value, timedelta) and value >= timedelta(0)
    ):
        raise _refused(
            key, value, "give a timedelta of 0 or more, or None to keep jobs for ever"
        )


def _check_number(key: str, value: object, least: int, most: int = MOST) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise _refused(key, value, f"give a whole number of at least {least}")
    if value > most:
        raise _refused(key, value, f"give a whole number of at most {most:,}")


def _check_paths(key: str, value: object) -> None:
    if isinstance(value, list | tuple) and all(isinstance(one, str) for one in value):
        return
    raise _refused(key, value, "give a list of dotted paths")


def _check_pattern(key: str, value: object) -> None:
    try:
        if isinstance(value, str) and value:
            re.compile(value)
            return
    except re.error:
        pass
    raise _refused(key, value, "give a regular expression, such as 'token|secret'")


def _arguments(
    made: type[Settings | ApiSettings | DashboardSettings | OtelSettings],
    values: Mapping[Any, Any],
    name: str,
) -> dict[str, Any]:
    """Return the values by the names of attributes.

    Raises:
        SettingsError: a key is unknown.
    """
    known = {item.name.upper(): item.name for item in fields(made) if item.init}
    arguments: dict[str, Any] = {}
    for key, value in values.items():
        if key not in known:
            near = nearest(str(key).upper(), known, alike=0.5)
            hint = f"did you mean {near!r}?" if near else f"known: {sorted(known)}"
            raise SettingsError(f"{name} has an unknown key {key!r}: {hint}")
        arguments[known[key]] = value
    return arguments


def read_settings(values: object) -> Settings:
    """Return what a dict such as settings.RELAY says.

    Raises:
        SettingsError: a key is unknown or a value cannot be used.
    """
    if not isinstance(values, Mapping):
        raise SettingsError(f"RELAY is {values!r}: give a dict")
    return Settings(**_arguments(Settings, values, "RELAY"))


@cache
def get_settings() -> Settings:
    """Return settings.RELAY, read once and again after the setting has changed.

    Raises:
        SettingsError: a key is unknown or a value cannot be used.
    """
    return read_settings(getattr(settings, "RELAY", {}))


def _forget(*, setting: str, **_: object) -> None:
    if setting == "RELAY":
        get_settings.cache_clear()


setting_changed.connect(_forget, dispatch_uid="relay.conf")
