"""Completion in shells: their scripts, which ask relay what may follow."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Final

from relay.cli.errors import CliError
from relay.cli.session import Session
from relay.cli.transport import Transport
from relay.cli.tree import Branch, Noun, actions_of

__all__ = ["candidates", "grow"]

# The line itself is read: bash takes a colon, as in email:send, for the end of a word.
_BASH: Final = """\
_relay() {
    local line=${COMP_LINE:0:COMP_POINT} each current
    local -a words
    read -ra words <<< "$line"
    [[ $line == *[[:space:]] ]] && words+=("")
    current=${words[${#words[@]}-1]}
    COMPREPLY=()
    while IFS= read -r each; do
        COMPREPLY+=("${each#"${current%"${current##*:}"}"}")
    done < <(relay completion words -- "${words[@]:1}" 2>/dev/null)
}
complete -o default -F _relay relay
"""
_ZSH: Final = """\
#compdef relay
_relay() {
    local -a found
    found=("${(@f)$(relay completion words -- "${(@)words[2,CURRENT]}" 2>/dev/null)}")
    compadd -- ${found:#}
}
compdef _relay relay
"""
_FISH: Final = """\
function __relay_words
    set -l before (commandline -opc)
    set -l current (commandline -ct)
    relay completion words -- $before[2..-1] "$current" 2>/dev/null
end
complete -c relay -f -a '(__relay_words)'
"""
_SCRIPTS: Final = {"bash": _BASH, "zsh": _ZSH, "fish": _FISH}
# What names are asked for, by what stands in usage for them.
_NAMES: Final[Mapping[str, Callable[[Transport], Iterable[object]]]] = {
    "TASK": lambda relay: (
        each["name"]
        for each in relay.list_tasks()["results"]
        if each.get("may_enqueue", True)  # which servers of older releases do not say
    ),
    "QUEUE": lambda relay: (each["name"] for each in relay.list_queues()["results"]),
    "SCHEDULE": lambda relay: (
        each["name"] for each in relay.list_schedules()["results"]
    ),
}
# What a shell reads as one word that means itself: a name on its line must do nothing.
_WORD: Final = re.compile(r"\w[\w.:@+,/-]*", re.ASCII)
_STATES: Final = (
    *("blocked", "scheduled", "queued", "running"),
    *("retrying", "completed", "failed", "cancelled"),
)


def grow(root: Branch) -> None:
    """Add the verb."""
    parser = root.verb(
        "completion",
        partial(_complete, verbs=root.choices),
        "write the completion script of a shell",
        details="Write the script that completes relay's command lines in a shell: "
        "for bash, source <(relay completion bash).",
    )
    parser.add_argument(
        "shell",
        choices=(*_SCRIPTS, "words"),
        metavar="bash|zsh|fish",
        help="whose script",
    )
    parser.add_argument("words", nargs="*", help=argparse.SUPPRESS)


def _complete(session: Session, verbs: Mapping[str, Noun]) -> None:
    shell = session.options.shell
    if shell in _SCRIPTS:
        session.printer.write(_SCRIPTS[shell])
        return
    words = session.options.words or [""]
    for each in candidates(verbs, words, session):
        session.printer.line(each)


def candidates(
    verbs: Mapping[str, Noun], words: Sequence[str], session: Session
) -> list[str]:
    """Return what may stand in place of the last word."""
    *before, current = words
    parser, inner = _place(verbs, before)
    if current.startswith("-"):
        found = [] if parser is None else _flags(parser)
    elif inner is not None:
        found = list(inner)
    elif parser is not None:
        found = _values(parser, before, session)
    else:
        found = []
    return sorted({each for each in found if each.startswith(current)})


def _place(
    verbs: Mapping[str, Noun], before: Sequence[str]
) -> tuple[Noun | None, Mapping[str, Noun] | None]:
    """Return the verb or noun that words lead to, and the verbs that may follow."""
    parser: Noun | None = None
    inner: Mapping[str, Noun] | None = verbs
    for word in before:
        if inner is not None and word in inner:
            parser = inner[word]
            inner = parser.verbs
    return parser, inner


def _flags(parser: Noun) -> list[str]:
    # A noun without a verb lists.
    leaf = parser if parser.verbs is None else parser.verbs["ls"]
    return [
        flag
        for action in actions_of(leaf)
        for flag in action.option_strings
        if flag.startswith("--")
    ]


def _values(parser: Noun, before: Sequence[str], session: Session) -> list[str]:
    """Return what may follow a flag, or else be the first thing that is named."""
    actions = actions_of(parser)
    found = [each for each in actions if before[-1] in each.option_strings]
    found += [each for each in actions if not each.option_strings]
    for action in found[:1]:
        if action.choices is not None:
            return [str(each) for each in action.choices if each != "words"]
        return _names(str(action.metavar), session)
    return []


def _names(metavar: str, session: Session) -> list[str]:
    if metavar == "STATE":
        return list(_STATES)
    ask = _NAMES.get(metavar)
    if ask is None:
        return []
    try:
        found = [str(each) for each in ask(session.transport)]
    except CliError:  # nobody wants to read of it while typing
        return []
    return [each for each in found if _WORD.fullmatch(each)]
