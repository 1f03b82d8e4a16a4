"""What makes a job a duplicate: while what, by which arguments, and what then."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from inspect import Parameter, Signature
from typing import Any, Final, Literal, get_args

from relay.exceptions import ArgumentError, EncodeError
from relay.packing import TAG, Packer, RefusedError, is_plain
from relay.parameters import Parameters

__all__ = ["Unique", "UniqueKey"]

Until = Literal["started", "finished", "forever"]
OnConflict = Literal["return", "raise", "replace"]
Due = Literal["keep", "push"]
Mode = Literal["started", "finished", "window", "forever"]

KEY_BYTES: Final = 16
# Longer windows are for ever. Source: docs/reference/tasks.md, "Unique".
LONGEST_WINDOW: Final = timedelta(days=36_500)


@dataclass(frozen=True, slots=True, kw_only=True)
class Unique:
    """One job at a time for the same arguments; an option of @task and of using().

    Attributes:
        on: the names of the arguments that count; None counts all of them.
        key: counts instead of the arguments.
        scope: shared by the tasks that name it; None is the task's own name.
        until: how long the key is held: until a worker starts the job, until it has
            finished, or for ever. None is "finished", or "started" where a duplicate
            changes the job: what comes after the start must not be lost.
        for_: how long the key is held from the enqueue on, and at least until the job
            has finished; instead of until.
        on_conflict: "return" the job that holds the key, "raise" DuplicateJob, or
            "replace" the arguments of the job if it still waits.
        due: "keep" the due time of a waiting job (throttle), or "push" it to the
            duplicate's (debounce).
    """

    on: Sequence[str] | None = None
    key: str | None = None
    scope: str | None = None
    until: Until | None = None
    for_: timedelta | None = None
    on_conflict: OnConflict = "return"
    due: Due = "keep"

    def __post_init__(self) -> None:
        _check_choice("until", self.until, (None, *get_args(Until)))
        _check_choice("on_conflict", self.on_conflict, get_args(OnConflict))
        _check_choice("due", self.due, get_args(Due))
        _check_text("key", self.key)
        _check_text("scope", self.scope)
        self._check_window()
        if self.on is not None:
            self._check_names()
        if self.on is not None and self.key is not None:
            raise ArgumentError("Unique with on and key: give one of them")
        if self.on_conflict == "raise" and self.due == "push":
            raise ArgumentError(
                "Unique with on_conflict='raise' and due='push': a refused enqueue "
                "changes nothing; give one of them"
            )

    def _check_window(self) -> None:
        if self.for_ is None:
            return
        if self.until is not None:
            raise ArgumentError("Unique with until and for_: give one of them")
        window: object = self.for_
        if not isinstance(window, timedelta) or not (
            timedelta(0) < window <= LONGEST_WINDOW
        ):
            raise ArgumentError(
                f"Unique with for_={self.for_!r}: give a timedelta above 0 and of at "
                f"most {LONGEST_WINDOW.days} days, or until='forever'"
            )

    def _check_names(self) -> None:
        names = self.on
        if (
            isinstance(names, str)
            or not isinstance(names, Sequence)
            or not names
            or not all(isinstance(name, str) for name in names)
        ):
            raise ArgumentError(
                f"Unique with on={names!r}: give the names of arguments, such as "
                'on=("user_id",)'
            )

    @property
    def mode(self) -> Mode:
        """While what the key is held, as rows have it."""
        if self.for_ is not None:
            return "window"
        if self.until is not None:
            return self.until
        return "started" if self.changes_job else "finished"

    @property
    def changes_job(self) -> bool:
        """Whether a duplicate changes the waiting job."""
        return self.on_conflict == "replace" or self.due == "push"

    def check(self, task: str, signature: Signature) -> None:
        """Refuse names in `on` that no argument of the task can have.

        Raises:
            ArgumentError: there is such a name; it is named.
        """
        parameters = signature.parameters
        if self.on is None or _open_keywords(signature) is not None:
            return
        unknown = [name for name in self.on if name not in parameters]
        if unknown:
            raise ArgumentError(
                f"Unique with on={tuple(self.on)!r}: {task}{signature} has no "
                f"argument {', '.join(unknown)}"
            )

    def resolve(
        self,
        task: str,
        parameters: Parameters | None,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
    ) -> UniqueKey:
        """Return the key of a call.

        Bound against the parameters, so that the order of keywords and the way an
        argument is passed do not matter, and with their defaults. Without them the
        call counts as it is written.

        Raises:
            ArgumentError: an argument named in `on` is not there.
            EncodeError: an argument cannot be carried; its path is named.
        """
        owner = ["task", task] if self.scope is None else ["scope", self.scope]
        if self.key is not None:
            document: Any = [*owner, "key", self.key]
        else:
            if parameters is None:
                call = {"args": args, "kwargs": dict(kwargs)}
            else:
                call = parameters.arguments(args, kwargs)
            document = [*owner, "call", self._chosen(task, parameters, call)]
        return UniqueKey(key=_hash(document), rule=self)

    def _chosen(
        self, task: str, parameters: Parameters | None, call: dict[str, Any]
    ) -> dict[str, Any]:
        if self.on is None:
            return call
        if parameters is not None:
            self.check(task, parameters.signature)
            extra = call.get(_open_keywords(parameters.signature) or "", {})
            found = {**extra, **call}
            return {name: found[name] for name in self.on if name in found}
        missing = [name for name in self.on if name not in call["kwargs"]]
        if missing:
            raise ArgumentError(
                f"Unique with on={tuple(self.on)!r}: the code of {task} is not at hand "
                f"to tell its arguments apart; pass {', '.join(missing)} by name"
            )
        return {name: call["kwargs"][name] for name in self.on}


@dataclass(frozen=True, slots=True, kw_only=True)
class UniqueKey:
    """The key of one job, and the rule that goes with it."""

    key: bytes
    rule: Unique


def _check_choice(name: str, value: object, choices: tuple[object, ...]) -> None:
    if value not in choices:
        known = ", ".join(repr(choice) for choice in choices if choice is not None)
        raise ArgumentError(f"Unique with {name}={value!r}: give one of {known}")


def _check_text(name: str, value: object) -> None:
    if value is not None and not (isinstance(value, str) and value):
        raise ArgumentError(f"Unique with {name}={value!r}: give a text")


def _open_keywords(signature: Signature) -> str | None:
    """Return the name of the parameter that takes keywords of any name."""
    for name, parameter in signature.parameters.items():
        if parameter.kind is Parameter.VAR_KEYWORD:
            return name
    return None


# The bytes are stored in rows and compared across releases: they must never change.
_canonical_text: Final = json.JSONEncoder(
    sort_keys=True, allow_nan=False, check_circular=False, separators=(",", ":")
).encode


def _hash(document: list[Any]) -> bytes:
    if not _is_canonical(document):
        try:
            packed = Packer(strict=True).pack(document)
        except RefusedError as refused:
            raise EncodeError(refused.path("unique"), refused.reason) from None
        document = _canonical(packed)
    text = _canonical_text(document)
    return hashlib.blake2b(text.encode(), digest_size=KEY_BYTES).digest()


def _is_canonical(document: list[Any]) -> bool:
    """Tell whether packing surely leaves the document as it is."""
    *names, last = document
    if isinstance(last, dict):
        return TAG not in last and all(map(is_plain, (*names, *last, *last.values())))
    return all(map(is_plain, document))


def _canonical(value: Any) -> Any:
    """Return the packed value in the one form that equal values share."""
    if isinstance(value, float):
        return int(value) if value.is_integer() else value
    if isinstance(value, list):
        return [_canonical(item) for item in value]
    if not isinstance(value, dict):
        return value
    kind = value.get(TAG)
    if kind == "float":
        return _canonical(float(value["value"]))
    made = {name: _canonical(item) for name, item in value.items()}
    if kind in ("set", "frozenset"):
        made["value"] = sorted(made["value"], key=_canonical_text)
    return made
