from __future__ import annotations

from typing import Any

from django.apps import AppConfig

from relay import signals


class HookedConfig(AppConfig):
    name = "tests.worker.hooked"

    def ready(self) -> None:
        """Note every signal about a job, with its process."""
        from tests.worker.hooked.tasks import receivers

        for name in signals.__all__:
            signal: Any = getattr(signals, name)
            signal.connect(receivers[name])
