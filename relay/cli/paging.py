"""Lists that come page by page."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from relay.cli.flags import MOST_LISTED
from relay.cli.printer import Column, Document
from relay.cli.session import Session

__all__ = ["Fetch", "pages", "show_pages"]

# Given how many and the cursor: one page.
Fetch = Callable[[int, str | None], Document]


def pages(fetch: Fetch, *, limit: int, cursor: str | None = None) -> Iterator[Document]:
    """Yield the pages of a list from a cursor on."""
    while True:
        page = fetch(limit, cursor)
        yield page
        cursor = page["next"]
        if cursor is None:
            return


def show_pages(
    session: Session, fetch: Fetch, columns: Sequence[Column], *, none: str
) -> None:
    """Write a page as --limit and --cursor say, or with --all all from there on."""
    options, mode = session.options, session.printer.mode
    limit = MOST_LISTED if options.all else options.limit
    found = pages(fetch, limit=limit, cursor=options.cursor)
    document = next(found)
    if options.all and mode in ("jsonl", "ids"):  # as they come: it may be millions
        session.show_list(document, columns)
        for page in found:
            session.show_list(page, columns)
        return
    if options.all:
        rest = [each for page in found for each in page["results"]]
        results = [*document["results"], *rest]
        document = {**document, "results": results, "next": None}
    session.show_list(document, columns, none=none)
    if document["next"] and mode == "people":
        session.say("there are more: --all, or a larger --limit")
