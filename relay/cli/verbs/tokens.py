"""API tokens: made, listed, revoked."""

from __future__ import annotations

from relay.cli import finding, flags, shown
from relay.cli.printer import Document, inert
from relay.cli.session import Session
from relay.cli.tree import Branch
from relay.cli.values import span

__all__ = ["grow"]


def grow(root: Branch) -> None:
    """Add the noun token."""
    token = root.noun("token", "make, list and revoke tokens of the REST API")
    token.verb("ls", _list, "list tokens; never their secrets")
    create = token.verb(
        "create",
        _create,
        "make a token; its secret is shown once",
        flags.name_of("token"),
        flags.write_flags(),
    )
    create.add_argument(
        "--scopes",
        required=True,
        metavar="SCOPE,…",
        help="of read, payload, submit, operate, admin",
    )
    create.add_argument("--queues", metavar="QUEUE,…", help="only jobs of these queues")
    create.add_argument(
        "--tasks", metavar="TASK,…", help="run only these, by name or as 'mail.*'"
    )
    life = create.add_mutually_exclusive_group()
    life.add_argument(
        "--expires-in", type=span, metavar="SPAN", help="(default: 90 days)"
    )
    life.add_argument(
        "--never-expires", action="store_true", help="valid until it is revoked"
    )
    token.verb(
        "revoke",
        _revoke,
        "let tokens be used no more",
        flags.ids(),
        flags.sure_flags(),
    )


def _list(session: Session) -> None:
    session.show_list(session.transport.list_tokens(), shown.TOKENS, none="no token")


def _create(session: Session) -> None:
    options = session.options
    if session.is_dry:
        session.would(f"make token {options.name} for {options.scopes}")
        return
    body = {
        "name": options.name,
        "scopes": [each for each in options.scopes.split(",") if each],
        "queues": options.queues.split(",") if options.queues else None,
        "tasks": options.tasks.split(",") if options.tasks else None,
    }
    if options.never_expires or options.expires_in is not None:
        body["expires_in"] = options.expires_in
    made = session.transport.create_token(body)

    def draw(token: Document) -> None:
        session.printer.line(inert(token["secret"]))
        session.say("this is shown once: keep it, for RELAY_TOKEN or relay profile add")

    session.show(made, draw, ids=[made["secret"]])


def _revoke(session: Session) -> None:
    ids = session.options.ids
    if not session.is_dry:
        session.confirm(f"revoke {len(ids)} token{'s' if len(ids) > 1 else ''}")

    def revoke(text: str) -> Document:
        tokens = session.transport.list_tokens()["results"]
        found = finding.one_of(tokens, text, "token")
        if session.is_dry:
            return {**found, "dry_run": True}
        return session.transport.revoke_token(found["id"])

    session.each(ids, revoke, verb="revoked")
