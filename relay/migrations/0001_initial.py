import datetime

import django.db.models.deletion
import django.db.models.functions.datetime
from django.db import migrations, models

import relay.ids
import relay.models.fields
import relay.models.job

CREATE_SEQUENCE = "CREATE SEQUENCE relay_ready_seq AS bigint CACHE 1"
DROP_SEQUENCE = "DROP SEQUENCE relay_ready_seq"

# Source: docs/explanation/tables.md, "Storage". Half-empty pages keep a job's later
# versions on its page, which makes their WAL records small. EXTERNAL: compressing
# arguments costs more than half of the insert of a large row.
STORE_JOBS = """
ALTER TABLE relay_job SET (
    fillfactor = 50,
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 5000,
    autovacuum_vacuum_insert_scale_factor = 0,
    autovacuum_vacuum_insert_threshold = 50000,
    autovacuum_vacuum_cost_delay = 1,
    autovacuum_vacuum_cost_limit = 2000,
    autovacuum_analyze_scale_factor = 0.02
);
ALTER TABLE relay_job ALTER COLUMN args SET STORAGE EXTERNAL;
ALTER TABLE relay_worker SET (
    fillfactor = 50,
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 200
);
"""
RESTORE_JOBS = """
ALTER TABLE relay_job RESET (
    fillfactor,
    autovacuum_vacuum_scale_factor,
    autovacuum_vacuum_threshold,
    autovacuum_vacuum_insert_scale_factor,
    autovacuum_vacuum_insert_threshold,
    autovacuum_vacuum_cost_delay,
    autovacuum_vacuum_cost_limit,
    autovacuum_analyze_scale_factor
);
ALTER TABLE relay_job ALTER COLUMN args SET STORAGE EXTENDED;
ALTER TABLE relay_worker RESET (
    fillfactor, autovacuum_vacuum_scale_factor, autovacuum_vacuum_threshold
);
"""


