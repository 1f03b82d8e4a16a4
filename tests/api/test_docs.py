"""What the pages say of the API: calls run, tables are those of the code."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest
from django.test import Client

from relay import tasks
from relay.api.endpoints import endpoint_of
from relay.api.schema import METHODS, document
from relay.api.urls import ADDRESSES
from relay.models import Job
from tests.api.factory import make_token
from tests.docs.pages import ROOT, blocks

PAGE = ROOT / "docs/howto/rest.md"
REFERENCE = ROOT / "docs/reference/rest.md"
STORED = ROOT / "docs/reference/openapi.json"


def calls() -> Iterator[list[str]]:
    """Yield the words of each call of curl on the page."""
    for block in blocks(PAGE):
        if block.language == "text":
            for call in block.text.replace("\\\n", " ").split("\n\n"):
                yield shlex.split(call)


def send(words: list[str], names: dict[str, str]) -> Any:
    address, headers, body = "", {}, ""
    rest = iter(words[1:])
    for word in rest:
        for name, value in names.items():
            word = word.replace(f"${name}", value)
        if word == "-H":
            header = next(rest)
            for name, value in names.items():
                header = header.replace(f"${name}", value)
            key, _, text = header.partition(": ")
            headers[key] = text
        elif word == "-d":
            body = next(rest)
        elif word != "-sS":
            address = urlsplit(word)._replace(scheme="", netloc="").geturl()
    method = "POST" if body else "GET"
    kind = headers.pop("Content-Type", "application/json")
    return Client().generic(method, address, body, content_type=kind, headers=headers)


@pytest.mark.django_db
def test_the_calls_of_the_page_run_in_their_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tasks, "_tasks", dict(tasks._tasks))

    @tasks.task(name="shop.tasks.send_receipt")
    def send_receipt(order: int) -> None: ...

    names = {"RELAY_TOKEN": make_token(), "JOB_ID": ""}
    statuses = []
    for words in calls():
        response = send(words, names)
        statuses.append(response.status_code)
        if "id" in response.json():
            names["JOB_ID"] = response.json()["id"]
            Job.objects.update(state="failed")

    assert statuses == [201, 200, 200, 200]


def test_the_table_of_addresses_is_that_of_the_code() -> None:
    rows = [
        f"| {method.upper()} | `{path}` | "
        + (f"`{about.permission}`" if about.permission else "any")
        + f" | {about.summary} |"
        for path, view, _ in ADDRESSES
        for method in METHODS
        if (about := endpoint_of(view, method)) is not None
    ]

    pattern = r"^\| (?:GET|POST|PATCH|DELETE) \| `/v1.*$"
    found = re.findall(pattern, REFERENCE.read_text(), re.MULTILINE)
    assert found == rows


@pytest.mark.slow
def test_the_document_is_printed_by_a_process_of_its_own() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "relay.api"],
        cwd=ROOT,
        env={**os.environ, "DJANGO_SETTINGS_MODULE": "testproject.settings"},
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    assert done.stdout == STORED.read_text()


def test_the_stored_document_is_that_of_the_code() -> None:
    assert json.loads(STORED.read_text()) == document(), (
        "python -m relay.api > docs/reference/openapi.json"
    )
