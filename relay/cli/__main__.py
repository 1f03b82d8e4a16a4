"""python -m relay.cli: the console script, where it is not on the path."""

from __future__ import annotations

import sys

from relay.cli.console import main

sys.exit(main())
