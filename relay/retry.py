"""Whether and when a failed job runs again. Pure: no database, no clock."""

from __future__ import annotations

import inspect
import logging
import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final, TypeAlias

from relay.exceptions import ArgumentError

__all__ = ["NO_RULES", "Backoff", "BackoffRule", "Errors", "RetryRules"]

logger = logging.getLogger("relay.worker")

# 2**62 times any base of a microsecond or more is past every cap a timedelta can
# hold, so larger exponents change nothing but could overflow a float.
_LARGEST_EXPONENT: Final = 62

_RANDOM: Final = random.SystemRandom()


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """The delay before a job runs again: growth, a cap, full jitter.

    The n-th failure waits between 0 and min(cap, base * factor**(n-1) + step * (n-1)).
    Source: J13, docs/explanation/delivery.md.

    Attributes:
        base: the largest delay after the first failure.
        cap: the largest delay ever.
        factor: growth from one failure to the next, at least 1.
        jitter: False waits the whole delay instead of a random part of it.
        step: what each failure after the first adds.
    """

    base: timedelta = timedelta(seconds=15)
    cap: timedelta = timedelta(hours=1)
    factor: float = 2.0
    jitter: bool = True
    step: timedelta = timedelta(0)

    def __post_init__(self) -> None:
        for name in ("base", "cap", "step"):
            delay = getattr(self, name)
            if not isinstance(delay, timedelta):
                raise TypeError(
                    f"{name}={delay!r}: give a timedelta, such as timedelta(seconds=15)"
                )
            if delay < timedelta(0):
                raise ValueError(
                    f"{name}={delay} is negative: give a delay of 0 or more"
                )
        if isinstance(self.factor, bool) or not isinstance(self.factor, int | float):
            raise TypeError(f"factor={self.factor!r}: give a number of at least 1")
        if not (math.isfinite(self.factor) and self.factor >= 1):
            raise ValueError(f"factor={self.factor} must be a number of at least 1")
        if not isinstance(self.jitter, bool):
            raise TypeError(f"jitter={self.jitter!r}: give True or False")

    @classmethod
    def exponential(
        cls,
        *,
        base: timedelta = timedelta(seconds=15),
        cap: timedelta = timedelta(hours=1),
        factor: float = 2.0,
        jitter: bool = True,
    ) -> Backoff:
        """Multiply the longest delay by factor with each failure."""
        return cls(base=base, cap=cap, factor=factor, jitter=jitter)

    @classmethod
    def linear(
        cls,
        *,
        base: timedelta = timedelta(seconds=15),
        step: timedelta = timedelta(seconds=15),
        cap: timedelta = timedelta(hours=1),
        jitter: bool = True,
    ) -> Backoff:
        """Add step to the longest delay with each failure."""
        return cls(base=base, cap=cap, factor=1, jitter=jitter, step=step)

    def limit(self, failures: int) -> timedelta:
        """Return the longest delay after this many failures; never above the cap."""
        earlier = max(failures, 1) - 1
        cap_seconds = self.cap.total_seconds()
        try:
            growth = self.factor ** min(earlier, _LARGEST_EXPONENT)
            seconds = (
                self.base.total_seconds() * growth + self.step.total_seconds() * earlier
            )
        except OverflowError:
            seconds = cap_seconds
        return timedelta(seconds=min(seconds, cap_seconds))

    def delay(self, failures: int, *, rng: random.Random = _RANDOM) -> timedelta:
        """Return the delay before the next run after this many failures."""
        longest = self.limit(failures)
        return longest * rng.random() if self.jitter else longest


