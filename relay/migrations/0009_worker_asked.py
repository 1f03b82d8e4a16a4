from django.db import migrations, models

# Columns that are null without a default: relay_worker is locked (ACCESS EXCLUSIVE) for
# a moment and not rewritten. Workers of the release before leave them null and hear
# nothing.


class Migration(migrations.Migration):
    """What operators ask of workers."""

    dependencies = [("relay", "0008_audit_and_permissions")]

    operations = [
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
