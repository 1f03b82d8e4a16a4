"""A job as lines for a shell, and its links to where its logs and traces are."""

from __future__ import annotations

import html
import json
import re
import subprocess
from collections.abc import Callable
from io import StringIO
from typing import Any
from urllib.parse import urlsplit

import pytest
from django.core.management import call_command
from django.test import Client, RequestFactory
from django.utils import timezone

from relay import queries
from relay.dashboard import drawing
from relay.dashboard.elsewhere import lines
from relay.models import Attempt, Job
from relay.operations import Actor
from relay.operations.actor import PERMISSIONS
from tests.api.factory import make_token
from tests.dashboard.pages import shown, url
from tests.operations.factory import make_job

ME = Actor(name="ada", source="dashboard", permissions=PERMISSIONS)
ECHO = "testproject.tasks.echo"
# What would act in a shell, if a word of it got out.
HOSTILE = '\'; touch /tmp/x; echo "$(id)" `id` \\ $HOME ! * ~ \n \x1b[201~ \x03 \x7f é'
# Writes the words that it is called with, each with a NUL behind.
SHELL = """
relay() {{ printf '%s\\0' relay "$@"; }}
curl() {{ printf '%s\\0' curl "$@"; }}
RELAY_TOKEN=the-token
{}
"""


def texts(job: Job, actor: Actor = ME) -> dict[str, str]:
    """Return the lines of a job, by their ids."""
    request = RequestFactory().get("/ops/dashboard/")
    found = queries.get_job(actor, job.pk)
    return {line.id: line.text for line in lines(request, actor, found)}


def words(text: str) -> list[str]:
    """Return what a shell makes of a line."""
    done = subprocess.run(
        ["/bin/sh", "-c", SHELL.format(text)],
        capture_output=True,
        check=True,
        env={"HOME": "/nowhere", "PATH": "/nowhere"},
        timeout=60,
    )
    assert done.stderr == b""
    return done.stdout.decode().split("\0")[:-1]


def sent(called: list[str]) -> tuple[str, str, Any]:
    """Return the path, the token and the body of a call of curl."""
    headers = [called[at + 1] for at, word in enumerate(called) if word == "-H"]
    body = None
    if "--data-raw" in called:
        body = called[called.index("--data-raw") + 1]
    address = urlsplit(called[-1])
    assert (address.scheme, address.netloc) == ("http", "testserver")
    return address.path, headers[0], body


@pytest.mark.django_db
def test_a_shell_reads_each_line_as_one_command() -> None:
    job = make_job(
        "failed",
        task=ECHO,
        args={"args": [HOSTILE, 1], "kwargs": {"name": [HOSTILE]}},
        tags=["it's", "--yes"],
        priority=-5,
        timeout_ms=1_500,
    )

    found = {name: words(text) for name, text in texts(job).items()}

    assert found["cli-look"] == ["relay", "job", str(job.pk)]
    called = found["cli-again"]
    assert called[:2] == ["relay", "enqueue"]
    assert json.loads(called[called.index("--args") + 1]) == [HOSTILE, 1]
    assert json.loads(called[called.index("--kwargs") + 1]) == {"name": [HOSTILE]}
    for word in ("--priority=-5", "--tag=--yes", "it's", "1.5s", "default"):
        assert word in called
    assert called[-1] == ECHO


def run(called: list[str]) -> str:
    """Run a line as manage.py has it."""
    out = StringIO()
    call_command(*called, stdout=out, stderr=StringIO())
    return out.getvalue()


@pytest.mark.django_db
def test_the_command_line_takes_its_lines() -> None:
    job = make_job(
        "failed",
        task=ECHO,
        args={"args": [], "kwargs": {"value": [HOSTILE, {HOSTILE: 1}]}},
        tags=["it's", "--yes"],
        priority=-5,
        timeout_ms=1_500,
    )
    found = {name: words(text) for name, text in texts(job).items()}

    assert str(job.pk) in run(found["cli-look"])
    run(found["cli-again"])
    run(words(f"relay replay {job.pk}"))

    made = Job.objects.exclude(pk=job.pk).get(replay_of=None)
    for name in ("task", "args", "queue", "priority", "timeout_ms", "max_retries"):
        assert getattr(made, name) == getattr(job, name), name
    assert sorted(made.tags or ()) == ["--yes", "it's"]
    assert Job.objects.filter(replay_of=job.pk).count() == 1


