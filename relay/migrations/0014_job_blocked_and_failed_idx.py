from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models

# CONCURRENTLY: SHARE UPDATE EXCLUSIVE on relay_job, so that enqueues, claims and
# finishes go on; it waits for the transactions that are open. The index of failed jobs
# gets a queue and a task by being built beside the old one, which lists use meanwhile;
# the rename takes ACCESS EXCLUSIVE on the index for a moment. A build that was broken
# off leaves an invalid index behind, which the DROP before it takes away.


def replacing(columns: str) -> tuple[str, ...]:
    return (
        "DROP INDEX CONCURRENTLY IF EXISTS relay_job_failed_new_idx",
        f"CREATE INDEX CONCURRENTLY relay_job_failed_new_idx ON relay_job ({columns}) "
        "WHERE state IN ('failed', 'cancelled')",
        "DROP INDEX CONCURRENTLY IF EXISTS relay_job_failed_idx",
        "ALTER INDEX relay_job_failed_new_idx RENAME TO relay_job_failed_idx",
    )


class Migration(migrations.Migration):
    """What lists of blocked jobs, and of failed ones of a queue or task, go by."""

    atomic = False

    dependencies = [("relay", "0013_job_retrying_idx")]

    operations = [
        migrations.RunSQL(
            "DROP INDEX CONCURRENTLY IF EXISTS relay_job_blocked_idx",
            migrations.RunSQL.noop,
        ),
        AddIndexConcurrently(
            model_name="job",
            index=models.Index(
                name="relay_job_blocked_idx",
                fields=["id"],
                condition=models.Q(("state", "blocked")),
            ),
        ),
        migrations.RunSQL(
            replacing("state, id, queue, task"),
            replacing("state, id"),
            state_operations=[
                migrations.RemoveIndex(model_name="job", name="relay_job_failed_idx"),
                migrations.AddIndex(
                    model_name="job",
                    index=models.Index(
                        name="relay_job_failed_idx",
                        fields=["state", "id", "queue", "task"],
                        condition=models.Q(("state__in", ["failed", "cancelled"])),
                    ),
                ),
            ],
        ),
    ]
