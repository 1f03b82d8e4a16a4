import django.db.models.deletion
import django.db.models.functions.datetime
from django.db import migrations, models


class Migration(migrations.Migration):
    """Tables of what attempts log, and of the steps that jobs have done.

    Locks nothing that is there: no constraint refers to relay_job.
    """

    dependencies = [("relay", "0005_occurrence_open_idx")]

    operations = [
        migrations.CreateModel(
            name="Output",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("attempt", models.IntegerField()),
                (
                    "at",
                    models.DateTimeField(
                        db_default=django.db.models.functions.datetime.Now()
                    ),
                ),
                ("text", models.TextField()),
                (
                    "job",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        related_name="outputs",
                        to="relay.job",
                    ),
                ),
            ],
            options={
                "db_table": "relay_output",
                "constraints": [
                    models.UniqueConstraint(
                        fields=("job", "attempt"), name="relay_output_attempt_idx"
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="Step",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("attempt", models.IntegerField()),
                (
                    "done_at",
                    models.DateTimeField(
                        db_default=django.db.models.functions.datetime.Now()
                    ),
                ),
                ("name", models.TextField()),
                ("value", models.JSONField(null=True)),
                (
                    "job",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        related_name="steps",
                        to="relay.job",
                    ),
                ),
            ],
            options={
                "db_table": "relay_step",
                "constraints": [
                    models.UniqueConstraint(
                        fields=("job", "name"), name="relay_step_name_idx"
                    )
                ],
            },
        ),
    ]
