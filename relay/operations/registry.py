"""All acts in one list: each with its permission, its audit and its function."""

from __future__ import annotations

import functools
import inspect
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Concatenate, Final, Literal, ParamSpec, TypeVar

from django.db import transaction

from relay import origin
from relay.conf import get_settings
from relay.engine.connection import check_vendor
from relay.models import Audit
from relay.operations.actor import PERMISSIONS, Actor

__all__ = ["Act", "Operation", "Subject", "all_operations", "operation"]

logger = logging.getLogger("relay.operations")

P = ParamSpec("P")
R = TypeVar("R")

Subject = Literal["job", "queue", "worker", "schedule", "bulk", "token", "mark"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One act that a person or client may ask for.

    Attributes:
        name: of its function in relay.operations, and in the audit.
        permission: what the actor needs.
        subject: what it is done to.
        summary: what it does, in one line.
        run: the function; its first argument is the actor.
    """

    name: str
    permission: str
    subject: Subject
    summary: str
    run: Callable[..., Any]


@dataclass(slots=True)
class Act:
    """One act that is being done: who does it, where, and what is to be on record.

    Attributes:
        using: the alias of the database, on which a transaction is open.
    """

    actor: Actor
    using: str
    operation: str
    subject: Subject
    notes: list[tuple[str, dict[str, Any] | None]] = field(default_factory=list)

    def note(self, target: object, **detail: Any) -> None:
        """Put on record that this was changed, and how.

        Args:
            detail: what JSON can carry; never arguments or results.
        """
        self.notes.append((str(target), detail or None))

    def log(self, event: str, message: str, **fields: Any) -> None:
        """Log what was done, with who did it, where and why, once it is committed.

        Args:
            event: its name in docs/reference/logs.md.
        """
        actor = self.actor
        who = {
            "actor": actor.name,
            "source": actor.source,
            "reason": actor.reason,
            "request_id": actor.request_id,
        }
        tell = functools.partial(
            logger.info, message, extra={"event": event, **fields, **who}
        )
        transaction.on_commit(tell, using=self.using, robust=True)


_operations: Final[dict[str, Operation]] = {}


def all_operations() -> Mapping[str, Operation]:
    """Return every act by its name."""
    return MappingProxyType(_operations)


def operation(
    permission: str, *, subject: Subject
) -> Callable[[Callable[Concatenate[Act, P], R]], Callable[Concatenate[Actor, P], R]]:
    """Make a function an act: checked, in a transaction, and on record.

    What the function notes is written to relay_audit in the transaction of the act:
    either both are there or neither. It is called with an Act in place of the actor.
    """
    assert permission in PERMISSIONS  # noqa: S101 - a slip in this package

    def make(
        function: Callable[Concatenate[Act, P], R],
    ) -> Callable[Concatenate[Actor, P], R]:
        name = function.__name__

        @functools.wraps(function)
        def run(actor: Actor, /, *args: P.args, **kwargs: P.kwargs) -> R:
            actor.require(permission, name)
            using = get_settings().database
            check_vendor(using)
            with (
                origin.asked_by(actor.source, actor.request_id),
                transaction.atomic(using=using),
            ):
                act = Act(actor, using, name, subject)
                result = function(act, *args, **kwargs)
                _write(act)
            return result

        _operations[name] = Operation(
            name=name,
            permission=permission,
            subject=subject,
            summary=(inspect.getdoc(function) or "").partition("\n")[0],
            run=run,
        )
        return run

    return make


def _write(act: Act) -> None:
    actor = act.actor
    Audit.objects.using(act.using).bulk_create(
        Audit(
            operation=act.operation,
            subject=act.subject,
            target=target,
            actor=actor.name,
            source=actor.source,
            reason=actor.reason,
            request_id=actor.request_id,
            address=actor.address,
            detail=detail,
        )
        for target, detail in act.notes
    )
