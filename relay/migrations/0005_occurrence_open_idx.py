from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models

# CONCURRENTLY: SHARE UPDATE EXCLUSIVE on relay_occurrence, so that schedules go on
# firing; it waits for the transactions that are open. A build that was broken off
# leaves an invalid index behind, which the DROP before it takes away.


class Migration(migrations.Migration):
    """The index of the occurrences whose jobs' outcome is not noted yet."""

    atomic = False

    dependencies = [("relay", "0004_schedule_timetables")]

    operations = [
        migrations.RunSQL(
            "DROP INDEX CONCURRENTLY IF EXISTS relay_occurrence_open_idx",
            migrations.RunSQL.noop,
        ),
        AddIndexConcurrently(
            model_name="occurrence",
            index=models.Index(
                name="relay_occurrence_open_idx",
                fields=["schedule", "due_at"],
                condition=models.Q(("job__isnull", False), ("outcome__isnull", True)),
            ),
        ),
    ]
