"""python -m bench [drain] [late_bulk] [--rounds N] [--quick]."""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import django
from django.conf import settings
from django.core.management import call_command
from django.db import connection

OUT = Path(__file__).resolve().parent / "out" / "latest.json"
MEASUREMENTS = ("drain", "late_bulk")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("what", nargs="*", help=f"of {', '.join(MEASUREMENTS)}")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="a fifth of the jobs")
    arguments = parser.parse_args()
    if unknown := set(arguments.what) - set(MEASUREMENTS):
        parser.error(f"{sorted(unknown)}: known are {', '.join(MEASUREMENTS)}")

    os.environ["DJANGO_SETTINGS_MODULE"] = "bench.settings"
    django.setup()
    from bench import drain, late_bulk  # after setup: they import tasks
    from relay.standalone.postgres import serve

    serve(settings.POSTGRES_ROOT)
    call_command("migrate", verbosity=0)
    runs = {"drain": drain.run, "late_bulk": late_bulk.run}
    report: dict[str, Any] = {"machine": _machine(), "command": sys.argv[1:]}
    for name in arguments.what or MEASUREMENTS:
        report[name] = runs[name](rounds=arguments.rounds, is_quick=arguments.quick)
        sys.stdout.write(f"{name}: {json.dumps(report[name], indent=2)}\n")
    OUT.parent.mkdir(exist_ok=True)
    OUT.write_text(json.dumps(report, indent=2) + "\n")
    connection.close()
    return 0


def _machine() -> dict[str, Any]:
    with connection.cursor() as cursor:
        cursor.execute("SHOW server_version")
        (version,) = cursor.fetchone()
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "django": django.get_version(),
        "postgresql": version,
        "system": platform.platform(),
    }


if __name__ == "__main__":
    sys.exit(main())
