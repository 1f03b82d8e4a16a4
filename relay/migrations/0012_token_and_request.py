import django.db.models.functions.datetime
from django.db import migrations, models

import relay.ids
import relay.models.fields


class Migration(migrations.Migration):
    """The tables of API tokens and idempotency keys. Locks nothing that is there."""

    dependencies = [("relay", "0011_stat")]

    operations = [
        migrations.CreateModel(
            name="ApiToken",
            fields=[
                (
                    "id",
                    models.UUIDField(
                        default=relay.ids.uuid7,
                        editable=False,
                        primary_key=True,
                        serialize=False,
                    ),
                ),
                ("name", models.TextField()),
                ("prefix", models.TextField()),
                ("digest", models.BinaryField(unique=True)),
                (
                    "scopes",
                    relay.models.fields.PlainArrayField(
                        base_field=models.TextField(), size=None
                    ),
                ),
                (
                    "queues",
                    relay.models.fields.PlainArrayField(
                        base_field=models.TextField(), null=True, size=None
                    ),
                ),
                ("created_by", models.TextField()),
                (
                    "created_at",
                    models.DateTimeField(
                        db_default=django.db.models.functions.datetime.Now()
                    ),
                ),
                ("expires_at", models.DateTimeField(null=True)),
                ("revoked_at", models.DateTimeField(null=True)),
                ("last_used_at", models.DateTimeField(null=True)),
            ],
            options={
                "verbose_name": "API token",
                "db_table": "relay_token",
                "permissions": (("manage_token", "Can create and revoke API tokens"),),
            },
        ),
        migrations.CreateModel(
            name="IdempotentRequest",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("caller", models.TextField()),
                ("key", models.TextField()),
                ("digest", models.BinaryField()),
                ("location", models.TextField(null=True)),
                ("answer", models.TextField()),
                (
                    "created_at",
                    models.DateTimeField(
                        db_default=django.db.models.functions.datetime.Now()
                    ),
                ),
            ],
            options={
                "db_table": "relay_request",
                "default_permissions": (),
                "indexes": [
                    models.Index(fields=["created_at"], name="relay_request_old_idx")
                ],
                "constraints": [
                    models.UniqueConstraint(
                        fields=("caller", "key"), name="relay_request_once"
                    )
                ],
            },
        ),
    ]
