from django.db import migrations, models

import relay.models.fields

# Columns that may be null and have no default: no row is rewritten. ACCESS EXCLUSIVE on
# two small tables, for as long as a change of the catalogue takes. Workers and web
# processes of the previous release go on: they neither read nor write them.


class Migration(migrations.Migration):
    """Which tasks a token is for, and what who asked for a bulk replay may replay."""

    dependencies = [("relay", "0014_job_blocked_and_failed_idx")]

    operations = [
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
    ]
