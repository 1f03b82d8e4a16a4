"""make audit fails on a known vulnerability, and says where nobody could be asked."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socket import socket
from threading import Thread
from typing import Any

import pytest

from requirements.audit import Answer, ask, judge, locked, report

# As it stands in PyPI's database of advisories, shortened by versions and links.
ADVISORY = {
    "id": "PYSEC-2019-217",
    "aliases": ["CVE-2019-10906"],
    "details": (
        "In Pallets Jinja before 2.10.1, str.format_map allows a sandbox escape."
    ),
    "published": "2019-04-07T00:29:00Z",
    "modified": "2021-11-22T04:57:52.862665Z",
    "affected": [
        {
            "package": {"name": "jinja2", "ecosystem": "PyPI"},
            "ranges": [
                {
                    "type": "ECOSYSTEM",
                    "events": [{"introduced": "0"}, {"fixed": "2.10.1"}],
                }
            ],
            "versions": ["2.9.6", "2.10"],
        }
    ],
}


class Osv(BaseHTTPRequestHandler):
    """Answers as OSV does, of the one advisory."""

    def do_POST(self) -> None:
        length = int(self.headers["Content-Length"])
        query = json.loads(self.rfile.read(length))
        [affected] = ADVISORY["affected"]
        is_hit = query["package"] == affected["package"]  # type: ignore[index]  # JSON
        is_hit = is_hit and query["version"] in affected["versions"]  # type: ignore[index]  # JSON
        body = json.dumps({"vulns": [ADVISORY]} if is_hit else {}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        pass


@contextmanager
def osv() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Osv) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/v1/query"
        finally:
            server.shutdown()
            thread.join()


def test_a_version_with_a_known_vulnerability_fails(
    capsys: pytest.CaptureFixture[str],
) -> None:
    bad = ("jinja2", "2.10")

    with osv() as url:
        answer = ask("osv", [bad, ("jinja2", "3.1.6")], "--osv-url", url)
        ignored = ask("osv", [bad], "--osv-url", url, "--ignore-vuln", "CVE-2019-10906")

    assert report([answer], strict=False) == 1
    assert capsys.readouterr().out == (
        f"osv: jinja2 2.10: PYSEC-2019-217, fixed in 2.10.1: {ADVISORY['details']}\n"
    )
    assert report([ignored], strict=True) == 0
    assert capsys.readouterr().out == "osv: no known vulnerability in 1 versions\n"


def test_a_service_that_cannot_be_reached_is_named_and_fails_where_all_must_answer(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with socket() as nobody:  # bound and not listening: refuses
        nobody.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{nobody.getsockname()[1]}/"
        answer = ask("osv", [("jinja2", "2.10")], "--osv-url", url)

    assert report([answer], strict=False) == 0
    assert "osv: NOTHING WAS AUDITED, no answer: " in capsys.readouterr().out
    assert report([answer], strict=True) == 1


def test_an_option_that_there_is_not_is_no_silence() -> None:
    with pytest.raises(RuntimeError, match="--no-such"):
        ask("osv", [("jinja2", "2.10")], "--no-such")


def skipped(name: str) -> dict[str, str]:
    return {"name": name, "skip_reason": f"Dependency not found on PyPI: {name} (1.0)"}


def test_a_package_that_is_gone_fails_and_an_index_without_advisories_is_silent() -> (
    None
):
    known = {"name": "django", "version": "6.1.3", "vulns": []}

    gone = judge("pypi", [known, skipped("stolen")])
    silent = judge("pypi", [skipped("a"), skipped("b")])

    assert gone.found == (skipped("stolen")["skip_reason"],)
    assert report([gone], strict=False) == 1
    assert silent.silence.startswith("it knows none of 2 versions: ")


def test_one_that_answers_is_heard_though_another_is_silent() -> None:
    silent = Answer(service="pypi", silence="unreachable")
    bad = Answer(service="osv", asked=1, found=("django 1.0: CVE",))

    assert report([silent, bad], strict=False) == 1


def test_every_version_of_every_lock_is_asked_about() -> None:
    versions = {version for name, version in locked() if name == "django"}

    assert {version[:4] for version in versions} == {"5.2.", "6.0.", "6.1."}
    assert {"pip", "uv", "sphinx", "psycopg-binary"} <= {name for name, _ in locked()}
