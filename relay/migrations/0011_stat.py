from django.db import migrations, models

import relay.models.fields

# A new table: no lock on another.


class Migration(migrations.Migration):
    """What became of jobs by the minute and by the hour."""

    dependencies = [("relay", "0010_bulk_operation")]

    operations = [
        migrations.CreateModel(
            name="Stat",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("at", models.DateTimeField()),
                ("run_seconds", models.FloatField(db_default=0.0)),
                ("wait_seconds", models.FloatField(db_default=0.0)),
                ("count", models.BigIntegerField(db_default=0)),
                ("seconds", models.SmallIntegerField()),
                ("queue", models.TextField()),
                ("task", models.TextField()),
                ("outcome", models.TextField()),
                (
                    "run_buckets",
                    relay.models.fields.PlainArrayField(
                        base_field=models.BigIntegerField(), size=None
                    ),
                ),
                (
                    "wait_buckets",
                    relay.models.fields.PlainArrayField(
                        base_field=models.BigIntegerField(), size=None
                    ),
                ),
            ],
            options={
                "db_table": "relay_stat",
                "constraints": [
                    models.UniqueConstraint(
                        fields=("seconds", "at", "queue", "task", "outcome"),
                        name="relay_stat_place_idx",
                    )
                ],
            },
        ),
    ]
