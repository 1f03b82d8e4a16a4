"""One run of one verb: what it talks to, where it writes, what it asks."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TextIO

from relay.cli.errors import (
    CliError,
    InterruptedByUser,
    PartlyDone,
    UnreachableError,
    UsageError,
)
from relay.cli.printer import Column, Document, Mode, Printer, Stream, inert
from relay.cli.progress import Progress
from relay.cli.transport import Transport

__all__ = ["Session", "forget_output", "run"]

_HOME_AND_CLEAR: Final = "\x1b[H\x1b[2J"


@dataclass(slots=True)
class Session:
    """What a verb has at hand.

    Attributes:
        options: of the command line.
        connect: makes the transport when it is first asked for: some verbs need none.
        printer: for data, on stdout.
        notes: for everything else, on stderr.
        source: where answers to questions come from.
    """

    options: argparse.Namespace
    connect: Callable[[], Transport]
    printer: Printer
    notes: Printer
    source: TextIO
    _transport: Transport | None = field(default=None)

    @property
    def transport(self) -> Transport:
        if self._transport is None:
            self._transport = self.connect()
        return self._transport

    def option(self, name: str, default: Any = None) -> Any:
        """Return what a flag says, also where the verb does not have it."""
        found = getattr(self.options, name, None)
        return default if found is None else found

    # --- answers ---------------------------------------------------------------------

    def show(
        self,
        document: Document,
        draw: Callable[[Document], None],
        *,
        ids: Sequence[object] = (),
    ) -> None:
        """Write one document, or what people or scripts want of it."""
        if self.printer.mode == "people":
            draw(document)
        elif self.printer.mode == "ids":
            for each in ids:
                self.printer.line(inert(str(each)))
        else:
            self.printer.document(document)

    def show_list(
        self,
        document: Document | Sequence[Document],
        columns: Sequence[Column],
        *,
        id_name: str = "id",
        none: str = "nothing found",
    ) -> None:
        """Write a list, or a document with results: a table, ids or a line for each."""
        results: Sequence[Document] = (
            document["results"] if isinstance(document, Mapping) else document
        )
        if self.printer.mode == "people":
            if results:
                self.printer.table(columns, results)
            else:
                self.say(none)
        elif self.printer.mode == "jsonl":
            for each in results:
                self.printer.document(each)
        elif self.printer.mode == "ids":
            for each in results:
                self.printer.line(inert(str(each[id_name])))
        else:
            self.printer.document(document)

    def say(self, text: str) -> None:
        """Write a remark to stderr."""
        self.notes.line(inert(text))

    # --- questions -------------------------------------------------------------------

    @property
    def is_dry(self) -> bool:
        return bool(self.option("dry_run", False))

    def would(self, text: str, **data: Any) -> None:
        """Say what --dry-run has not done."""
        document = {"dry_run": True, "would": text, **data}
        self.show(document, lambda _: self.printer.line(f"would {inert(text)}"))

    def confirm(self, question: str) -> None:
        """Ask before what cannot be undone; go on only if it is wanted.

        Raises:
            UsageError: nobody can be asked, and --yes is missing.
            CliError: the answer is no.
        """
        if self.option("yes", False):
            return
        question = inert(f"{question}, of {self.transport.place}")
        if not (self.source.isatty() and self.notes.is_terminal):
            raise UsageError(f"{question}: nobody can be asked here, so give --yes")
        self.notes.write(f"{question}? [y/N] ")
        self.notes.flush()
        if self.source.readline().strip().lower() not in ("y", "yes"):
            raise CliError("nothing was changed", code="declined")

    # --- again and again -------------------------------------------------------------

    def watch(self, seconds: float | None, draw: Callable[[], bool | None]) -> None:
        """Draw once, or with seconds again and again until Ctrl-C.

        Args:
            draw: returns True where there is nothing more to come.
        """
        while True:
            if seconds is not None and self.printer.is_terminal:
                self.printer.write(_HOME_AND_CLEAR)
            is_over = draw()
            self.printer.flush()
            if seconds is None or is_over:
                return
            time.sleep(seconds)

    # --- several things --------------------------------------------------------------

    def each(
        self,
        ids: Sequence[str],
        act: Callable[[str], Document],
        *,
        verb: str,
        id_name: str = "id",
    ) -> None:
        """Do something to each of several things, and tell what came of it.

        Of one alone the error is the command's; of several what could not be done is
        told beside what was, also where it is broken off.

        Args:
            verb: what is said of each that was done.
            id_name: what it is called by.

        Raises:
            PartlyDone: some could not be done.
            CliError: none could.
        """
        done, errors, broken_off = self._tried(ids, act)
        faults = [
            {"id": each, "code": error.code, "detail": str(error)}
            for each, error in errors
        ]
        if done or (errors and len(ids) > 1):
            self._show_each({"results": done, "errors": faults}, verb, id_name)
        if len(ids) > 1:
            for _, fault in errors:
                self.say(str(fault))
        if broken_off is not None:
            raise broken_off
        if errors and not done:
            _, first = errors[0]
            raise first if len(ids) == 1 else type(first)("none could be done")
        if errors:
            raise PartlyDone(f"{len(errors)} of {len(ids)} could not be done")

    def _tried(
        self, ids: Sequence[str], act: Callable[[str], Document]
    ) -> tuple[list[Document], list[tuple[str, CliError]], BaseException | None]:
        """Return what was done, what could not be, and what broke it off."""
        done: list[Document] = []
        errors: list[tuple[str, CliError]] = []
        with Progress(self.notes) as progress:
            for place, each in enumerate(ids):
                if place:
                    progress.show(place, len(ids))
                try:
                    done.append(act(each))
                except (UnreachableError, KeyboardInterrupt) as error:
                    return done, errors, error
                except CliError as error:
                    errors.append((each, error))
        return done, errors, None

    def _show_each(self, document: Document, verb: str, id_name: str) -> None:
        if self.printer.mode != "people":
            self.show_list(document, (), id_name=id_name)
            return
        for each in document["results"]:
            state = each.get("state")
            name = f"{each[id_name]} (is {state})" if state else each[id_name]
            would = f"{name} would be {verb.removesuffix(':')}"
            self.printer.line(inert(would if self.is_dry else f"{verb} {name}"))


def run(
    options: argparse.Namespace,
    *,
    connect: Callable[[], Transport],
    out: Stream,
    err: Stream,
    source: TextIO | None = None,
    colour: bool = True,
) -> None:
    """Do what a command line says.

    Raises:
        CliError: why it was not done; its exit_code is for the shell.
    """
    session = Session(
        options=options,
        connect=connect,
        printer=Printer(out, mode=_mode(options), colour=colour),
        notes=Printer(err, colour=colour),
        source=source or sys.stdin,
    )
    try:
        try:
            _check_text(list(vars(options).values()))
            options.run(session)
        finally:  # what was done before it went wrong is told too
            session.printer.flush()
    except KeyboardInterrupt:
        raise InterruptedByUser("interrupted") from None
    except BrokenPipeError:
        raise
    except OSError as error:  # a disk is full, or a terminal has gone away
        forget_output()
        raise CliError(
            f"the output cannot be written: {error.strerror or error}"
        ) from error


def _check_text(value: object) -> None:
    """Refuse what cannot be sent anywhere: bytes that are no text, in any argument.

    Raises:
        UsageError: there are some.
    """
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            raise UsageError(f"{value!r} is no text: write UTF-8") from None
    elif isinstance(value, list | tuple):
        for each in value:
            _check_text(each)
    elif isinstance(value, Mapping):
        for name, each in value.items():
            _check_text([name, each])


def _mode(options: argparse.Namespace) -> Mode:
    named: Iterable[tuple[str, Mode]] = (
        ("as_json", "json"),
        ("as_jsonl", "jsonl"),
        ("quiet", "ids"),
    )
    for name, mode in named:
        if getattr(options, name, False):
            return mode
    return "people"


def forget_output() -> None:
    """Let what is left to be flushed at exit go nowhere: nobody can read it."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
