"""What other programs read: metrics, and the description of the REST API."""

from __future__ import annotations

import json

from relay.cli.session import Session
from relay.cli.tree import Branch

__all__ = ["grow"]


def grow(root: Branch) -> None:
    """Add the verbs."""
    root.verb(
        "metrics",
        _metrics,
        "write the metrics, as Prometheus reads them",
        details="Write the metrics, as Prometheus reads them: what the database holds, "
        "and what the processes of the server have counted, or with "
        "PROMETHEUS_MULTIPROC_DIR in process all that share that folder.",
    )
    root.verb(
        "openapi", _openapi, "write the OpenAPI document of the REST API, as JSON"
    )


def _metrics(session: Session) -> None:
    session.printer.write(session.transport.get_metrics())


def _openapi(session: Session) -> None:
    document = session.transport.get_openapi()
    indent = None if session.printer.mode == "jsonl" else 2
    session.printer.line(json.dumps(document, indent=indent))
