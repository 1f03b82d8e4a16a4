"""python -m relay.api: print the OpenAPI document, as docs/reference/openapi.json."""

from __future__ import annotations

import json
import sys

import django


def main() -> None:
    """Print the document."""
    django.setup()
    from relay.api.schema import document  # here: its views need Django set up

    sys.stdout.write(json.dumps(document(), indent=2) + "\n")


if __name__ == "__main__":
    main()
