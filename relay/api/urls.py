"""The addresses under /v1, each with and without a slash at its end."""

from __future__ import annotations

from typing import Final

from django.urls import URLPattern, re_path

from relay.api import bulk, job_acts, jobs, meta, queues, schedules, stream, tokens
from relay.api.base import ApiView

__all__ = ["ADDRESSES", "app_name", "urlpatterns"]

app_name = "relay_api"

# The path as documentation writes it, its view and its name, in the order in which
# they are tried.
ADDRESSES: Final[tuple[tuple[str, type[ApiView], str], ...]] = (
    ("/v1/jobs", jobs.JobsView, "jobs"),
    ("/v1/jobs/batch", jobs.BatchView, "jobs-batch"),
    ("/v1/jobs/bulk", bulk.JobsBulkView, "jobs-bulk"),
    ("/v1/jobs/count", jobs.CountView, "jobs-count"),
    ("/v1/jobs/states", jobs.StatesView, "jobs-states"),
    ("/v1/jobs/{job_id}", jobs.JobView, "job"),
    ("/v1/jobs/{job_id}/attempts", jobs.AttemptsView, "job-attempts"),
    ("/v1/jobs/{job_id}/cancel", job_acts.CancelView, "job-cancel"),
    ("/v1/jobs/{job_id}/history", jobs.HistoryView, "job-history"),
    ("/v1/jobs/{job_id}/logs", jobs.LogsView, "job-logs"),
    ("/v1/jobs/{job_id}/replay", job_acts.ReplayView, "job-replay"),
    ("/v1/jobs/{job_id}/retry", job_acts.RetryView, "job-retry"),
    ("/v1/jobs/{job_id}/run-now", job_acts.RunNowView, "job-run-now"),
    ("/v1/jobs/{job_id}/why", jobs.WhyView, "job-why"),
    ("/v1/bulk", bulk.BulkListView, "bulk-operations"),
    ("/v1/bulk/{bulk_id}", bulk.BulkView, "bulk-operation"),
    ("/v1/bulk/{bulk_id}/cancel", bulk.BulkCancelView, "bulk-cancel"),
    ("/v1/failures", bulk.FailuresView, "failures"),
    ("/v1/failures/{group}/replay", bulk.FailureReplayView, "failures-replay"),
    ("/v1/failures/{group}/retry", bulk.FailureRetryView, "failures-retry"),
    ("/v1/dlq", bulk.FailuresView, "dlq"),
    ("/v1/queues", queues.QueuesView, "queues"),
    ("/v1/queues/{queue}", queues.QueueView, "queue"),
    ("/v1/queues/{queue}/pause", queues.PauseView, "queue-pause"),
    ("/v1/queues/{queue}/purge", queues.PurgeView, "queue-purge"),
    ("/v1/queues/{queue}/resume", queues.ResumeView, "queue-resume"),
    ("/v1/workers", queues.WorkersView, "workers"),
    ("/v1/workers/{worker_id}", queues.WorkerView, "worker"),
    ("/v1/workers/{worker_id}/quiet", queues.WorkerQuietView, "worker-quiet"),
    ("/v1/workers/{worker_id}/resume", queues.WorkerResumeView, "worker-resume"),
    ("/v1/workers/{worker_id}/shutdown", queues.WorkerStopView, "worker-shutdown"),
    ("/v1/schedules", schedules.SchedulesView, "schedules"),
    ("/v1/schedules/preview", schedules.PreviewView, "schedules-preview"),
    ("/v1/schedules/{name}", schedules.ScheduleView, "schedule"),
    ("/v1/schedules/{name}/next", schedules.NextView, "schedule-next"),
    ("/v1/schedules/{name}/pause", schedules.PauseView, "schedule-pause"),
    ("/v1/schedules/{name}/resume", schedules.ResumeView, "schedule-resume"),
    ("/v1/schedules/{name}/trigger", schedules.TriggerView, "schedule-trigger"),
    ("/v1/tasks", meta.TasksView, "tasks"),
    ("/v1/tasks/{name}", meta.TaskView, "task"),
    ("/v1/tokens", tokens.TokensView, "tokens"),
    ("/v1/tokens/{token_id}", tokens.TokenView, "token"),
    ("/v1/tokens/{token_id}/revoke", tokens.TokenRevokeView, "token-revoke"),
    ("/v1/stats", meta.StatsView, "stats"),
    ("/v1/stats/series", meta.SeriesView, "stats-series"),
    ("/v1/stats/totals", meta.TotalsView, "stats-totals"),
    ("/v1/marks", meta.MarksView, "marks"),
    ("/v1/stream", stream.StreamView, "stream"),
    ("/v1/audit", meta.AuditView, "audit"),
    ("/v1/system", meta.SystemView, "system"),
    ("/v1/whoami", meta.WhoAmIView, "whoami"),
    ("/v1/version", meta.VersionView, "version"),
    ("/v1/openapi.json", meta.OpenApiView, "openapi"),
    ("/v1/openapi.yaml", meta.OpenApiYamlView, "openapi-yaml"),
    ("/v1/docs", meta.DocsView, "docs"),
)


# Names of tasks and schedules may hold slashes; ids and queues do not.
_WITH_SLASHES: Final = "{name}"


def _route(path: str) -> str:
    return f"^{'/'.join(map(_step, path.strip('/').split('/')))}/?$"


def _step(step: str) -> str:
    if not step.startswith("{"):
        return step.replace(".", r"\.")
    return f"(?P<{step[1:-1]}>{'.+?' if step == _WITH_SLASHES else '[^/]+'})"


def _ends_with_name(each: tuple[str, type[ApiView], str]) -> bool:
    return each[0].endswith(_WITH_SLASHES)


urlpatterns: list[URLPattern] = [
    re_path(_route(path), view.as_view(), name=name)
    # A name that ends an address would take what follows others.
    for path, view, name in sorted(ADDRESSES, key=_ends_with_name)
]
urlpatterns.append(re_path(r"^v1(?:/.*)?$", meta.UnknownView.as_view(), name="unknown"))