@pytest.mark.django_db
def test_rest_takes_what_curl_sends() -> None:
    job = make_job(
        "failed",
        task=ECHO,
        args={"args": [], "kwargs": {"value": [HOSTILE, {HOSTILE: 1}]}},
        tags=["vip"],
        priority=7,
        timeout_ms=1_500,
    )
    secret, client = make_token(), Client()
    found = {
        name: sent(words(text)) for name, text in texts(job).items() if "curl" in name
    }

    path, header, body = found["curl-look"]
    assert (header, body) == ("Authorization: Bearer the-token", None)
    headers = {"Authorization": f"Bearer {secret}"}
    assert client.get(path, headers=headers).status_code == 200
    path, _, body = found["curl-again"]
    answer = client.post(path, body, content_type="application/json", headers=headers)

    assert answer.status_code == 201, answer.content
    made = Job.objects.get(pk=answer.json()["id"])
    for name in ("task", "args", "queue", "priority", "timeout_ms", "max_retries"):
        assert getattr(made, name) == getattr(job, name), name
    assert made.tags == ["vip"]


@pytest.mark.parametrize(
    "args",
    [
        {"args": [], "kwargs": {"token": "canary"}},
        {"args": [{"__relay__": "datetime", "value": "2026-01-01"}], "kwargs": {}},
    ],
    ids=["a secret", "a type"],
)
@pytest.mark.django_db
def test_what_json_does_not_say_is_replayed(args: Any) -> None:
    job = make_job("failed", task=ECHO, args=args)
    waits = make_job("queued", task=ECHO, args=args)

    found = texts(job)

    assert set(found) == {"cli-look", "cli-replay", "curl-look", "curl-replay"}
    assert words(found["cli-replay"]) == ["relay", "replay", str(job.pk)]
    path, _, body = sent(words(found["curl-replay"]))
    headers = {"Authorization": f"Bearer {make_token()}"}
    answer = Client().post(path, body, content_type="application/json", headers=headers)
    assert answer.status_code == 201, answer.content
    assert Job.objects.get(replay_of=job.pk).args == job.args
    assert set(texts(waits)) == {"cli-look", "curl-look"}


@pytest.mark.django_db
def test_who_sees_masks_copies_none(browser_of: Callable[..., Client]) -> None:
    job = make_job("failed", task=ECHO, args={"args": ["canary"], "kwargs": {}})
    few = frozenset({"view_job", "enqueue_job", "retry_job"})

    found = texts(job, Actor(name="bob", source="dashboard", permissions=few))
    looks = texts(
        job, Actor(name="bob", source="dashboard", permissions=few - {"retry_job"})
    )

    assert "canary" not in str(found)
    assert "•" not in str(found)
    assert set(found) == {"cli-look", "cli-replay", "curl-look", "curl-replay"}
    assert set(looks) == {"cli-look", "curl-look"}


@pytest.mark.django_db
def test_a_name_that_steers_a_terminal_is_in_no_line() -> None:
    job = make_job("failed", task=ECHO, tags=["\x1b[201~\x03 rm x"])
    other = make_job("failed", task="nobody.knows")

    found = texts(job)

    assert "cli-again" not in found
    for text in found.values():
        assert text.isprintable()
    assert "cli-again" not in texts(other)


@pytest.mark.django_db
def test_a_line_that_is_too_long_is_left_out() -> None:
    job = make_job("failed", task=ECHO, args={"args": ["x" * 20_000], "kwargs": {}})

    assert set(texts(job)) == {"cli-look", "curl-look"}


def test_the_page_has_the_lines_as_text_and_a_button_for_each(browser: Client) -> None:
    job = make_job("failed", task=ECHO, args={"args": ["<b>"], "kwargs": {}})

    page = browser.get(url("job", job.pk)).content.decode()

    for name, text in texts(job).items():
        found = re.search(f'<pre id="{name}" tabindex="0">(.*?)</pre>', page, re.DOTALL)
        assert found is not None
        assert html.unescape(found[1]) == text
        assert f'data-copy="{name}"' in page


