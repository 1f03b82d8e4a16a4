"""The one tree of verbs, for manage.py relay and for the console script."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, cast

from relay.cli.flags import output_flags
from relay.cli.variables import flags_of
from relay.nearest import meant

if TYPE_CHECKING:
    from relay.cli.session import Session

    Verbs = argparse._SubParsersAction["Noun"]

__all__ = ["DESCRIPTION", "Branch", "Noun", "actions_of", "root", "variables_of"]

DESCRIPTION: Final = "See and steer the jobs of relay."

Parser = argparse.ArgumentParser
# Flags that every verb has, and so may stand before the verb of a noun too.
_ALONE: Final = frozenset({"--json", "--jsonl", "-q", "--quiet", "--no-color"})
# How much a word has to be like another to be taken for a slip of it.
_ALIKE: Final = 0.75
_WITH_VALUE: Final = frozenset({"--server", "--profile"})


class Noun(argparse.ArgumentParser):
    """A verb, or a noun with verbs: without one it lists, as `relay jobs` does.

    Attributes:
        verbs: of a noun.
        path: the words that lead here, such as jobs ls.
        beside: of a noun's verb, what else the noun has.
        advise: tells what to do with words that are too many.
    """

    verbs: Mapping[str, Any] | None = None
    path: tuple[str, ...] = ()
    beside: Iterable[str] = ()
    advise: Callable[[Sequence[str]], str] | None = None

    def parse_known_args(
        self, args: Iterable[str] | None = None, namespace: Any = None
    ) -> tuple[Any, list[str]]:
        given = list(args or ())
        if self.verbs is not None:
            place = _first_word(given)
            if given[place:] and given[place] in self.verbs:
                given.insert(0, given.pop(place))
            elif not given or given[0] not in ("-h", "--help"):
                given.insert(0, "ls")
            return super().parse_known_args(given, namespace)
        try:
            more = flags_of(self, variables_of(self.path), given)
        except ValueError as error:
            self.error(str(error))
        found, left = super().parse_known_args([*more, *given], namespace)
        if left:
            self._refuse(left)
        return found, left

    def _refuse(self, left: Sequence[str]) -> None:
        """End with what cannot be taken, and what to write instead."""
        said = f"unrecognized arguments: {' '.join(left)}"
        flags = [each for each in left if each.startswith("-")]
        if flags:
            name = flags[0].partition("=")[0]
            self.error(
                f"{said}{meant(name, self._option_string_actions, alike=_ALIKE)}"
            )
        if near := meant(left[0], self.beside, alike=_ALIKE):
            self.error(f"{said}{near}")
        advice = self.advise(left) if self.advise else self._advice(left)
        self.error(f"{said} ({advice})")

    def _advice(self, left: Sequence[str]) -> str:
        taken = [each for each in actions_of(self) if not each.option_strings]
        if not taken:
            *noun, _ = self.path
            show = " ".join([*noun, "show", left[0]])
            is_show = "show" in self.beside
            return f"write {show}" if is_show else "it takes none besides flags"
        if any(each.nargs in ("+", "*") for each in taken):
            return "write them side by side, before or behind all flags"
        count = len(taken)
        return f"it takes {'one' if count == 1 else count} besides flags"


def variables_of(path: Sequence[str]) -> str:
    """Return how the variables of a verb's own flags begin: RELAY_JOBS_LS."""
    return "_".join(["RELAY", *path]).replace("-", "_").upper()


def _first_word(given: list[str]) -> int:
    """Return the place of what follows the flags that may stand anywhere."""
    place = 0
    while place < len(given):
        name, equals, _ = given[place].partition("=")
        if name in _WITH_VALUE:
            place += 1 if equals else 2
        elif name in _ALONE:
            place += 1
        else:
            break
    return place


class Branch:
    """Where verbs are added: the root, or a noun."""

    def __init__(
        self, verbs: Verbs, parents: Iterable[Parser], path: tuple[str, ...] = ()
    ) -> None:
        self._verbs = verbs
        self._parents = tuple(parents)
        self._path = path

    @property
    def choices(self) -> Mapping[str, Noun]:
        """The verbs and nouns that are here, by name; also those that come later."""
        return self._verbs.choices

    def verb(
        self,
        name: str,
        run: Callable[[Session], None],
        help: str,
        *groups: Parser,
        details: str | None = None,
    ) -> Noun:
        """Add a verb that does something."""
        parser = self._verbs.add_parser(
            name,
            help=help,
            description=details or f"{help[:1].upper()}{help[1:]}.",
            parents=cast("Sequence[Noun]", [*groups, *self._parents]),
            allow_abbrev=False,
        )
        parser.set_defaults(run=run)
        parser.path = (*self._path, name)
        if self._path:
            parser.beside = self._verbs.choices
        return parser

    def noun(self, name: str, help: str) -> Branch:
        """Add a noun; it needs a verb ls, which is meant where none is given."""
        parser = self._verbs.add_parser(
            name,
            help=help,
            description=f"{help[:1].upper()}{help[1:]}. Without a verb: ls.",
        )
        verbs: Verbs = parser.add_subparsers(
            dest="verb_of_noun", metavar="VERB", required=True, title="verbs"
        )
        parser.verbs = verbs.choices
        return Branch(verbs, self._parents, (*self._path, name))


def root(
    parser: Parser, *, kind: type[Noun] = Noun, parents: Iterable[Parser] = ()
) -> Branch:
    """Return the root of a parser's tree.

    Args:
        kind: of the parsers below.
        parents: flags that every verb has, besides those for its output.
    """
    verbs = parser.add_subparsers(
        dest="verb",
        metavar="VERB",
        required=True,
        title="verbs",
        parser_class=kind,
    )
    return Branch(verbs, [output_flags(), *parents])


def actions_of(parser: Parser) -> list[argparse.Action]:
    """Return what a parser takes, in order; argparse has no public name for it."""
    return [
        each
        for each in parser._actions
        if each.help is not argparse.SUPPRESS and each.dest != "help"
    ]
