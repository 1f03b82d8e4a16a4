"""Measure relay: python -m bench [NAME ...] [--quick] [--all] [--rounds N]."""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import django

from bench import machine
from bench.contenders import installed_rivals
from bench.rig import Plan, progress
from bench.server import Server
from bench.table import table
from relay.exceptions import StandaloneError
from relay.standalone.postgres import EmbeddedPostgres, root_by_major

FOLDER = Path(__file__).resolve().parent
OUT = FOLDER / "out" / "latest.json"
# Each is a module of this folder that has run(plan).
USUAL = (
    *("enqueue", "bulk", "drain", "latency", "beside", "snapshot", "cost", "orm"),
    "idle",
)
QUICK = ("drain", "latency")
LONG = ("late_bulk", "prune", "growth")


def main() -> int:
    options = _parser().parse_args()
    names = options.what or (
        USUAL + LONG if options.all else QUICK if options.quick else USUAL
    )
    rivals = [] if options.no_rivals else installed_rivals()
    # Workers have sessions of their own: they must be ended here.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        with _server(options.database) as server, tempfile.TemporaryDirectory() as made:
            plan = Plan(
                server=server,
                folder=Path(made),
                rivals=rivals,
                rounds=options.rounds,
                is_quick=options.quick,
                jobs=options.jobs,
                prune_minutes=options.prune_minutes,
            )
            report = _measure(plan, names)
    except StandaloneError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(report, indent=1) + "\n")
    results = report["results"].values()
    sys.stdout.write(table(row for each in results for row in each["rows"]) + "\n")
    progress(f"written to {options.out}\n")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m bench",
        description="Measure relay beside PostgreSQL's own limit and the rivals "
        "installed (pip install --group rivals).",
    )
    known = USUAL + LONG
    parser.add_argument(
        "what",
        nargs="*",
        choices=[[], *known],
        metavar="NAME",
        help=f"what to measure, of {', '.join(known)} (default: {', '.join(USUAL)})",
    )
    parser.add_argument(
        "--rounds",
        type=int,
        help="interleaved rounds (default: 3; 9 of growth; 1 of cost and idle)",
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help="fewer jobs and one round; without names drain and latency alone",
    )
    parser.add_argument(
        "--all", action="store_true", help=f"also {', '.join(LONG)}, which take long"
    )
    parser.add_argument(
        "--prune-minutes", type=float, metavar="N", help="of prune (default: 10)"
    )
    parser.add_argument(
        "--database",
        metavar="URL",
        default=os.environ.get("DATABASE_URL"),
        help="a server and a role that may make databases there; relay_bench_… are "
        "made and dropped (default: DATABASE_URL, or the embedded PostgreSQL)",
    )
    parser.add_argument(
        "--no-rivals", action="store_true", help="leave the rivals installed out"
    )
    parser.add_argument("--out", type=Path, default=OUT, help="default: %(default)s")
    parser.add_argument("--jobs", type=int, help=argparse.SUPPRESS)
    return parser


@contextmanager
def _server(url: str | None) -> Iterator[Server]:
    embedded = None
    if url is None:
        root = root_by_major(FOLDER.parent / ".relay" / "bench")
        embedded = EmbeddedPostgres(root).start()
        url = embedded.dsn()
    server = Server(url, embedded)
    # Of this process; those of the contenders have each their own.
    os.environ["DATABASE_URL"] = server.url("relay")
    os.environ["DJANGO_SETTINGS_MODULE"] = "bench.settings"
    django.setup()
    try:
        yield server
    finally:
        server.drop_all()


def _measure(plan: Plan, names: tuple[str, ...]) -> dict[str, Any]:
    for store in plan.stores():
        if store.name != "raw":
            progress(f"set up {store.name}\n")
            store.lay()
    report: dict[str, Any] = {
        "machine": machine.describe(plan.server, list(plan.rivals)),
        "command": ["python", "-m", "bench", *sys.argv[1:]],
        "results": {},
    }
    for name in names:
        begun_at = time.monotonic()
        result = import_module(f"bench.{name}").run(plan)
        seconds = round(time.monotonic() - begun_at, 1)
        report["results"][name] = {"seconds": seconds, **result}
    return report


if __name__ == "__main__":
    sys.exit(main())