class Migration(migrations.Migration):
    """The tables of jobs, queues, workers and schedules. New tables: locks nobody."""

    initial = True

    dependencies = []

    operations = [
        migrations.RunSQL(CREATE_SEQUENCE, DROP_SEQUENCE),
        migrations.CreateModel(
            name="Worker",
            fields=[
                (
                    "id",
                    models.UUIDField(
                        default=relay.ids.uuid7,
                        editable=False,
                        primary_key=True,
                        serialize=False,
                    ),
                ),
                ("name", models.TextField()),
                ("supervisor", models.UUIDField(null=True)),
                ("host", models.TextField()),
                ("pid", models.IntegerField()),
                (
                    "kind",
                    models.TextField(
                        choices=[
                            ("process", "Process"),
                            ("embedded", "Embedded"),
                            ("http", "Http"),
                        ],
                        db_default="process",
                    ),
                ),
                (
                    "queues",
                    relay.models.fields.PlainArrayField(
                        base_field=models.TextField(), size=None
                    ),
                ),
                ("concurrency", models.IntegerField()),
                ("version", models.TextField()),
                (
                    "state",
                    models.TextField(
                        choices=[
                            ("running", "Running"),
                            ("quiet", "Quiet"),
                            ("draining", "Draining"),
                            ("stopped", "Stopped"),
                            ("lost", "Lost"),
                        ],
                        db_default="running",
                    ),
                ),
                (
                    "started_at",
                    models.DateTimeField(
                        db_default=django.db.models.functions.datetime.Now()
                    ),
                ),
                (
                    "heartbeat_at",
                    models.DateTimeField(
                        db_default=django.db.models.functions.datetime.Now()
                    ),
                ),
                ("lease_expires_at", models.DateTimeField()),
                ("stats", models.JSONField(null=True)),
            ],
            options={
                "db_table": "relay_worker",
            },
        ),
        migrations.CreateModel(
            name="Job",
            fields=[
                (
                    "id",
                    models.UUIDField(
                        default=relay.ids.uuid7,
                        editable=False,
                        primary_key=True,
                        serialize=False,
                    ),
                ),
                (
                    "created_at",
                    models.DateTimeField(
                        db_default=django.db.models.functions.datetime.Now()
                    ),
                ),
                (
                    "run_at",
                    models.DateTimeField(
                        db_default=django.db.models.functions.datetime.Now()
                    ),
                ),
                (
                    "ready_seq",
                    models.BigIntegerField(db_default=relay.models.job.NextReadySeq()),
                ),
                ("started_at", models.DateTimeField(null=True)),
                ("finished_at", models.DateTimeField(null=True)),
                ("expires_at", models.DateTimeField(null=True)),
                ("deadline_at", models.DateTimeField(null=True)),
                ("cancel_requested_at", models.DateTimeField(null=True)),
                ("unique_until", models.DateTimeField(null=True)),
                ("occurrence_at", models.DateTimeField(null=True)),
                ("schedule_id", models.UUIDField(null=True)),
                ("worker_id", models.UUIDField(null=True)),
                ("workflow_id", models.UUIDField(null=True)),
                ("replay_of", models.UUIDField(null=True)),
                ("attempt", models.IntegerField(db_default=0)),
                ("timeout_ms", models.IntegerField(null=True)),
                ("failures", models.IntegerField(db_default=0)),
                ("crashes", models.IntegerField(db_default=0)),
                ("losses", models.IntegerField(db_default=0)),
                ("max_retries", models.IntegerField(db_default=25)),
                ("priority", models.SmallIntegerField(db_default=0)),
                ("has_dependents", models.BooleanField(db_default=False)),
                (
                    "state",
                    models.TextField(
                        choices=[
                            ("blocked", "Blocked"),
                            ("scheduled", "Scheduled"),
                            ("queued", "Queued"),
                            ("running", "Running"),
                            ("retrying", "Retrying"),
                            ("completed", "Completed"),
                            ("failed", "Failed"),
                            ("cancelled", "Cancelled"),
                        ],
                        db_default="queued",
                    ),
                ),
                ("task", models.TextField()),
                ("queue", models.TextField(db_default="default")),
                ("unique_scope", models.TextField(null=True)),
                ("concurrency_key", models.TextField(null=True)),
                ("unique_key", models.BinaryField(null=True)),
                ("error_class", models.TextField(null=True)),
                ("error_message", models.TextField(null=True)),
                ("progress", models.JSONField(null=True)),
                ("result", models.JSONField(null=True)),
                (
                    "tags",
                    relay.models.fields.PlainArrayField(
                        base_field=models.TextField(), null=True, size=None
                    ),
                ),
                ("meta", models.JSONField(null=True)),
                ("args", models.JSONField(default=dict)),
            ],
            options={
                "db_table": "relay_job",
                "indexes": [
                    models.Index(
                        condition=models.Q(
                            ("concurrency_key__isnull", True), ("state", "queued")
                        ),
                        fields=["queue", "-priority", "ready_seq"],
                        name="relay_job_ready_idx",
                    ),
                    models.Index(
                        condition=models.Q(("state__in", ["scheduled", "retrying"])),
                        fields=["run_at"],
                        name="relay_job_due_idx",
                    ),
                    models.Index(
                        condition=models.Q(("state", "running")),
                        fields=["queue", "worker_id"],
                        name="relay_job_held_idx",
                    ),
                    models.Index(
                        condition=models.Q(
                            ("state__in", ["completed", "failed", "cancelled"])
                        ),
                        fields=["finished_at", "id"],
                        name="relay_job_final_idx",
                    ),
                    models.Index(
                        condition=models.Q(("state__in", ["failed", "cancelled"])),
                        fields=["state", "id"],
                        name="relay_job_failed_idx",
                    ),
                    models.Index(
                        condition=models.Q(("expires_at__isnull", False)),
                        fields=["expires_at"],
                        name="relay_job_retention_idx",
                    ),
                    models.Index(
                        condition=models.Q(("replay_of__isnull", False)),
                        fields=["replay_of"],
                        name="relay_job_replay_idx",
                    ),
                ],
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(
                            (
                                "state__in",
                                [
                                    "blocked",
                                    "scheduled",
                                    "queued",
                                    "running",
                                    "retrying",
                                    "completed",
                                    "failed",
                                    "cancelled",
                                ],
                            )
                        ),
                        name="relay_job_state_known",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("state", "running"),
                            ("worker_id__isnull", True),
                            _negated=True,
                        ),
                        name="relay_job_running_has_worker",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("priority__range", (-100, 100))),
                        name="relay_job_priority_range",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("attempt__range", (0, 2000000000)),
                            ("crashes__range", (0, 2000000000)),
                            ("failures__range", (0, 2000000000)),
                            ("losses__range", (0, 2000000000)),
                            ("ready_seq__gte", 0),
                        ),
                        name="relay_job_counters_range",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            (
                                "run_at__range",
                                (
                                    datetime.datetime(
                                        1970, 1, 1, 0, 0, tzinfo=datetime.UTC
                                    ),
                                    datetime.datetime(
                                        9999, 12, 30, 0, 0, tzinfo=datetime.UTC
                                    ),
                                ),
                            ),
                            models.Q(
                                ("deadline_at__isnull", True),
                                (
                                    "deadline_at__range",
                                    (
                                        datetime.datetime(
                                            1970,
                                            1,
                                            1,
                                            0,
                                            0,
                                            tzinfo=datetime.UTC,
                                        ),
                                        datetime.datetime(
                                            9999,
                                            12,
                                            30,
                                            0,
                                            0,
                                            tzinfo=datetime.UTC,
                                        ),
                                    ),
                                ),
                                _connector="OR",
                            ),
                        ),
                        name="relay_job_times_finite",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="History",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                (
                    "at",
                    models.DateTimeField(
                        db_default=django.db.models.functions.datetime.Now()
                    ),
                ),
                ("event", models.TextField()),
                ("attempt", models.IntegerField(null=True)),
                ("actor", models.TextField(null=True)),
                ("detail", models.JSONField(null=True)),
                (
                    "job",
                    models.ForeignKey(
                        db_constraint=False,
                        null=True,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        related_name="history",
                        to="relay.job",
                    ),
                ),
            ],
            options={
                "verbose_name_plural": "history",
                "db_table": "relay_history",
            },
        ),
        migrations.CreateModel(
            name="Attempt",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("attempt", models.IntegerField()),
                ("worker_id", models.UUIDField(null=True)),
                ("outcome", models.TextField()),
                ("error_class", models.TextField(null=True)),
                ("error_message", models.TextField(null=True)),
                ("traceback", models.TextField(null=True)),
                ("started_at", models.DateTimeField(null=True)),
                (
                    "ended_at",
                    models.DateTimeField(
                        db_default=django.db.models.functions.datetime.Now()
                    ),
                ),
                (
                    "job",
                    models.ForeignKey(
                        db_constraint=False,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        related_name="attempts",
                        to="relay.job",
                    ),
                ),
            ],
            options={
                "db_table": "relay_attempt",
            },
        ),
        migrations.CreateModel(
            name="Queue",
            fields=[
                ("name", models.TextField(primary_key=True, serialize=False)),
                ("paused_at", models.DateTimeField(blank=True, null=True)),
                ("paused_until", models.DateTimeField(blank=True, null=True)),
                (
                    "policy",
                    models.TextField(
                        choices=[("priority", "Priority"), ("fifo", "Fifo")],
                        db_default="priority",
                    ),
                ),
                ("weight", models.IntegerField(db_default=1)),
                ("max_running", models.IntegerField(blank=True, null=True)),
                ("key_limit", models.IntegerField(blank=True, null=True)),
            ],
            options={
                "db_table": "relay_queue",
                "indexes": [
                    models.Index(
                        condition=models.Q(("paused_at__isnull", False)),
                        fields=["name"],
                        name="relay_queue_paused_idx",
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="Schedule",
            fields=[
                (
                    "id",
                    models.UUIDField(
                        default=relay.ids.uuid7,
                        editable=False,
                        primary_key=True,
                        serialize=False,
                    ),
                ),
                ("name", models.TextField(unique=True)),
                ("task", models.TextField()),
                ("args", models.JSONField(blank=True, default=dict)),
                ("queue", models.TextField(blank=True, null=True)),
                ("priority", models.SmallIntegerField(blank=True, null=True)),
                ("cron", models.TextField()),
                ("seconds", models.BooleanField(db_default=False, default=False)),
                ("timezone", models.TextField(db_default="UTC", default="UTC")),
                (
                    "catch_up",
                    models.TextField(
                        choices=[
                            ("none", "None"),
                            ("latest", "Latest"),
                            ("all", "All"),
                        ],
                        db_default="latest",
                        default="latest",
                    ),
                ),
                (
                    "catch_up_window_ms",
                    models.BigIntegerField(db_default=86400000, default=86400000),
                ),
                ("enabled", models.BooleanField(db_default=True, default=True)),
                (
                    "source",
                    models.TextField(
                        choices=[("code", "Code"), ("database", "Database")],
                        db_default="database",
                        default="database",
                        editable=False,
                    ),
                ),
                ("retired_at", models.DateTimeField(editable=False, null=True)),
                ("planned", models.TextField(editable=False, null=True)),
                ("next_due_at", models.DateTimeField(editable=False, null=True)),
                ("last_due_at", models.DateTimeField(editable=False, null=True)),
                ("last_error", models.TextField(editable=False, null=True)),
                (
                    "created_at",
                    models.DateTimeField(
                        db_default=django.db.models.functions.datetime.Now(),
                        editable=False,
                    ),
                ),
            ],
            options={
                "db_table": "relay_schedule",
            },
        ),
        migrations.CreateModel(
            name="Occurrence",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("due_at", models.DateTimeField()),
                (
                    "state",
                    models.TextField(
                        choices=[("fired", "Fired"), ("missed", "Missed")],
                        db_default="fired",
                    ),
                ),
                ("count", models.IntegerField(db_default=1)),
                ("until_at", models.DateTimeField(null=True)),
                (
                    "created_at",
                    models.DateTimeField(
                        db_default=django.db.models.functions.datetime.Now()
                    ),
                ),
                (
                    "job",
                    models.ForeignKey(
                        db_constraint=False,
                        null=True,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        related_name="+",
                        to="relay.job",
                    ),
                ),
                (
                    "schedule",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="occurrences",
                        to="relay.schedule",
                    ),
                ),
            ],
            options={
                "db_table": "relay_occurrence",
                "constraints": [
                    models.UniqueConstraint(
                        fields=("schedule", "due_at"), name="relay_occurrence_once"
                    )
                ],
            },
        ),
        migrations.RunSQL(STORE_JOBS, RESTORE_JOBS),
    ]
