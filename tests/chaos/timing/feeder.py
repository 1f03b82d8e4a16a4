"""Enqueues jobs that are due in some seconds, and long ones; its clock is right."""

from __future__ import annotations

import argparse
import json
import random
import time
from datetime import timedelta
from pathlib import Path

import django

EACH_SECONDS = 0.1
LONG_SHARE = 0.05


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--long", type=float, required=True, help="seconds")
    parser.add_argument("--ledger", type=Path, required=True)
    options = parser.parse_args()
    django.setup()
    # After the setup: its tasks look at the settings.
    from tests.chaos.workload import doze

    rng = random.Random(options.seed)
    ends_at = time.monotonic() + options.seconds
    number = 0
    with options.ledger.open("w", encoding="utf-8") as ledger:
        while time.monotonic() < ends_at:
            number += 1
            is_long = rng.random() < LONG_SHARE
            seconds = options.long if is_long else 0.01
            run_in = 0.0 if is_long else rng.uniform(0.5, 8)
            began = time.monotonic()
            # A coroutine: time.sleep() fails under libfaketime.
            job = doze.using(run_in=timedelta(seconds=run_in)).enqueue(
                seconds, key=str(number)
            )
            line = {"job": str(job.id), "mono": began, "run_in": run_in}
            ledger.write(f"{json.dumps(line)}\n")
            time.sleep(EACH_SECONDS)


if __name__ == "__main__":
    main()
