"""The one tree of verbs, for manage.py relay and for the console script."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, cast

from relay.cli.flags import output_flags

if TYPE_CHECKING:
    from relay.cli.session import Session

    Verbs = argparse._SubParsersAction["Noun"]

__all__ = ["DESCRIPTION", "Branch", "Noun", "actions_of", "root"]

DESCRIPTION: Final = "See and steer the jobs of relay."

Parser = argparse.ArgumentParser
# Flags that every verb has, and so may stand before the verb of a noun too.
_ALONE: Final = frozenset({"--json", "--jsonl", "-q", "--quiet", "--no-color"})
_WITH_VALUE: Final = frozenset({"--server", "--profile"})


class Noun(argparse.ArgumentParser):
    """A verb, or a noun with verbs: without one it lists, as `relay jobs` does.

    Attributes:
        verbs: of a noun.
    """

    verbs: Mapping[str, Any] | None = None

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

    def __init__(self, verbs: Verbs, parents: Iterable[Parser]) -> None:
        self._verbs = verbs
        self._parents = tuple(parents)

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
        return Branch(verbs, self._parents)


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
