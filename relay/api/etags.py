"""ETags of jobs: what tells one state of a job from another."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from relay.queries.jobs import INCLUDES

__all__ = ["etag_of", "names_tag"]


def etag_of(job: Mapping[str, Any]) -> str:
    """Return what tells a job's document from others, as one caller sees it.

    It is of all that is sent, also of what other rows say, such as replays and names;
    not of what was asked for with include.
    """
    told = {name: each for name, each in job.items() if name not in INCLUDES}
    digest = hashlib.sha256(json.dumps(told, sort_keys=True).encode())
    return f'"{digest.hexdigest()[:32]}"'


def names_tag(header: str | None, tag: str) -> bool:
    """Tell whether a header of tags names this one, or any."""
    if header is None:
        return False
    tags = {part.strip().removeprefix("W/") for part in header.split(",")}
    return tag in tags or "*" in tags
