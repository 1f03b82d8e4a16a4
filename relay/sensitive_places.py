"""Which arguments are sensitive, and where they stand in a call."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from importlib.util import find_spec
from inspect import Parameter, Signature
from typing import Any, Literal

from relay.exceptions import ArgumentError, EncodeError, SettingsError
from relay.unique import Unique

__all__ = [
    "Names",
    "Place",
    "check_library",
    "check_names",
    "check_unique",
    "find_places",
    "names_of",
    "path_of",
    "united",
    "veiled",
]

Names = tuple[str, ...] | Literal[True]
"""Names of sensitive arguments; True means all of them, and the result."""

Place = tuple[Literal["args", "kwargs"], int | str]
"""Where an argument stands in the document of a job's arguments."""


def names_of(given: Sequence[str] | Literal[True]) -> Names:
    """Return the names as sensitive= says them, which may be any sequence."""
    return True if given is True else tuple(given)


def check_library() -> None:
    """Refuse to go on without the library that encrypts.

    Raises:
        SettingsError: it is not installed.
    """
    if find_spec("cryptography") is None:
        raise SettingsError(
            "sensitive arguments need the package cryptography: install "
            "'django-relay[crypto]'"
        )


def check_names(task: str, signature: Signature, names: Names) -> None:
    """Refuse a name that no argument of the task can have: a slip would be a leak.

    Raises:
        ArgumentError: there is such a name; it is named.
    """
    parameters = signature.parameters.values()
    if names is True or any(each.kind is Parameter.VAR_KEYWORD for each in parameters):
        return
    unknown = [name for name in names if name not in signature.parameters]
    if unknown:
        raise ArgumentError(
            f"sensitive={names!r}: {task}{signature} has no argument "
            f"{', '.join(unknown)}"
        )


def check_unique(task: str, unique: Unique | None, names: Names) -> None:
    """Refuse a unique key that would give sensitive arguments away, or misplace them.

    Raises:
        ArgumentError: with the remedy.
    """
    if unique is None or not names:
        return
    if unique.on_conflict == "replace":
        raise ArgumentError(
            f"{task} has sensitive arguments, which are encrypted for one job and "
            "cannot replace another's: use on_conflict='return' or 'raise'"
        )
    is_told = names is True or unique.on is None or not set(unique.on).isdisjoint(names)
    if unique.key is None and is_told:
        raise ArgumentError(
            f"{task} has sensitive arguments, and its unique key would be a hash of "
            "them in the row, which guessing reveals: name other arguments with "
            "Unique(on=...), or give Unique(key=...)"
        )


def united(some: Names, others: Names) -> Names:
    """Return both together: an enqueue may add to what a task declares."""
    if some is True or others is True:
        return True
    return tuple(dict.fromkeys((*some, *others)))


def find_places(
    task: str,
    signature: Signature | None,
    names: Names,
    args: Collection[object],
    kwargs: Collection[str],
) -> tuple[Place, ...]:
    """Return where the sensitive arguments of a call stand.

    Args:
        signature: None where the task's code is not at hand.

    Raises:
        ArgumentError: without a signature, an argument named is not passed by name.
    """
    if names is True:
        every: list[Place] = [("args", index) for index in range(len(args))]
        return (*every, *(("kwargs", name) for name in kwargs))
    if signature is None:
        missing = [name for name in names if name not in kwargs]
        if missing:
            raise ArgumentError(
                f"sensitive={names!r}: the code of {task} is not at hand to tell its "
                f"arguments apart; pass {', '.join(missing)} by name, or give "
                "sensitive=True"
            )
        return tuple(("kwargs", name) for name in kwargs if name in names)
    return tuple(_bound_places(signature, names, len(args), kwargs))


def _bound_places(
    signature: Signature, names: tuple[str, ...], count: int, kwargs: Collection[str]
) -> Iterator[Place]:
    by_kind: dict[Any, list[str]] = {}
    for parameter in signature.parameters.values():
        by_kind.setdefault(parameter.kind, []).append(parameter.name)
    by_place = [
        *by_kind.get(Parameter.POSITIONAL_ONLY, []),
        *by_kind.get(Parameter.POSITIONAL_OR_KEYWORD, []),
    ]
    by_name = {
        *by_kind.get(Parameter.POSITIONAL_OR_KEYWORD, []),
        *by_kind.get(Parameter.KEYWORD_ONLY, []),
    }
    [rest] = by_kind.get(Parameter.VAR_POSITIONAL, [""])
    [extra] = by_kind.get(Parameter.VAR_KEYWORD, [""])
    for index in range(count):
        if (by_place[index] if index < len(by_place) else rest) in names:
            yield "args", index
    for name in kwargs:
        if name in names or (name not in by_name and extra in names):
            yield "kwargs", name


def veiled(error: EncodeError, places: Collection[Place]) -> EncodeError:
    """Return the error with nothing of a sensitive value in it."""
    for place in places:
        root = path_of(place)
        rest = error.path.removeprefix(root)
        if rest != error.path and rest[:1] in ("", "[", "."):
            return EncodeError(
                root,
                "holds what cannot be carried; as it is sensitive, neither value nor "
                "place is told: see docs/reference/arguments.md for what can travel",
            )
    return error


def path_of(place: Place) -> str:
    root, step = place
    return f"{root}[{step!r}]"