# --- links ---------------------------------------------------------------------------

LINKS = {
    "Logs": "https://logs.example.com/?q={job_id}&from={start}&to={end}",
    "Trace": "http://traces.example.com/{trace_id}?one={{1}}",
}


def test_a_job_leads_to_its_logs_and_its_trace(browser: Client, settings: Any) -> None:
    settings.RELAY = {"DASHBOARD": {"LINKS": LINKS}}
    traced = {"otel": {"traceparent": f"00-{'a' * 32}-{'b' * 16}-01"}}
    job = make_job("failed", meta=traced, finished_at=timezone.now())
    plain = make_job("queued", meta={"otel": {"traceparent": "javascript:alert(1)"}})

    page = shown(browser.get(url("job", job.pk)))

    found = re.findall(r'<a href="(https?:[^"]*)" rel="noreferrer">(\w+)</a>', page)
    addresses = {name: html.unescape(address) for address, name in found}
    assert addresses["Trace"] == f"http://traces.example.com/{'a' * 32}?one={{1}}"
    assert re.fullmatch(
        rf"https://logs\.example\.com/\?q={job.pk}"
        r"&from=20\d\d-\d\d-\d\dT\d\d%3A\d\d[^&]*Z&to=20\d\d-\d\d-\d\dT\d\d%3A\d\d[^&]*Z",
        addresses["Logs"],
    )
    page = shown(browser.get(url("job", plain.pk)))
    assert ">Logs</a>" in page
    assert ">Trace</a>" not in page
    assert "alert(1)</a>" not in page


def test_a_trace_is_told_and_copied_without_a_link(browser: Client) -> None:
    traced = {"otel": {"traceparent": f"00-{'a' * 32}-{'b' * 16}-01"}}
    job = make_job("queued", meta=traced)

    page = shown(browser.get(url("job", job.pk)))

    assert f'id="trace-id">{"a" * 32}</span>' in page
    assert 'data-copy="trace-id"' in page
    assert "trace-id" not in shown(browser.get(url("job", make_job("queued").pk)))


# --- what a project adds -------------------------------------------------------------

OVERRIDES = {
    "relay/dashboard/base.html": (
        '{% extends "relay/dashboard/base.html" %}'
        "{% block head %}<meta name=own content=head>{% endblock %}"
    ),
    "relay/dashboard/parts/job.html": (
        '{% extends "relay/dashboard/parts/job.html" %}'
        "{% block job_details %}<p>order {{ job.args.0 }}</p>{% endblock %}"
        "{% block attempt_details %}<p>try {{ attempt.attempt }}</p>{% endblock %}"
    ),
}


def test_a_project_adds_to_blocks(
    browser: Client, settings: Any, tmp_path: Any
) -> None:
    for name, text in OVERRIDES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    settings.TEMPLATES = [{**settings.TEMPLATES[0], "DIRS": [tmp_path]}]
    drawing._templates.cache_clear()
    job = make_job("failed", args={"args": ["<i>"], "kwargs": {}}, attempt=2)
    for number in (1, 2):
        Attempt.objects.create(job=job, attempt=number, outcome="fail")

    try:
        now = shown(browser.get(url("job", job.pk)))
        past = shown(browser.get(url("job", job.pk, query="show=past")))
    finally:
        drawing._templates.cache_clear()

    assert "<meta name=own content=head>" in now
    assert "<p>order &lt;i&gt;</p>" in now
    assert "Arguments" in now
    assert "<p>try 1</p>" in past
    assert "<p>try 2</p>" in past


def test_the_banner_tells_the_environment(browser: Client, settings: Any) -> None:
    assert 'class="env' not in shown(browser.get(url("overview")))
    settings.RELAY = {"DASHBOARD": {"ENV": ("<production>", "red")}}

    page = shown(browser.get(url("jobs")))

    assert '<p class="env red">&lt;production&gt;</p>' in page
