"""What the processes of one run tell each other: by environment variables."""

from __future__ import annotations

import os
from datetime import datetime
from pathlib import Path
from typing import Final

__all__ = ["DATA", "STARTED_AT", "data_folder", "started_at"]

DATA: Final = "RELAY_DEMO_DATA"
STARTED_AT: Final = "RELAY_DEMO_STARTED_AT"


def data_folder() -> Path:
    """Return where everything goes that the demo writes."""
    return Path(os.environ.get(DATA, ".relay/demo")).absolute()


def started_at() -> datetime:
    """Return when the run began, by the database's clock; all earlier jobs are old."""
    return datetime.fromisoformat(
        os.environ.get(STARTED_AT, "1970-01-01T00:00:00+00:00")
    )
