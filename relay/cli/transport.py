"""What a command line can ask for, in process and over HTTP alike.

Everything that comes back is a document of relay.queries, as REST answers it. Bodies
are those of REST too. Ids are whole; whoever calls has completed them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Literal, Protocol

from relay.cli.printer import Document

__all__ = ["FINAL", "Body", "JobAct", "Transport", "WorkerAct", "all_pages"]

Body = Mapping[str, Any]
JobAct = Literal["cancel", "retry", "replay", "run_now", "delete"]
WorkerAct = Literal["quiet", "resume", "stop"]
# States in which a job has ended.
FINAL: Final = frozenset({"completed", "failed", "cancelled"})


def all_pages(page: Callable[[str | None], Document]) -> Document:
    """Return one document with the results of all pages, each asked by its cursor."""
    results: list[Document] = []
    cursor: str | None = None
    while True:
        found = page(cursor)
        results += found["results"]
        cursor = found["next"]
        if cursor is None:
            return {"results": results, "next": None, "previous": None}


class Transport(Protocol):
    """One way to relay; each method raises the errors of relay.cli.errors."""

    @property
    def place(self) -> str:
        """Where this leads, as people are asked whether they mean it."""

    # --- jobs ------------------------------------------------------------------------

    def list_jobs(
        self, filter: str, *, limit: int, cursor: str | None, order: str | None = None
    ) -> Document: ...

    def count_jobs(self, filter: str) -> Document: ...

    def get_job(self, job_id: str, *, include: Sequence[str] = ()) -> Document: ...

    def list_history(self, job_id: str) -> Sequence[Document]: ...

    def list_logs(self, job_id: str) -> Sequence[Document]: ...

    def why(self, job_id: str) -> Document: ...

    def wait_for(self, job_id: str, seconds: float) -> Document:
        """Return the job when it has ended, or as it is after so many seconds."""

    def enqueue(self, body: Body) -> Document:
        """Return the job; duplicate of it says whether it was there before."""

    def act(self, act: JobAct, job_id: str) -> Document:
        """Do it; return the job as it is then, of replay the new one, of delete it."""

    def replay(self, job_id: str, body: Body) -> Document:
        """Enqueue a job like an ended one, with other arguments."""

    def edit(self, job_id: str, body: Body) -> Document: ...

    # --- many jobs -------------------------------------------------------------------

    def count_bulk(self, action: JobAct, filter: str) -> Document: ...

    def start_bulk(
        self, action: JobAct, filter: str, *, expected: int | None
    ) -> Document: ...

    def list_bulk(self) -> Document: ...

    def get_bulk(self, bulk_id: str) -> Document: ...

    def cancel_bulk(self, bulk_id: str) -> Document: ...

    def list_failures(self) -> Document: ...

    # --- queues, workers, schedules, tasks -------------------------------------------

    def list_queues(self) -> Document: ...

    def get_queue(self, name: str) -> Document: ...

    def pause_queue(self, name: str, *, until: str | None) -> Document: ...

    def resume_queue(self, name: str) -> Document: ...

    def change_queue(self, name: str, body: Body) -> Document: ...

    def purge_queue(self, name: str, *, expected: int | None) -> Document: ...

    def list_workers(self) -> Document: ...

    def get_worker(self, worker_id: str) -> Document: ...

    def ask_worker(self, act: WorkerAct, worker_id: str) -> Document: ...

    def delete_worker(self, worker_id: str) -> Document:
        """Delete the row of one that has ended; return it as it was."""

    def list_schedules(self) -> Document: ...

    def get_schedule(self, name: str) -> Document: ...

    def next_fires(self, name: str, count: int) -> Sequence[Document]: ...

    def preview(self, body: Body) -> Sequence[Document]: ...

    def create_schedule(self, body: Body) -> Document: ...

    def edit_schedule(self, name: str, body: Body) -> Document: ...

    def delete_schedule(self, name: str) -> None: ...

    def pause_schedule(self, name: str) -> Document: ...

    def resume_schedule(self, name: str) -> Document: ...

    def trigger_schedule(self, name: str) -> Document:
        """Enqueue its job now; return the job."""

    def list_tasks(self) -> Document: ...

    def get_task(self, name: str) -> Document: ...

    # --- the system ------------------------------------------------------------------

    def get_stats(self) -> Document: ...

    def get_system(self) -> Document: ...

    def get_health(self, *, is_live: bool) -> Document:
        """Return whether it can do its work; or only whether it answers."""

    def get_whoami(self) -> Document: ...

    def mark(self, label: str) -> Document:
        """Mark this moment on the charts; return the mark."""

    def list_audit(
        self,
        *,
        subject: str | None,
        target: str | None,
        limit: int,
        cursor: str | None,
    ) -> Document: ...

    def get_version(self) -> Document: ...

    def get_metrics(self) -> str:
        """Return the metrics in the text format of Prometheus."""

    def get_openapi(self) -> Document: ...

    # --- tokens ----------------------------------------------------------------------

    def list_tokens(self) -> Document: ...

    def create_token(self, body: Body) -> Document: ...

    def revoke_token(self, token_id: str) -> Document: ...
