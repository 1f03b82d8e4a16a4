"""Flags that several verbs share; each group is a parent of their parsers."""

from __future__ import annotations

import argparse
from typing import Final

from relay.cli.values import document, filled, pause, span, whole

__all__ = [
    "MOST_LISTED",
    "call_flags",
    "connection_flags",
    "dry_flags",
    "filter_flags",
    "ids",
    "list_flags",
    "name_of",
    "order_flags",
    "output_flags",
    "several_flags",
    "sure_flags",
    "wait_flags",
    "watch_flags",
    "write_flags",
]

# Of one page, as REST gives it. Source: docs/reference/cli.md.
MOST_LISTED: Final = 500
SHOWN: Final = 50

_ID: Final = "whole, or at least its first 8 characters if no other begins with them"


def output_flags() -> argparse.ArgumentParser:
    """Return --json, --jsonl, -q and --no-color, which every verb has."""
    parser = argparse.ArgumentParser(add_help=False)
    group = parser.add_argument_group("output")
    modes = group.add_mutually_exclusive_group()
    modes.add_argument(
        "--json",
        dest="as_json",
        action="store_true",
        help="one JSON document, of the same shape as REST's",
    )
    modes.add_argument(
        "--jsonl",
        dest="as_jsonl",
        action="store_true",
        help="a JSON document in each line, one for each result",
    )
    modes.add_argument(
        "-q", "--quiet", action="store_true", help="ids alone, one in each line"
    )
    # Without a default: given before the verb it counts as well.
    group.add_argument(
        "--no-color",
        action="store_true",
        default=argparse.SUPPRESS,
        help="no colours, as with NO_COLOR in the environment",
    )
    return parser


def connection_flags() -> argparse.ArgumentParser:
    """Return --server and --profile, of the console script."""
    parser = argparse.ArgumentParser(add_help=False)
    group = parser.add_argument_group("server")
    group.add_argument(
        "--server",
        metavar="URL",
        default=argparse.SUPPRESS,
        help="talk to this server over HTTP (RELAY_SERVER), with the token in "
        "RELAY_TOKEN",
    )
    group.add_argument(
        "--profile",
        metavar="NAME",
        default=argparse.SUPPRESS,
        help="the server and token of this profile (RELAY_PROFILE)",
    )
    return parser


def ids(*, nargs: int | str = "+") -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("ids", nargs=nargs, metavar="ID", help=_ID)
    return parser


def name_of(thing: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument(
        "name", type=filled, metavar=thing.upper(), help=f"the {thing}'s name"
    )
    return parser


def filter_flags() -> argparse.ArgumentParser:
    """Return FILTER and the flags that stand for parts of it."""
    parser = argparse.ArgumentParser(add_help=False)
    group = parser.add_argument_group("which jobs")
    group.add_argument(
        "filter",
        nargs="*",
        metavar="FILTER",
        help="in the filter language, such as state:failed task:app.send_*",
    )
    group.add_argument(
        "--state", action="append", metavar="STATE", help="also several times"
    )
    group.add_argument(
        "--queue", action="append", metavar="QUEUE", help="also several times"
    )
    group.add_argument(
        "--task",
        action="append",
        metavar="TASK",
        help="with * at its end: how it begins",
    )
    return parser


def list_flags() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(add_help=False)
    group = parser.add_argument_group("how many")
    group.add_argument(
        "--limit",
        type=whole(1, MOST_LISTED),
        default=SHOWN,
        metavar="N",
        help=f"at most so many, up to {MOST_LISTED} (default: %(default)s)",
    )
    group.add_argument(
        "--cursor", metavar="TEXT", help="go on where the next of a document says"
    )
    group.add_argument("--all", action="store_true", help="all, page by page")
    return parser


def order_flags() -> argparse.ArgumentParser:
    """Return --order, of lists of jobs."""
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument(
        "--order",
        choices=("id", "-id", "run_at", "finished_at", "-finished_at"),
        help="another order that the index of the list gives; write --order=-id",
    )
    return parser


def call_flags() -> argparse.ArgumentParser:
    """Return what a job is to be called with, and where it goes."""
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument(
        "--args",
        dest="task_args",  # Django keeps args for itself
        type=document(list, "list"),
        metavar="JSON",
        help="a list, such as '[1, \"a\"]'",
    )
    parser.add_argument(
        "--kwargs",
        type=document(dict, "object"),
        metavar="JSON",
        help="an object, such as '{\"user\": 1}'",
    )
    parser.add_argument("--queue", metavar="QUEUE", help="another one than the task's")
    parser.add_argument(
        "--priority",
        type=whole(-100, 100),
        metavar="N",
        help="from -100 to 100; higher ones go first",
    )
    return parser


def watch_flags(*also: str, until: str = "until Ctrl-C") -> argparse.ArgumentParser:
    """Return --watch and --interval.

    Args:
        also: other names of --watch.
        until: how long it is shown anew.
    """
    parser = argparse.ArgumentParser(add_help=False)
    group = parser.add_argument_group("again and again")
    group.add_argument(
        "-f", "--watch", *also, action="store_true", help=f"show it anew {until}"
    )
    group.add_argument(
        "--interval",
        type=pause,
        default=2.0,
        metavar="SPAN",
        help="how often (default: 2s)",
    )
    return parser


def dry_flags() -> argparse.ArgumentParser:
    """Return --dry-run, of what changes something."""
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument(
        "--dry-run", action="store_true", help="say what would be done, and do nothing"
    )
    return parser


def write_flags() -> argparse.ArgumentParser:
    """Return what every verb has that changes something in relay."""
    parser = argparse.ArgumentParser(add_help=False, parents=[dry_flags()])
    group = parser.add_argument_group("change")
    group.add_argument("--reason", metavar="TEXT", help="why, for the record")
    return parser


def sure_flags() -> argparse.ArgumentParser:
    """Return --yes, besides --dry-run, of what cannot be undone."""
    parser = argparse.ArgumentParser(add_help=False, parents=[write_flags()])
    parser.add_argument(
        "-y",
        "--yes",
        action="store_true",
        help="do not ask; where nobody can be asked it has to be given",
    )
    return parser


def several_flags() -> argparse.ArgumentParser:
    """Return ids or --filter, for acts on some jobs or on all that match."""
    parser = argparse.ArgumentParser(
        add_help=False, parents=[sure_flags(), wait_flags()]
    )
    group = parser.add_argument_group("which jobs")
    group.add_argument("ids", nargs="*", metavar="ID", help=_ID)
    group.add_argument(
        "--filter",
        metavar="FILTER",
        help="all jobs that match, as a bulk operation in the background",
    )
    group.add_argument(
        "--wait",
        action="store_true",
        help="with --filter: until it is through, with its progress on stderr",
    )
    return parser


def wait_flags() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument(
        "--timeout",
        type=span,
        metavar="SPAN",
        help="wait no longer; then the exit code is 124 (default: for ever)",
    )
    return parser
