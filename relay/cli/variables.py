"""Flags that the environment gives: RELAY_YES to all verbs, RELAY_JOBS_LS_LIMIT to one.

What stands on the command line counts more.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Container, Iterator, Mapping, Sequence
from typing import Final

__all__ = ["SHARED", "flags_of", "variable_of"]

# Flags that mean the same wherever they are: their variables name no verb.
SHARED: Final = frozenset(
    {"--json", "--jsonl", "--quiet", "--no-color", "--dry-run", "--reason", "--yes"}
)
# Read elsewhere, also without a verb.
_ELSEWHERE: Final = frozenset({"--server", "--profile", "--help"})
_YES: Final = frozenset({"1", "true", "yes", "on"})
_NO: Final = frozenset({"", "0", "false", "no", "off"})


def variable_of(action: argparse.Action, prefix: str) -> str | None:
    """Return the variable of a flag; None of what is no flag or is read elsewhere.

    Args:
        prefix: of the flags of this verb alone, such as RELAY_JOBS_LS.
    """
    name = _name(action)
    if name is None or name in _ELSEWHERE:
        return None
    start = "RELAY" if name in SHARED else prefix
    return f"{start}_{name.removeprefix('--').replace('-', '_').upper()}"


def flags_of(
    parser: argparse.ArgumentParser,
    prefix: str,
    given: Sequence[str],
    *,
    environment: Mapping[str, str] | None = None,
    without: Container[str] = (),
) -> list[str]:
    """Return the flags that the environment gives besides those that are given.

    Args:
        given: the words of the command line.
        environment: of this process, unless given.
        without: dests that have no variable.

    Raises:
        ValueError: one of them holds what its flag does not take.
    """
    values = os.environ if environment is None else environment
    written = _written(given)
    if written & {"-h", "--help"}:
        return []
    words: list[str] = []
    for action in parser._actions:  # argparse has no public name for it
        if action.dest in without or action.help is argparse.SUPPRESS:
            continue
        variable = variable_of(action, prefix)
        if variable is None or variable not in values:
            continue
        if not written & set(_rivals(parser, action)):
            words += _words(action, variable, values[variable])
    return words


def _name(action: argparse.Action) -> str | None:
    """Return the first long name of a flag."""
    return next((n for n in action.option_strings if n.startswith("--")), None)


def _written(given: Sequence[str]) -> set[str]:
    """Return the names of the flags on a command line, also those run together."""
    names: set[str] = set()
    for word in given:
        if word == "--":
            break
        if word.startswith("--"):
            names.add(word.partition("=")[0])
        elif word.startswith("-"):
            names |= {f"-{letter}" for letter in word[1:]}
    return names


def _rivals(parser: argparse.ArgumentParser, action: argparse.Action) -> Iterator[str]:
    """Return the names of a flag, and of those that cannot stand beside it."""
    yield from action.option_strings
    for group in parser._mutually_exclusive_groups:
        if action in group._group_actions:
            for each in group._group_actions:
                yield from each.option_strings


def _words(action: argparse.Action, variable: str, value: str) -> list[str]:
    name = _name(action) or ""
    word = value.strip().lower()
    if action.nargs == 0:
        if word not in _YES | _NO:
            raise ValueError(f"{variable}={value!r}: give 1 for {name}, or 0")
        return [name] if word in _YES else []
    if action.nargs == "?" and word in _YES - {"1"}:
        return [name]
    _check(action, variable, value)
    return [f"{name}={value}"]


def _check(action: argparse.Action, variable: str, value: str) -> None:
    found: object = value
    try:
        if callable(action.type):
            found = action.type(value)
    except (argparse.ArgumentTypeError, TypeError, ValueError) as error:
        raise ValueError(f"{variable}: {error}") from None
    if action.choices is not None and found not in action.choices:
        listed = ", ".join(map(str, action.choices))
        raise ValueError(f"{variable}={value!r}: give one of {listed}")
