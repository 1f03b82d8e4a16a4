"""One job elsewhere: as lines for a shell, and in what keeps its logs and traces."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from urllib.parse import quote

from django.http import HttpRequest
from django.urls import NoReverseMatch, reverse
from django.utils.translation import gettext as _

from relay.conf import get_settings
from relay.dashboard.job_forms import has_mask
from relay.operations import Actor
from relay.operations.bulk_jobs import OWN_TASKS
from relay.packing import TAG
from relay.tasks import all_tasks
from relay.traces import META_NAME

__all__ = ["Line", "leads", "lines", "may_replay", "trace_of"]

# Longer ones are not for a clipboard.
LONGEST: Final = 20_000
_TRACE: Final = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}")
_MINUTE: Final = timedelta(minutes=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """What a shell takes.

    Attributes:
        id: of its element, which a button copies.
        label: what it does, and by what.
    """

    id: str
    label: str
    text: str


def lines(request: HttpRequest, actor: Actor, job: Mapping[str, Any]) -> list[Line]:
    """Return how the command line and curl show a job, and make one like it.

    One of which this actor sees masks, or that holds values of types that JSON has not,
    is replayed instead. What a terminal would act on as it is pasted is left out.
    """
    look, again = _("Look at it"), _("Enqueue one like it")
    found = [("cli-look", look, _relay("job", job["id"]))]
    curl = [("curl-look", look, _curl(request, "job", job["id"]))]
    if _may_repeat(actor, job):
        found.append(("cli-again", again, _enqueue(job)))
        curl.append(("curl-again", again, _curl(request, "jobs", body=_body(job))))
    elif may_replay(actor, job):
        replay = _("Replay it")
        found.append(("cli-replay", replay, _relay("replay", job["id"])))
        sent = _curl(request, "job-replay", job["id"], body={})
        curl.append(("curl-replay", replay, sent))
    named = [(id, f"{what} (relay)", text) for id, what, text in found]
    named += [(id, f"{what} (curl)", text) for id, what, text in curl]
    return [
        Line(id=id, label=label, text=text)
        for id, label, text in named
        if text is not None and len(text) <= LONGEST
    ]


def may_replay(actor: Actor, job: Mapping[str, Any]) -> bool:
    """Tell whether a job has ended, and is this actor's to replay."""
    return (
        job["status"] not in ("queued", "running")
        and actor.may("retry_job")
        and actor.may_call(job["task"])
        and actor.may_fill(job["queue"])
    )


def _may_repeat(actor: Actor, job: Mapping[str, Any]) -> bool:
    task = job["task"]
    return (
        actor.may("enqueue_job")
        and actor.may_call(task)
        and actor.may_fill(job["queue"])
        and task in all_tasks()
        and task not in OWN_TASKS
        and not has_mask(job)
        and not _has_type([job["args"], job["kwargs"]])
    )


def _has_type(document: Any) -> bool:
    if isinstance(document, dict):
        return TAG in document or any(map(_has_type, document.values()))
    return isinstance(document, list) and any(map(_has_type, document))


# --- the command line ----------------------------------------------------------------


def _relay(*words: str) -> str | None:
    """Return a line of words; None where one of them holds what steers a terminal."""
    if not all(word.isprintable() for word in words):
        return None
    return f"relay {shlex.join(words)}"


def _enqueue(job: Mapping[str, Any]) -> str | None:
    words = ["enqueue"]
    if job["args"]:
        words += ["--args", _json(job["args"])]
    if job["kwargs"]:
        words += ["--kwargs", _json(job["kwargs"])]
    for flag, value in _flags(job):
        # A value that begins with a dash would be another flag.
        words += [f"{flag}={value}"] if value.startswith("-") else [flag, value]
    task = job["task"]
    return _relay(*words, *(["--", task] if task.startswith("-") else [task]))


def _flags(job: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    yield "--queue", job["queue"]
    if job["priority"]:
        yield "--priority", str(job["priority"])
    yield "--max-retries", str(job["max_retries"])
    if job["timeout"] is not None:
        yield "--timeout", f"{job['timeout']:.3f}".rstrip("0").rstrip(".") + "s"
    for tag in job["tags"]:
        yield "--tag", tag


# --- REST ----------------------------------------------------------------------------


def _body(job: Mapping[str, Any]) -> dict[str, Any]:
    names = ("task", "args", "kwargs", "queue", "priority", "max_retries", "timeout")
    found = {name: job[name] for name in names}
    return {**found, "tags": job["tags"]} if job["tags"] else found


def _curl(request: HttpRequest, view: str, *args: str, body: Any = None) -> str | None:
    """Return a call of REST's; None in a project without REST."""
    try:
        path = reverse(f"relay_api:{view}", args=args)
    except NoReverseMatch:
        return None
    # The shell puts the token in: it is on no page.
    words = ["curl", '-H "Authorization: Bearer $RELAY_TOKEN"']
    if body is not None:
        words.append("-H 'Content-Type: application/json'")
        words.append(f"--data-raw {shlex.quote(_json(body))}")
    return " ".join([*words, shlex.quote(request.build_absolute_uri(path))])


def _json(value: Any) -> str:
    """Return JSON of ASCII, in which nothing steers a terminal."""
    return json.dumps(value).replace("\x7f", "\\u007f")


# --- logs and traces -----------------------------------------------------------------


def leads(job: Mapping[str, Any]) -> Sequence[tuple[str, str]]:
    """Return the links of RELAY["DASHBOARD"] for a job: their names and addresses.

    {start} is when it was enqueued and {end} when it ended, or the end of this minute.
    Those with {trace_id} are left out where the job carries no trace.
    """
    values = {
        "job_id": job["id"],
        "trace_id": trace_of(job["meta"]),
        "start": job["created_at"],
        "end": job["finished_at"] or _end_of_minute(),
    }
    known = {name: quote(str(value), safe="") for name, value in values.items()}
    return [
        (name, address.format(**known))
        for name, address in get_settings().dashboard.links.items()
        if values["trace_id"] or "{trace_id}" not in address
    ]


def trace_of(meta: Any) -> str | None:
    """Return the id of the trace that a job's meta carries; None if it has none."""
    carried = meta.get(META_NAME) if isinstance(meta, dict) else None
    parent = carried.get("traceparent") if isinstance(carried, dict) else None
    found = _TRACE.fullmatch(parent) if isinstance(parent, str) else None
    return found[1] if found else None


def _end_of_minute() -> str:
    now = datetime.now(UTC).replace(second=0)
    return f"{now + _MINUTE:%Y-%m-%dT%H:%M:%S}Z"
