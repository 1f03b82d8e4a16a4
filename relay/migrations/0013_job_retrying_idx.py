from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models

# CONCURRENTLY: SHARE UPDATE EXCLUSIVE on relay_job, so that enqueues, claims and
# finishes go on; it waits for the transactions that are open. Only jobs that wait for
# another attempt are in it. A build that was broken off leaves an invalid index behind,
# which the DROP before it takes away.


class Migration(migrations.Migration):
    """The index by which retrying jobs are listed among many scheduled ones."""

    atomic = False

    dependencies = [("relay", "0012_token_and_request")]

    operations = [
        migrations.RunSQL(
            "DROP INDEX CONCURRENTLY IF EXISTS relay_job_retrying_idx",
            migrations.RunSQL.noop,
        ),
        AddIndexConcurrently(
            model_name="job",
            index=models.Index(
                name="relay_job_retrying_idx",
                fields=["run_at"],
                condition=models.Q(("state", "retrying")),
            ),
        ),
    ]
