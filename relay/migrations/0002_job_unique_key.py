from django.db import migrations, models

# CONCURRENTLY: SHARE UPDATE EXCLUSIVE on relay_job, so that enqueues, claims and
# finishes go on; it waits for the transactions that are open. No two releases differ in
# what they may write: keys were always NULL before. A build that was broken off leaves
# an invalid index behind, which the DROP before it takes away.
CREATE_INDEX = """
CREATE UNIQUE INDEX CONCURRENTLY relay_job_unique_idx
ON relay_job (unique_key) WHERE unique_key IS NOT NULL
"""
DROP_INDEX = "DROP INDEX CONCURRENTLY IF EXISTS relay_job_unique_idx"


class Migration(migrations.Migration):
    """The index that makes unique keys unique."""

    atomic = False

    dependencies = [("relay", "0001_initial")]

    operations = [
        migrations.SeparateDatabaseAndState(
            database_operations=[
                migrations.RunSQL(DROP_INDEX, migrations.RunSQL.noop),
                migrations.RunSQL(CREATE_INDEX, DROP_INDEX),
            ],
            state_operations=[
                migrations.AddConstraint(
                    model_name="job",
                    constraint=models.UniqueConstraint(
                        name="relay_job_unique_idx",
                        fields=["unique_key"],
                        condition=models.Q(unique_key__isnull=False),
                    ),
                ),
            ],
        ),
    ]
