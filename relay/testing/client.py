"""A client of the REST API, with a token of its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from django.test import Client

from relay.operations import Actor, create_token

__all__ = ["ApiClient"]

JSON: Final = "application/json"


class ApiClient(Client):
    """Django's test client as somebody with a token: ApiClient("read", "submit").

    It sends what it is given as JSON. The token is a row of the test's, as any other
    of these scopes; its making is on record in relay_audit.

    Attributes:
        secret: what it sends as bearer.

    Args:
        scopes: what it may do: read, payload, submit, operate, admin.
        queues: the only ones whose jobs it is for; None for all.
        tasks: the only ones that it may have run; None for all.

    Raises:
        ArgumentError: there is no such scope, or none is given.
        NotAllowed: RELAY["READ_ONLY"] is set.
    """

    def __init__(
        self,
        *scopes: str,
        queues: Sequence[str] | None = None,
        tasks: Sequence[str] | None = None,
    ) -> None:
        actor = Actor(name="relay.testing", source="cli")
        made = create_token(
            actor, "relay.testing", scopes=scopes, queues=queues, tasks=tasks
        )
        self.secret = made.secret
        super().__init__(headers={"Authorization": f"Bearer {made.secret}"})

    def post(
        self,
        path: Any,
        data: Any = None,
        content_type: str = JSON,
        *args: Any,
        **more: Any,
    ) -> Any:
        """Send POST; data is the body, as JSON unless the type says otherwise."""
        return super().post(path, _body(data), content_type, *args, **more)

    def patch(
        self,
        path: Any,
        data: Any = None,
        content_type: str = JSON,
        *args: Any,
        **more: Any,
    ) -> Any:
        """Send PATCH, as post()."""
        return super().patch(path, _body(data), content_type, *args, **more)

    def delete(
        self,
        path: Any,
        data: Any = None,
        content_type: str = JSON,
        *args: Any,
        **more: Any,
    ) -> Any:
        """Send DELETE, as post()."""
        return super().delete(path, _body(data), content_type, *args, **more)


def _body(data: Any) -> Any:
    return "" if data is None else data
