from django.db import migrations, models

import relay.models.fields

# Columns that hold nothing, or a constant: no row is rewritten. ACCESS EXCLUSIVE on the
# two tables for a moment; schedulers of the release before go on without the columns.


class Migration(migrations.Migration):
    """Intervals, single instants, exclusions, spread and overlap of schedules."""

    dependencies = [
        ("relay", "0003_job_deadline"),
    ]

    operations = [
        migrations.AddField(
            model_name="occurrence",
            name="outcome",
            field=models.TextField(null=True),
        ),
        migrations.AddField(
            model_name="occurrence",
            name="reason",
            field=models.TextField(null=True),
        ),
        migrations.AddField(
            model_name="occurrence",
            name="window_start",
            field=models.DateTimeField(null=True),
        ),
        migrations.AddField(
            model_name="schedule",
            name="ends_at",
            field=models.DateTimeField(blank=True, null=True),
        ),
        migrations.AddField(
            model_name="schedule",
            name="every_ms",
            field=models.BigIntegerField(blank=True, null=True),
        ),
        migrations.AddField(
            model_name="schedule",
            name="excluded",
            field=models.TextField(blank=True, null=True),
        ),
        migrations.AddField(
            model_name="schedule",
            name="finished_at",
            field=models.DateTimeField(editable=False, null=True),
        ),
        migrations.AddField(
            model_name="schedule",
            name="last_success_at",
            field=models.DateTimeField(editable=False, null=True),
        ),
        migrations.AddField(
            model_name="schedule",
            name="last_success_due_at",
            field=models.DateTimeField(editable=False, null=True),
        ),
        migrations.AddField(
            model_name="schedule",
            name="once_at",
            field=models.DateTimeField(blank=True, null=True),
        ),
        migrations.AddField(
            model_name="schedule",
            name="open_jobs",
            field=relay.models.fields.PlainArrayField(
                base_field=models.UUIDField(), editable=False, null=True, size=None
            ),
        ),
        migrations.AddField(
            model_name="schedule",
            name="overlap",
            field=models.TextField(
                choices=[
                    ("allow", "Allow"),
                    ("skip", "Skip"),
                    ("queue", "Queue one"),
                    ("cancel", "Cancel previous"),
                ],
                db_default="allow",
                default="allow",
            ),
        ),
        migrations.AddField(
            model_name="schedule",
            name="spread_ms",
            field=models.BigIntegerField(blank=True, null=True),
        ),
        migrations.AddField(
            model_name="schedule",
            name="starts_at",
            field=models.DateTimeField(blank=True, null=True),
        ),
        migrations.AddField(
            model_name="schedule",
            name="success_within_ms",
            field=models.BigIntegerField(blank=True, null=True),
        ),
        migrations.AddField(
            model_name="schedule",
            name="waiting_at",
            field=models.DateTimeField(editable=False, null=True),
        ),
        migrations.AlterField(
            model_name="occurrence",
            name="state",
            field=models.TextField(
                choices=[
                    ("fired", "Fired"),
                    ("missed", "Missed"),
                    ("skipped", "Skipped"),
                    ("waiting", "Waiting"),
                ],
                db_default="fired",
            ),
        ),
        migrations.AlterField(
            model_name="schedule",
            name="cron",
            field=models.TextField(blank=True, db_default="", default=""),
        ),
    ]
