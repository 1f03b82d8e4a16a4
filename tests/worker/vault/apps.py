from __future__ import annotations

import logging

from django.apps import AppConfig

from relay.management.console import ExtraFormatter


class VaultConfig(AppConfig):
    name = "tests.worker.vault"

    def ready(self) -> None:
        """Write every record of relay's with the values of its extra."""
        handler = logging.StreamHandler()
        handler.setFormatter(ExtraFormatter("vault %(levelname)s %(message)s"))
        logging.getLogger("relay").addHandler(handler)
        logging.getLogger("relay").setLevel(logging.DEBUG)
