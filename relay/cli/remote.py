"""relay on a server, over HTTP."""

from __future__ import annotations

from collections.abc import Sequence
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

from relay.cli.errors import UnreachableError
from relay.cli.flags import MOST_LISTED
from relay.cli.http import ANSWER_SECONDS, Answer, Http, path
from relay.cli.printer import Document
from relay.cli.transport import Body, JobAct, WorkerAct, all_pages

__all__ = ["Remote"]

_ACTS: Final[dict[JobAct, str]] = {
    "cancel": "cancel",
    "retry": "retry",
    "replay": "replay",
    "run_now": "run-now",
}
_WORKER_ACTS: Final[dict[WorkerAct, str]] = {
    "quiet": "quiet",
    "resume": "resume",
    "stop": "shutdown",
}
# A server holds no question longer.
_LONGEST_WAIT: Final = 60.0


class Remote:
    """As relay.cli.transport.Transport says, by the REST API."""

    def __init__(self, http: Http) -> None:
        self._http = http

    @property
    def place(self) -> str:
        return self._http.url

    def _ask(
        self,
        method: str,
        *parts: str,
        body: Body | None = None,
        query: Body | None = None,
    ) -> Any:
        return self._http.ask(method, path("v1", *parts), body=body, query=query)

    def _get(self, *parts: str, **query: object) -> Document:
        return _document(self._ask("GET", *parts, query=query))

    def _list(self, *parts: str, **query: object) -> Sequence[Document]:
        return _documents(self._ask("GET", *parts, query=query))

    def _post(
        self, *parts: str, body: Body | None = None, query: Body | None = None
    ) -> Document:
        return _document(self._ask("POST", *parts, body=body, query=query))

    def _patch(self, *parts: str, body: Body) -> Document:
        return _document(self._ask("PATCH", *parts, body=body))

    def _page(self, *parts: str, **query: object) -> Document:
        """Return a page with cursors in place of addresses."""
        found = Answer(self._get(*parts, **query))
        for name in ("next", "previous"):
            if found.get(name) is not None:
                asked = parse_qs(urlsplit(str(found[name])).query)
                found[name] = Answer(asked)["cursor"][0]
        return found

    # --- jobs ------------------------------------------------------------------------

    def list_jobs(
        self, filter: str, *, limit: int, cursor: str | None, order: str | None = None
    ) -> Document:
        return self._page(
            "jobs", q=filter or None, order=order, limit=limit, cursor=cursor
        )

    def count_jobs(self, filter: str) -> Document:
        return self._get("jobs", "count", q=filter or None)

    def get_job(self, job_id: str, *, include: Sequence[str] = ()) -> Document:
        return self._get("jobs", job_id, include=",".join(include) or None)

    def list_history(self, job_id: str) -> Sequence[Document]:
        return self._list("jobs", job_id, "history")

    def list_logs(self, job_id: str) -> Sequence[Document]:
        return self._list("jobs", job_id, "logs")

    def why(self, job_id: str) -> Document:
        return self._get("jobs", job_id, "why")

    def wait_for(self, job_id: str, seconds: float) -> Document:
        wait = min(seconds, _LONGEST_WAIT)
        found = self._http.ask(
            "GET",
            path("v1", "jobs", job_id),
            query={"wait": f"{wait:.3f}s"},
            seconds=wait + ANSWER_SECONDS,
        )
        return _document(found)

    def enqueue(self, body: Body) -> Document:
        made = Answer(self._post("jobs", body=body))
        made["duplicate"] = self._http.status == HTTPStatus.OK
        return made

    def act(self, act: JobAct, job_id: str) -> Document:
        if act == "delete":
            job = self.get_job(job_id)
            self._ask("DELETE", "jobs", job_id)
            return job
        return self._post("jobs", job_id, _ACTS[act])

    def replay(self, job_id: str, body: Body) -> Document:
        return self._post("jobs", job_id, "replay", body=body)

    def edit(self, job_id: str, body: Body) -> Document:
        return self._patch("jobs", job_id, body=body)

    # --- many jobs -------------------------------------------------------------------

    def count_bulk(self, action: JobAct, filter: str) -> Document:
        body = {"action": action, "filter": filter}
        return self._post("jobs", "bulk", body=body, query={"dry_run": "true"})

    def start_bulk(
        self, action: JobAct, filter: str, *, expected: int | None
    ) -> Document:
        body = {"action": action, "filter": filter, **_expected(expected)}
        return self._post("jobs", "bulk", body=body)

    def list_bulk(self) -> Document:
        return self._page("bulk", limit=MOST_LISTED)

    def get_bulk(self, bulk_id: str) -> Document:
        return self._get("bulk", bulk_id)

    def cancel_bulk(self, bulk_id: str) -> Document:
        return self._post("bulk", bulk_id, "cancel")

    def list_failures(self) -> Document:
        return self._get("failures")

    # --- queues, workers, schedules, tasks -------------------------------------------

    def list_queues(self) -> Document:
        return self._get("queues")

    def get_queue(self, name: str) -> Document:
        return self._get("queues", name)

    def pause_queue(self, name: str, *, until: str | None) -> Document:
        return self._post("queues", name, "pause", body={"until": until})

    def resume_queue(self, name: str) -> Document:
        return self._post("queues", name, "resume")

    def change_queue(self, name: str, body: Body) -> Document:
        return self._patch("queues", name, body=body)

    def purge_queue(self, name: str, *, expected: int | None) -> Document:
        body = _expected(expected)
        return self._post("queues", name, "purge", body=body)

    def list_workers(self) -> Document:
        return all_pages(
            lambda cursor: self._page("workers", limit=MOST_LISTED, cursor=cursor)
        )

    def get_worker(self, worker_id: str) -> Document:
        return self._get("workers", worker_id)

    def ask_worker(self, act: WorkerAct, worker_id: str) -> Document:
        return self._post("workers", worker_id, _WORKER_ACTS[act])

    def delete_worker(self, worker_id: str) -> Document:
        worker = self.get_worker(worker_id)
        self._ask("DELETE", "workers", worker_id)
        return worker

    def list_schedules(self) -> Document:
        return all_pages(
            lambda cursor: self._page("schedules", limit=MOST_LISTED, cursor=cursor)
        )

    def get_schedule(self, name: str) -> Document:
        return self._get("schedules", name)

    def next_fires(self, name: str, count: int) -> Sequence[Document]:
        return self._list("schedules", name, "next", n=count)

    def preview(self, body: Body) -> Sequence[Document]:
        return _documents(self._ask("POST", "schedules", "preview", body=body))

    def create_schedule(self, body: Body) -> Document:
        return self._post("schedules", body=body)

    def edit_schedule(self, name: str, body: Body) -> Document:
        return self._patch("schedules", name, body=body)

    def delete_schedule(self, name: str) -> None:
        self._ask("DELETE", "schedules", name)

    def pause_schedule(self, name: str) -> Document:
        return self._post("schedules", name, "pause")

    def resume_schedule(self, name: str) -> Document:
        return self._post("schedules", name, "resume")

    def trigger_schedule(self, name: str) -> Document:
        return self._post("schedules", name, "trigger")

    def list_tasks(self) -> Document:
        return self._get("tasks")

    def get_task(self, name: str) -> Document:
        return self._get("tasks", name)

    # --- the system ------------------------------------------------------------------

    def get_stats(self) -> Document:
        return self._get("stats")

    def get_system(self) -> Document:
        return self._get("system")

    def get_health(self, *, is_live: bool) -> Document:
        page = "healthz" if is_live else "readyz"
        return _document(self._http.ask("GET", page, also=(503,)))

    def get_whoami(self) -> Document:
        return self._get("whoami")

    def mark(self, label: str) -> Document:
        return self._post("marks", body={"label": label})

    def list_audit(
        self,
        *,
        subject: str | None,
        target: str | None,
        limit: int,
        cursor: str | None,
    ) -> Document:
        return self._page(
            "audit", subject=subject, target=target, limit=limit, cursor=cursor
        )

    def get_version(self) -> Document:
        return self._get("version")

    def get_metrics(self) -> str:
        return self._http.read("metrics")

    def get_openapi(self) -> Document:
        return self._get("openapi.json")

    # --- tokens ----------------------------------------------------------------------

    def list_tokens(self) -> Document:
        return all_pages(
            lambda cursor: self._page("tokens", limit=MOST_LISTED, cursor=cursor)
        )

    def create_token(self, body: Body) -> Document:
        return self._post("tokens", body=body)

    def revoke_token(self, token_id: str) -> Document:
        return self._post("tokens", token_id, "revoke")


def _document(answer: Any) -> Document:
    """Return an answer that is one document, which another server's may not be."""
    if not isinstance(answer, Answer):
        raise _strange()
    if "results" in answer:
        _documents(answer["results"])
    return answer


def _documents(answer: Any) -> Sequence[Document]:
    if not isinstance(answer, list) or not all(isinstance(x, Answer) for x in answer):
        raise _strange()
    return answer


def _strange() -> UnreachableError:
    return UnreachableError("the server answers, but not as relay of this release does")


def _expected(count: int | None) -> Body:
    return {} if count is None else {"expected": count}
