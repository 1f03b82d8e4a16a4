"""The addresses of the dashboard, under whatever it is mounted at."""

from __future__ import annotations

from django.urls import path

from relay.dashboard import (
    assets,
    bulk,
    failures,
    job_acts,
    job_forms,
    jobs,
    metrics,
    overview,
    queues,
    schedule_forms,
    schedules,
    system,
    workers,
)

app_name = "relay_dashboard"

urlpatterns = [
    path("", overview.overview, name="overview"),
    path("assets/<str:name>", assets.asset, name="asset"),
    path("jobs/", jobs.jobs, name="jobs"),
    path("jobs/act/", job_acts.act_on_jobs, name="act_on_jobs"),
    path("jobs/all/", job_acts.act_on_all, name="act_on_all"),
    path("jobs/new/", job_forms.enqueue, name="enqueue"),
    path("jobs/<uuid:job_id>/", jobs.job, name="job"),
    path("jobs/<uuid:job_id>/act/", job_acts.act_on_job, name="act_on_job"),
    path("jobs/<uuid:job_id>/edit/", job_forms.edit_job, name="edit_job"),
    path("jobs/<uuid:job_id>/replay/", job_forms.replay_job, name="replay_job"),
    path("failures/", failures.failures, name="failures"),
    path("queues/", queues.queues, name="queues"),
    # Rows may hold names that no enqueue takes, also with slashes.
    path("queues/<path:name>/act/", queues.act_on_queue, name="act_on_queue"),
    path("queues/<path:name>/", queues.queue, name="queue"),
    path("workers/", workers.workers, name="workers"),
    path("workers/<uuid:worker_id>/", workers.worker, name="worker"),
    path("workers/<uuid:worker_id>/act/", workers.act_on_worker, name="act_on_worker"),
    path("schedules/", schedules.schedules, name="schedules"),
    path("new-schedule/", schedule_forms.new_schedule, name="new_schedule"),
    path(
        "schedules/<path:name>/edit/",
        schedule_forms.edit_schedule,
        name="edit_schedule",
    ),
    path(
        "schedules/<path:name>/act/",
        schedules.act_on_schedule,
        name="act_on_schedule",
    ),
    path("schedules/<path:name>/", schedules.schedule, name="schedule"),
    path("bulk/", bulk.bulk, name="bulk"),
    path("bulk/<uuid:bulk_id>/", bulk.bulk_one, name="bulk_one"),
    path("bulk/<uuid:bulk_id>/act/", bulk.act_on_bulk, name="act_on_bulk"),
    path("metrics/", metrics.metrics, name="metrics"),
    path("metrics/mark/", metrics.mark, name="mark"),
    path("system/", system.system, name="system"),
]
