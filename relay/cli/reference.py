"""python -m relay.cli.reference: docs/reference/cli.md, made of the tree."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator, Mapping

from relay.cli.console import make_parser
from relay.cli.errors import EXIT_CODES
from relay.cli.flags import connection_flags, output_flags
from relay.cli.tree import Noun, actions_of

__all__ = ["page"]

_INTRODUCTION = """\
# Command line

One tree of verbs on two ways to relay: `manage.py relay VERB …` works in the process,
on the project's database; the console script `relay VERB …` talks to a server over
HTTP, or else to the project that `DJANGO_SETTINGS_MODULE` names. Both do the same and
answer the same documents. How to use it: [the command line](../howto/command-line.md).

This page is made by `python -m relay.cli.reference` of what the verbs themselves say.

## What all verbs have in common

Data goes to standard output, everything else to standard error. A noun without a verb
lists: `relay jobs` is `relay jobs ls`. Where an id is asked for, its first 8 characters
do, if no other begins with them: ids of one minute share those, and the first 13 are
the millisecond. Where several fit, they are listed. Spans are written as `30s`, `2m`,
`1h30m` or `PT90S`, instants as `2026-11-30T08:00:00Z`, or `+10m` for from now. Which
jobs are meant is said in the [filter language](filters.md).

What cannot be undone asks before, and where nobody can be asked it wants `--yes`.
`--dry-run` says what would be done.

On a terminal a table is made as wide as that is: texts are cut, ids shortened to what
tells them apart, and columns without which it can be read left out. Written to a file
or another program it is whole. AGE is how long ago a job started, ended or was
enqueued, or with a `+` in how long it is due.

| flag | meaning |
| --- | --- |
"""
_CONNECTION = """
The console script has besides:

| flag | meaning |
| --- | --- |
"""
_SERVER = """
The server is the one of `--server`, `--profile`, `RELAY_SERVER`, `RELAY_PROFILE`, or
the profile in use, in this order; without one, Django is started. A profile brings its
token, or else takes that of `RELAY_TOKEN`; `--server` and `RELAY_SERVER` take that of
`RELAY_TOKEN`, or else of a profile of that server. No token is given on the command
line, where others could read it. Profiles are in `~/.config/relay/profiles.json`
(`XDG_CONFIG_HOME`), which only its owner may read.
Redirects are not followed.

## Variables

Each flag can be given by the environment, for all runs of a script or a container; what
stands on the command line counts more. Flags that are the same everywhere are
`RELAY_JSON`, `RELAY_JSONL`, `RELAY_QUIET`, `RELAY_NO_COLOR`, `RELAY_DRY_RUN`,
`RELAY_REASON` and `RELAY_YES`; a flag of one verb has the verb in its name:
`RELAY_JOBS_LS_LIMIT`, `RELAY_ENQUEUE_QUEUE`, `RELAY_PRUNE_OLDER_THAN`. So it is with
the other commands of `manage.py`: `RELAY_WORKER_QUEUES`, `RELAY_WORKER_CONCURRENCY`,
`RELAY_SCHEDULER_PROBE_PORT`, `RELAY_LOAD_CLIENTS`. A flag without a value is given by
`1`, and not by `0`.

## Exit codes

| code | meaning |
| --- | --- |
"""


def page() -> str:
    """Return the whole page."""
    return "".join(_parts())


def _parts() -> Iterator[str]:
    yield _INTRODUCTION
    yield from map(_row, actions_of(output_flags()))
    yield _CONNECTION
    yield from map(_row, actions_of(connection_flags()))
    yield _SERVER
    for code, meaning in EXIT_CODES.items():
        yield f"| {code} | {meaning} |\n"
    yield "\n## Verbs\n"
    for name, parser in _verbs().items():
        yield from _of(name, parser)


def _verbs() -> Mapping[str, Noun]:
    for action in actions_of(make_parser()):
        if isinstance(action.choices, Mapping):
            return action.choices
    raise AssertionError("the tree has no verbs")


def _of(name: str, parser: Noun) -> Iterator[str]:
    yield f"\n### {name}\n\n{_text(parser.description or '')}\n"
    if parser.verbs is None:
        yield from _leaf(parser)
        return
    for verb, inner in parser.verbs.items():
        yield f"\n#### {name} {verb}\n\n{_text(inner.description or '')}\n"
        yield from _leaf(inner)


def _leaf(parser: Noun) -> Iterator[str]:
    shared = {
        action.dest
        for made in (output_flags(), connection_flags())
        for action in actions_of(made)
    }
    actions = [each for each in actions_of(parser) if each.dest not in shared]
    if not actions:
        return
    yield "\n| argument | meaning |\n| --- | --- |\n"
    yield from map(_row, actions)


def _row(action: argparse.Action) -> str:
    names = ", ".join(f"`{each}`" for each in action.option_strings)
    value = _value(action)
    shown = " ".join(part for part in (names, f"`{value}`" if value else "") if part)
    return f"| {_in_table(shown)} | {_text(_help(action))} |\n"


def _value(action: argparse.Action) -> str:
    if action.nargs == 0:
        return ""
    if action.choices is not None and action.metavar is None:
        value = " ".join(str(each) for each in action.choices)
    else:
        value = str(action.metavar or action.dest.upper())
    if action.nargs in ("*", "+"):
        value += " …"
    return f"[{value}]" if action.nargs in ("?", "*") else value


def _help(action: argparse.Action) -> str:
    return (action.help or "") % {"default": action.default}


def _text(text: str) -> str:
    """Return a help text with flags and names of settings as code."""
    marked = re.sub(r"(?<![\w`-])(--[a-z][a-z-]+|RELAY_[A-Z]+|NO_COLOR)", r"`\1`", text)
    return _in_table(marked)


def _in_table(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    sys.stdout.write(page())