# One rule: a Backoff; the same delay each time; a delay for each failure, the last one
# for all that follow; or a function of the failures so far, with this one, and the
# error: its None gives up.
BackoffRule: TypeAlias = (
    Backoff
    | timedelta
    | Sequence[timedelta]
    | Callable[[int, BaseException], timedelta | None]
)
Errors: TypeAlias = type[BaseException] | Sequence[type[BaseException]]


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryRules:
    """What a task says of its retries.

    Of an error's classes the most specific one that a rule names decides, by MRO.

    Attributes:
        backoff: one rule, or a rule for each class of errors; None, and errors of
            no class named, take the settings'.
        retry_on: only these are retried; none: all.
        give_up_on: these are not.
        until: the longest time from the job's creation to a retry's start, or the
            instant after which none starts.
    """

    backoff: BackoffRule | Mapping[type[BaseException], BackoffRule] | None = None
    retry_on: tuple[type[BaseException], ...] = ()
    give_up_on: tuple[type[BaseException], ...] = ()
    until: timedelta | datetime | None = None

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> RetryRules:
        """Return the rules that options of @task make.

        Raises:
            ArgumentError: one of them cannot be kept.
        """
        backoff = options.get("backoff")
        if isinstance(backoff, Mapping):
            if not backoff:
                raise ArgumentError(
                    "backoff={} has no rule: give one for each class of errors, such "
                    "as {ConnectionError: timedelta(minutes=1)}"
                )
            _check_classes("backoff", tuple(backoff))
            for kind, rule in backoff.items():
                _check_rule(f"backoff[{kind.__name__}]", rule)
        elif "backoff" in options:
            _check_rule("backoff", backoff)
        retry_on = _classes("retry_on", options.get("retry_on", ()))
        if "retry_on" in options and not retry_on:
            raise ArgumentError(
                f"retry_on={options['retry_on']!r} names no class: leave it out to "
                "retry all errors, or give max_retries=0 to retry none"
            )
        give_up_on = _classes("give_up_on", options.get("give_up_on", ()))
        if both := set(retry_on) & set(give_up_on):
            raise ArgumentError(
                f"{min(kind.__name__ for kind in both)} is in retry_on and in "
                "give_up_on: name it in one of them"
            )
        _check_until(options.get("retry_until"))
        return cls(
            backoff=backoff,
            retry_on=retry_on,
            give_up_on=give_up_on,
            until=options.get("retry_until"),
        )

    def gives_up_on(self, error: BaseException) -> bool:
        """Tell whether such an error is not to be retried."""
        for kind in type(error).__mro__:
            if kind in self.give_up_on:
                return True
            if kind in self.retry_on:
                return False
        return bool(self.retry_on)

    def delay(
        self, failures: int, error: BaseException, *, default: Backoff
    ) -> timedelta | None:
        """Return the delay before the next run; None if a function gives up.

        Args:
            failures: with this one.
            default: for what no rule covers, and for a function that fails.
        """
        rule = self._rule_for(error)
        if rule is None:
            return default.delay(failures)
        if isinstance(rule, Backoff):
            return rule.delay(failures)
        if isinstance(rule, timedelta):
            return rule
        if callable(rule):
            return _called(rule, failures, error, default)
        return rule[min(failures, len(rule)) - 1]

    def _rule_for(self, error: BaseException) -> BackoffRule | None:
        if not isinstance(self.backoff, Mapping):
            return self.backoff
        named = (kind for kind in type(error).__mro__ if kind in self.backoff)
        kind = next(named, None)
        return None if kind is None else self.backoff[kind]


NO_RULES: Final = RetryRules()


def _called(
    rule: Callable[[int, BaseException], object],
    failures: int,
    error: BaseException,
    default: Backoff,
) -> timedelta | None:
    try:
        delay = rule(failures, error)
    except Exception:  # an edge: the project's own code
        logger.exception(
            "backoff raised: the settings' is used",
            extra={"event": "job.bad_backoff", "backoff": repr(rule)},
        )
        return default.delay(failures)
    if delay is None:
        return None
    if isinstance(delay, timedelta):
        return max(delay, timedelta(0))
    logger.error(
        "backoff returned no timedelta: the settings' is used",
        extra={
            "event": "job.bad_backoff",
            "backoff": repr(rule),
            "returned": type(delay).__name__,
        },
    )
    return default.delay(failures)


# --- checks --------------------------------------------------------------------------


def _check_rule(name: str, rule: object) -> None:
    if isinstance(rule, Backoff):
        return
    if isinstance(rule, timedelta):
        _check_delay(name, rule)
    elif isinstance(rule, Sequence) and not isinstance(rule, str | bytes) and rule:
        for place, delay in enumerate(rule):
            _check_delay(f"{name}[{place}]", delay)
    elif callable(rule) and not isinstance(rule, type):
        _check_callable(name, rule)
    else:
        raise ArgumentError(
            f"{name}={rule!r}: give a relay.Backoff, a timedelta, a list of them, or a "
            "function of the failures and the error"
        )


def _check_delay(name: str, delay: object) -> None:
    if not isinstance(delay, timedelta) or delay < timedelta(0):
        raise ArgumentError(f"{name}={delay!r}: give a timedelta of 0 or more")


def _check_callable(name: str, rule: Callable[..., Any]) -> None:
    if inspect.iscoroutinefunction(rule):
        raise ArgumentError(
            f"{name}={rule!r} is a coroutine function: give a plain one"
        )
    try:
        parameters = inspect.signature(rule)
    except (TypeError, ValueError):  # built in: it cannot be looked at
        return
    try:
        parameters.bind(1, ValueError())
    except TypeError:
        raise ArgumentError(
            f"{name}={rule!r} cannot be called with the failures and the error: give a "
            "function of two positional arguments"
        ) from None


def _classes(name: str, given: object) -> tuple[type[BaseException], ...]:
    if isinstance(given, type):
        given = (given,)
    if not isinstance(given, Sequence | set | frozenset) or isinstance(given, str):
        raise ArgumentError(
            f"{name}={given!r}: give classes of exceptions, such as (ConnectionError,)"
        )
    classes = tuple(given)
    _check_classes(name, classes)
    return classes


def _check_classes(name: str, classes: tuple[object, ...]) -> None:
    for kind in classes:
        if not (isinstance(kind, type) and issubclass(kind, BaseException)):
            raise ArgumentError(
                f"{name} names {kind!r}: give classes of exceptions, such as "
                "ConnectionError"
            )


def _check_until(until: object) -> None:
    if until is None:
        return
    if isinstance(until, timedelta) and until > timedelta(0):
        return
    if isinstance(until, datetime) and until.utcoffset() is not None:
        return
    raise ArgumentError(
        f"retry_until={until!r}: give a timedelta above 0 from the job's creation, or "
        "a datetime with a time zone"
    )
