"""The dead-letter archive: the failed jobs, under the words that others use."""

from __future__ import annotations

from functools import partial
from typing import Final

from relay.cli import flags, shown
from relay.cli.session import Session
from relay.cli.transport import JobAct
from relay.cli.tree import Branch
from relay.cli.verbs.acts import on_several
from relay.cli.verbs.jobs import filter_of, show_job, show_jobs

__all__ = ["grow"]

_FAILED: Final = "state:failed"
_ACTS: Final[dict[str, tuple[JobAct, str]]] = {
    "retry": ("retry", "run failed jobs again"),
    "replay": ("replay", "enqueue new jobs like failed ones"),
    "rm": ("delete", "delete failed jobs"),
}


def grow(root: Branch) -> None:
    """Add the noun dlq."""
    dlq = root.noun("dlq", "list, group, replay and delete failed jobs")
    dlq.verb(
        "ls",
        lambda session: show_jobs(session, filter_of(session, _FAILED)),
        "list failed jobs",
        flags.filter_flags(),
        flags.list_flags(),
        flags.order_flags(),
        flags.watch_flags(),
    )
    dlq.verb("groups", _groups, "group failed jobs by task and error")
    inspect = dlq.verb(
        "inspect",
        show_job,
        "show one failed job",
        flags.ids(nargs=1),
        flags.watch_flags("--follow", until="until it has ended, or Ctrl-C"),
    )
    inspect.add_argument(
        "--logs", action="store_true", help="with what its attempts have logged"
    )
    for name, (act, help) in _ACTS.items():
        dlq.verb(
            name,
            partial(on_several, act=act, within=_FAILED),
            help,
            flags.several_flags(),
        )


def _groups(session: Session) -> None:
    session.show_list(
        session.transport.list_failures(), shown.FAILURES, none="no job has failed"
    )
