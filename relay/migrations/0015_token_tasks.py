from django.db import migrations, models

import relay.models.fields

# Columns that may be null and have no default: no row is rewritten. ACCESS EXCLUSIVE on
# two small tables, for as long as a change of the catalogue takes. Workers and web
# processes of the previous release go on: they neither read nor write them. Whoever
# reads in a long transaction, such as a dump, is waited for, and whoever comes with a
# token waits behind this: for two seconds at most, then the migration fails and is run
# again.
BOUND = """
SELECT set_config('lock_timeout', '2s', true)
WHERE current_setting('lock_timeout') = '0'
"""

# Migrated back, what was for some tasks alone must not come to be for all: neither
# where the previous release runs, nor later, when the columns are there again, empty.
REVOKE = """
UPDATE relay_token SET revoked_at = statement_timestamp()
WHERE tasks IS NOT NULL AND revoked_at IS NULL
"""
END = """
UPDATE relay_operation SET state = 'failed', finished_at = statement_timestamp(),
    error = 'relay was migrated back to a release that knows of no limits to it'
WHERE rights IS NOT NULL AND state IN ('queued', 'running')
"""
# The rest goes on, where the previous release looks for it.
MOVE = """
UPDATE relay_job SET queue = 'default'
WHERE queue = '_relay' AND state IN ('scheduled', 'queued', 'retrying')
"""


class Migration(migrations.Migration):
    """Which tasks a token is for, and what who asked for a bulk replay may replay."""

    dependencies = [("relay", "0014_job_blocked_and_failed_idx")]

    operations = [
        migrations.RunSQL(BOUND, migrations.RunSQL.noop),
        migrations.AddField(
            model_name="apitoken",
            name="tasks",
            field=relay.models.fields.PlainArrayField(
                base_field=models.TextField(), null=True, size=None
            ),
        ),
        migrations.AddField(
            model_name="bulkoperation",
            name="rights",
            field=models.JSONField(null=True),
        ),
        migrations.RunSQL(migrations.RunSQL.noop, [BOUND, REVOKE, END, MOVE]),
    ]
