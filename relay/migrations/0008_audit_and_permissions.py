import django.db.models.functions.datetime
from django.db import migrations, models


class Migration(migrations.Migration):
    """Permissions of their own for each act, and the table of who did what.

    Locks nothing that is there: permissions are rows that migrate adds.
    """

    dependencies = [("relay", "0007_job_tags_idx")]

    operations = [
        migrations.AlterModelOptions(
            name="job",
            options={
                "permissions": (
                    ("view_payload", "Can see arguments, results and progress"),
                    ("enqueue_job", "Can enqueue jobs"),
                    ("cancel_job", "Can cancel jobs"),
                    ("retry_job", "Can retry, replay and run jobs now"),
                    ("edit_job", "Can edit waiting jobs"),
                    ("bulk_job", "Can act on all jobs that match a filter"),
                    ("view_metrics", "Can see metrics"),
                )
            },
        ),
        migrations.AlterModelOptions(
            name="queue",
            options={
                "permissions": (
                    ("manage_queue", "Can pause, resume, order and purge queues"),
                )
            },
        ),
        migrations.AlterModelOptions(
            name="schedule",
            options={
                "permissions": (
                    (
                        "manage_schedule",
                        "Can create, edit, pause and delete schedules",
                    ),
                    ("run_schedule", "Can run schedules now"),
                )
            },
        ),
        migrations.AlterModelOptions(
            name="worker",
            options={
                "permissions": (("manage_worker", "Can quiet and shut down workers"),)
            },
        ),
        migrations.CreateModel(
            name="Audit",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                (
                    "at",
                    models.DateTimeField(
                        db_default=django.db.models.functions.datetime.Now()
                    ),
                ),
                ("operation", models.TextField()),
                ("subject", models.TextField()),
                ("target", models.TextField()),
                ("actor", models.TextField()),
                ("source", models.TextField()),
                ("reason", models.TextField(null=True)),
                ("request_id", models.TextField(null=True)),
                ("address", models.TextField(null=True)),
                ("detail", models.JSONField(null=True)),
            ],
            options={
                "verbose_name": "audit record",
                "db_table": "relay_audit",
                "indexes": [
                    models.Index(
                        fields=["subject", "target", "id"],
                        name="relay_audit_target_idx",
                    )
                ],
            },
        ),
    ]
