"""The rows that a task with ORM calls reads and writes."""

from __future__ import annotations

from typing import ClassVar

from django.db import models

__all__ = ["Item"]


class Item(models.Model):
    """Something a project would have."""

    # So many that ten threads seldom meet at one.
    ROWS: ClassVar[int] = 1_000

    name = models.CharField(max_length=100)
    value = models.IntegerField(default=0)

    # Said for type checkers, whose settings do not have this app.
    objects: ClassVar[models.Manager[Item]] = models.Manager()

    class Meta:
        app_label = "bench"
        db_table = "bench_item"

    def __str__(self) -> str:
        return self.name
