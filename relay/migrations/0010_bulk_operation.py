import django.db.models.functions.datetime
from django.db import migrations, models

import relay.ids


class Migration(migrations.Migration):
    """The table of acts over many jobs. Locks nothing that is there."""

    dependencies = [("relay", "0009_worker_asked")]

    operations = [
        migrations.CreateModel(
            name="BulkOperation",
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
                ("action", models.TextField()),
                ("filter", models.TextField()),
                ("expected", models.IntegerField(null=True)),
                (
                    "state",
                    models.TextField(
                        choices=[
                            ("queued", "Queued"),
                            ("running", "Running"),
                            ("completed", "Completed"),
                            ("cancelled", "Cancelled"),
                            ("failed", "Failed"),
                        ],
                        db_default="queued",
                    ),
                ),
                ("matched", models.BigIntegerField(db_default=0)),
                ("done", models.BigIntegerField(db_default=0)),
                ("asked", models.BigIntegerField(db_default=0)),
                ("skipped", models.JSONField(default=dict)),
                ("failed", models.BigIntegerField(db_default=0)),
                ("position", models.JSONField(default=dict)),
                ("error", models.TextField(null=True)),
                ("actor", models.TextField()),
                ("source", models.TextField()),
                ("reason", models.TextField(null=True)),
                ("request_id", models.TextField(null=True)),
                ("job_id", models.UUIDField(null=True)),
                ("cancel_requested_at", models.DateTimeField(null=True)),
                (
                    "created_at",
                    models.DateTimeField(
                        db_default=django.db.models.functions.datetime.Now()
                    ),
                ),
                ("started_at", models.DateTimeField(null=True)),
                ("finished_at", models.DateTimeField(null=True)),
            ],
            options={"db_table": "relay_operation"},
        ),
    ]
