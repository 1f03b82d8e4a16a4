"""The stylesheet, the script, htmx and the icon, under names that tell their content.

They are served from the package: no collectstatic and no staticfiles are needed.
"""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from django.http import Http404, HttpRequest, HttpResponse, HttpResponseNotModified
from django.utils.cache import patch_vary_headers

from relay.dashboard.access import page
from relay.operations import Actor

__all__ = ["asset", "asset_name"]

_FOLDER: Final = Path(__file__).parents[1] / "static" / "relay" / "dashboard"
_TYPES: Final = {
    "htmx.min.js": "text/javascript; charset=utf-8",
    "icon.svg": "image/svg+xml",
    "relay.css": "text/css; charset=utf-8",
    "relay.js": "text/javascript; charset=utf-8",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asset:
    """One file, as it is sent."""

    name: str
    type: str
    content: bytes
    packed: bytes


@cache
def _assets() -> Mapping[str, _Asset]:
    """Return the files by their own names."""
    found: dict[str, _Asset] = {}
    for file, content_type in _TYPES.items():
        content = (_FOLDER / file).read_bytes()
        stem, _, ending = file.rpartition(".")
        found[file] = _Asset(
            name=f"{stem}.{hashlib.sha256(content).hexdigest()[:16]}.{ending}",
            type=content_type,
            content=content,
            packed=gzip.compress(content, mtime=0),
        )
    return found


def asset_name(file: str) -> str:
    """Return under which name a file is served: another content, another name."""
    return _assets()[file].name


@page()
def asset(request: HttpRequest, actor: Actor, name: str) -> HttpResponse:
    """Send a file, to be kept for a year."""
    found = next((each for each in _assets().values() if each.name == name), None)
    if found is None:
        raise Http404
    tag = f'"{name}"'
    response: HttpResponse
    if request.headers.get("If-None-Match") == tag:
        response = HttpResponseNotModified()
    elif "gzip" in request.headers.get("Accept-Encoding", ""):
        response = HttpResponse(found.packed, content_type=found.type)
        response["Content-Encoding"] = "gzip"
    else:
        response = HttpResponse(found.content, content_type=found.type)
    patch_vary_headers(response, ["Accept-Encoding"])
    response["ETag"] = tag
    response["Cache-Control"] = "private, max-age=31536000, immutable"
    return response
