"""What the demo's jobs do. All of it is harmless to do twice: files are replaced."""

from __future__ import annotations

import hashlib
import time
from datetime import timedelta
from pathlib import Path
from typing import Final

from django.db.models import Count
from PIL import Image, ImageOps

from relay import Backoff, SkipRetry, cron, current_job, task
from relay.models import Job
from relay.standalone.demo.environment import data_folder, started_at

__all__ = ["OnPurpose", "checksum", "count", "list_files", "thumbnail"]

QUEUE: Final = "demo"
# This work is done in milliseconds. Each job takes this much longer, so that there is
# something to watch, and something to kill.
PACE_SECONDS: Final = 0.8
# What the demo itself enqueues goes before the jobs of schedules that a user added in
# the admin, however many those are, and before what earlier runs left.
FIRST: Final = 50
SOON: Final = Backoff(base=timedelta(seconds=1), cap=timedelta(seconds=1), jitter=False)


class OnPurpose(Exception):
    """The failure that the demo shows."""


@task(queue=QUEUE, max_retries=3, backoff=SOON)
def thumbnail(source: str, size: int) -> str:
    """Write an image of at most size by size pixels to the data folder."""
    time.sleep(PACE_SECONDS)
    path = Path(source)
    try:
        with Image.open(path) as image:
            image.draft("RGB", (size, size))
            upright = ImageOps.exif_transpose(image)
            upright.thumbnail((size, size))
            small = upright.convert("RGBA" if upright.has_transparency_data else "RGB")
    except FileNotFoundError:
        raise
    except (OSError, ValueError, SyntaxError) as error:
        raise SkipRetry(f"{path.name} is damaged: {error}") from error
    target = _folder("thumbnails") / f"{path.name}.{size}.png"
    unfinished = target.with_name(f".{current_job().id}.unfinished")
    small.save(unfinished, format="PNG")
    unfinished.replace(target)
    return target.name


@task(queue=QUEUE, max_retries=3, backoff=SOON)
def checksum(source: str) -> str:
    """Return the SHA-256 of a file."""
    time.sleep(PACE_SECONDS)
    with Path(source).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@task(queue=QUEUE, max_retries=3, backoff=SOON)
def list_files(sources: list[str]) -> int:
    """Write the files and their sizes to files.txt; the first attempt fails."""
    time.sleep(PACE_SECONDS)
    if current_job().failures == 0:
        raise OnPurpose("the first attempt always fails")
    lines = [f"{Path(one).stat().st_size:>12} {one}\n" for one in sources]
    (_folder() / "files.txt").write_text("".join(lines), encoding="utf-8")
    return len(lines)


@cron(
    "*/2 * * * * *",
    seconds=True,
    catch_up="none",
    name="demo: count every 2 s",
    priority=FIRST + 2,
)
@task(queue=QUEUE)
def count() -> dict[str, int]:
    """Count this run's jobs by state, and add a line to counts.txt."""
    time.sleep(PACE_SECONDS)
    rows = (
        Job.objects.filter(queue=QUEUE, created_at__gte=started_at())
        .filter(schedule_id__isnull=True)
        .values_list("state")
        .annotate(Count("id"))
    )
    counts = dict(rows)
    with (_folder() / "counts.txt").open("a", encoding="utf-8") as file:
        file.write(f"{counts}\n")
    return counts


def _folder(name: str = ".") -> Path:
    folder = data_folder() / name
    folder.mkdir(parents=True, exist_ok=True)
    return folder
