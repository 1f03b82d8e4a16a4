from django.db import migrations, models

# Columns that are null without a default: relay_worker is locked (ACCESS EXCLUSIVE) for
# a moment and not rewritten. Whoever reads it in a long transaction is waited for, and
# renewals of leases wait behind this: for two seconds at most, then the migration fails
# and is run again. Workers of the release before leave the columns null and hear
# nothing.
BOUND = """
SELECT set_config('lock_timeout', '2s', true)
WHERE current_setting('lock_timeout') = '0'
"""


class Migration(migrations.Migration):
    """What operators ask of workers."""

    dependencies = [("relay", "0008_audit_and_permissions")]

    operations = [
        migrations.RunSQL(BOUND, migrations.RunSQL.noop),
        migrations.AddField(
            model_name="worker",
            name="asked",
            field=models.TextField(null=True),
        ),
        migrations.AddField(
            model_name="worker",
            name="asked_at",
            field=models.DateTimeField(null=True),
        ),
    ]
