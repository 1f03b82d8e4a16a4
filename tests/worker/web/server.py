"""python -m tests.worker.web.server FILE: a web server that ends in order at SIGTERM.

FILE is where it writes its port.
"""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from wsgiref.simple_server import make_server

from tests.worker.web.application import application


def main() -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    with make_server("127.0.0.1", 0, application) as server:
        target = Path(sys.argv[1])
        target.with_suffix(".new").write_text(str(server.server_port))
        target.with_suffix(".new").rename(target)
        server.serve_forever()


if __name__ == "__main__":
    main()
