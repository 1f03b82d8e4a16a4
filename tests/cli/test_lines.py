"""The words of a command line: where flags may stand, and which no verb takes."""

from __future__ import annotations

import shlex

import pytest
from django.test import RequestFactory

from relay import queries
from relay.cli import console
from relay.dashboard import elsewhere
from relay.ids import uuid7
from relay.models import BulkOperation
from relay.operations import Actor
from tests.cli.conftest import Run
from tests.operations.factory import make_job

pytestmark = pytest.mark.django_db


def test_flags_stand_where_people_write_them(relay: Run) -> None:
    job = make_job("queued")

    for words in (
        ("jobs", "-q", "show", job.pk),
        ("jobs", "show", job.pk, "-q"),
        ("jobs", "-q", "--settings", "testproject.settings"),
        ("jobs", "-q", "--no-color", "ls"),
    ):
        assert relay(*words).lines == [str(job.pk)], words


def test_an_id_of_a_file_from_windows_is_taken(relay: Run) -> None:
    job = make_job("queued")

    assert relay("cancel", f"{job.pk}\r").code == 0
    assert relay("job", f"{str(job.pk)[:-1]}\r", "-q").lines == [str(job.pk)]


@pytest.mark.parametrize(
    "words", [("queues", "show", ""), ("pause", " "), ("schedules", "trigger", "")]
)
def test_a_name_that_is_empty_is_refused(relay: Run, words: tuple[str, ...]) -> None:
    result = relay(*words)

    assert (result.code, result.out) == (2, "")


def test_an_old_bulk_operation_is_found_by_its_id(relay: Run) -> None:
    bulk = BulkOperation.objects.create(
        action="retry", filter="", actor="ada", job_id=uuid7()
    )
    assert "was deleted" in relay("bulk", "show", bulk.pk).out

    assert relay("bulk", "show", bulk.pk, "--json").json["id"] == str(bulk.pk)


def test_the_record_is_listed(relay: Run) -> None:
    job = make_job("queued")
    relay("cancel", job.pk, "--reason", "not needed")
    relay("token", "create", "laptop", "--scopes", "read")

    [act] = relay("audit", "--subject", "job", "--target", job.pk, "--json").json[
        "results"
    ]
    assert (act["actor"], act["reason"]) == ("ada", "not needed")
    assert len(relay("audit", "--subject", "token", "-q").lines) == 1
    assert len(relay("audit", "--all", "--jsonl").lines) == 2
    assert "not needed" in relay("audit").out


@pytest.mark.parametrize(
    "words",
    [
        ("jobs", "error:\udcff"),
        ("pause", "\udcff"),
        ("enqueue", "testproject.tasks.add", "--args", '["\\ud800"]'),
        ("enqueue", "testproject.tasks.add", "--kwarg", '\udcff="x"'),
    ],
)
def test_bytes_that_are_no_text_are_refused(relay: Run, words: tuple[str, ...]) -> None:
    result = relay(*words)

    assert (result.code, result.out) == (2, "")
    assert "UTF-8" in result.err


def test_what_the_dashboard_gives_to_copy_is_taken(relay: Run) -> None:
    job = make_job(
        "failed",
        task="testproject.tasks.add",
        args={"args": [1, "it's $HOME"], "kwargs": {}},
        priority=-5,
        timeout_ms=1_500,
        tags=["-x", "a b"],
    )
    root = Actor(name="root", source="dashboard")
    request = RequestFactory().get("/")

    found = elsewhere.lines(request, root, queries.get_job(root, job.pk))

    texts = [each.text for each in found if each.text.startswith("relay ")]
    assert len(texts) == 2
    for text in texts:
        words = shlex.split(text)[1:]
        console.make_parser().parse_args(words)
        if words[0] == "enqueue":
            body = relay(*words, "--dry-run", "--json").json["body"]
            assert (body["args"], body["tags"]) == ([1, "it's $HOME"], ["-x", "a b"])
            assert (body["priority"], body["timeout"]) == (-5, 1.5)
        else:
            assert relay(*words).code == 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ("enqueue", "app.add", "5", "two", "b=3"),
            """--args '[5, "two"]' --kwarg b=3""",
        ),
        (("queues", "mail"), "write queues show mail"),
        (("queues", "shwo", "mail"), "did you mean show?"),
        (("jobs", "--sate", "failed"), "did you mean --state?"),
        (("jobs", "--colour"), "unrecognized arguments: --colour"),
        (("cancel", "a", "--yes", "b"), "side by side"),
        (("job", "a", "b"), "it takes one besides flags"),
        (("run", "mail", "a", "--dry-run", "b"), "side by side"),
        (("version", "1"), "it takes none besides flags"),
    ],
)
def test_words_that_are_too_many_are_told_of_with_the_usage_of_their_verb(
    script: Run, words: tuple[str, ...], said: str
) -> None:
    result = script(*words)

    assert (result.code, result.out) == (2, "")
    assert result.err.startswith(f"usage: relay {words[0]}")
    assert said in result.err


def test_words_that_are_too_many_are_told_of_in_process_too(relay: Run) -> None:
    result = relay("enqueue", "app.add", "5")

    assert (result.code, result.out) == (2, "")
    assert "--args '[5]'" in result.err
