from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models

import relay.models.indexes

# CONCURRENTLY: SHARE UPDATE EXCLUSIVE on relay_job, so that enqueues, claims and
# finishes go on; it waits for the transactions that are open. Jobs without tags are not
# in it, and pay nothing for it. A build that was broken off leaves an invalid index
# behind, which the DROP before it takes away.


class Migration(migrations.Migration):
    """The index by which jobs are found by their tags."""

    atomic = False

    dependencies = [("relay", "0006_output_and_step")]

    operations = [
        migrations.RunSQL(
            "DROP INDEX CONCURRENTLY IF EXISTS relay_job_tags_idx",
            migrations.RunSQL.noop,
        ),
        AddIndexConcurrently(
            model_name="job",
            index=relay.models.indexes.GinIndex(
                condition=models.Q(("tags__isnull", False)),
                fields=["tags"],
                name="relay_job_tags_idx",
            ),
        ),
    ]
