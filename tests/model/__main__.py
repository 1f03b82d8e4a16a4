"""python -m tests.model [--faults N] [--mutant NAME]: what the search finds."""

from __future__ import annotations

import argparse
import sys

from tests.model.protocol import MUTANTS
from tests.model.search import search


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.model")
    parser.add_argument("--workers", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--faults", type=int, default=2, help="at most in one run")
    parser.add_argument("--mutant", default="", choices=["", *MUTANTS], metavar="NAME")
    options = parser.parse_args()
    result = search(
        options.workers, options.jobs, faults=options.faults, mutant=options.mutant
    )
    print(result.describe())  # noqa: T201 - a command's output
    return 0 if result.rule is None else 1


if __name__ == "__main__":
    sys.exit(main())
