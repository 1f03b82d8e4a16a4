from django.db import migrations, models

# CONCURRENTLY: SHARE UPDATE EXCLUSIVE on relay_job, so that enqueues, claims and
# finishes go on; it waits for the transactions that are open. Deadlines were always
# NULL before. A build that was broken off leaves an invalid index behind, which the
# DROP before it takes away.
CREATE_INDEX = """
CREATE INDEX CONCURRENTLY relay_job_deadline_idx ON relay_job (deadline_at)
WHERE deadline_at IS NOT NULL
  AND state IN ('blocked', 'scheduled', 'queued', 'retrying')
"""
DROP_INDEX = "DROP INDEX CONCURRENTLY IF EXISTS relay_job_deadline_idx"


class Migration(migrations.Migration):
    """The index by which jobs are found whose deadline has passed."""

    atomic = False

    dependencies = [("relay", "0002_job_unique_key")]

    operations = [
        migrations.SeparateDatabaseAndState(
            database_operations=[
                migrations.RunSQL(DROP_INDEX, migrations.RunSQL.noop),
                migrations.RunSQL(CREATE_INDEX, DROP_INDEX),
            ],
            state_operations=[
                migrations.AddIndex(
                    model_name="job",
                    index=models.Index(
                        name="relay_job_deadline_idx",
                        fields=["deadline_at"],
                        condition=models.Q(
                            deadline_at__isnull=False,
                            state__in=["blocked", "scheduled", "queued", "retrying"],
                        ),
                    ),
                ),
            ],
        ),
    ]
