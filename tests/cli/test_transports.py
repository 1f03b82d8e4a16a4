"""Each verb on both ways to relay: the same documents, the same exit codes."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from django.db.models.functions import Now
from pytest_django import Settings
from pytest_django.live_server_helper import LiveServer

from relay import codec
from relay.ids import uuid7
from relay.models import Audit, Job, Output, Schedule, Worker
from relay.operations import SCOPES, Actor, create_token
from tests.cli.conftest import Result, Run
from tests.operations.factory import make_job

pytestmark = [pytest.mark.django_db(transaction=True)]

ROOT = Path(__file__).parent.parent.parent
ADD = "testproject.tasks.add"
UUIDS = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
TIMES = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)")
# What is another at each look, or for each who asks.
OWN = {
    "actor",
    "at",
    "duration",
    "heartbeat_at",
    "latency",
    "meta",  # over HTTP the request's id
    "oldest_transaction",
    "request_id",
    "silent_for",
    "source",
    "statistics_lag",
    "tables",
    "version",
}


def same(value: Any) -> Any:
    """Return a document without what is its own."""
    if isinstance(value, Mapping):
        return {k: same(each) for k, each in value.items() if k not in OWN}
    if isinstance(value, list):
        return [same(each) for each in value]
    if isinstance(value, str):
        return TIMES.sub("TIME", UUIDS.sub("ID", value))
    return value


@pytest.fixture(autouse=True)
def queues(settings: Settings) -> None:
    settings.RELAY = {"QUEUES": ["default", "mail", "low"]}


@pytest.fixture
def remote(
    script: Run, live_server: LiveServer, monkeypatch: pytest.MonkeyPatch
) -> Run:
    """Run the console script against a real server, with a token for everything."""
    actor = Actor(name="root", source="system")
    made = create_token(actor, "tests", scopes=["admin"])
    assert "admin" in SCOPES
    monkeypatch.setenv("RELAY_TOKEN", made.secret)
    monkeypatch.setenv("RELAY_SERVER", live_server.url)
    monkeypatch.delenv("DJANGO_SETTINGS_MODULE")
    return script


@pytest.fixture
def rows() -> dict[str, str]:
    """Make some of everything; return the ids."""
    failed = make_job(
        "failed", task=ADD, queue="mail", error_class="ValueError", error_message="no"
    )
    Output.objects.create(job=failed, attempt=1, text="one\ntwo\n")
    retrying = make_job("retrying", queue="mail", task=ADD, failures=1, attempt=1)
    worker = Worker.objects.create(
        name="w1",
        host="h",
        pid=1,
        queues=["mail"],
        concurrency=2,
        version="1",
        lease_expires_at=datetime.now(UTC) + timedelta(hours=1),
    )
    Schedule.objects.create(name="nightly", task=ADD, cron="0 7 * * *")
    return {
        "failed": str(failed.pk),
        "retrying": str(retrying.pk),
        "queued": str(make_job("queued", task=ADD, tags=["vip"]).pk),
        "completed": str(make_job("completed", task=ADD).pk),
        "worker": str(worker.pk),
        "missing": str(uuid7()),
    }


LOOKS = [
    "jobs",
    "jobs state:failed queue:mail",
    "jobs --state queued --limit 1",
    "jobs --all",
    "jobs tag:vip",
    "ls mail retry",
    "job {failed} --logs",
    "jobs show {queued}",
    "history {failed}",
    "logs {failed}",
    "why {queued}",
    "wait {completed}",
    "wait {failed}",
    "wait {queued} --timeout 0",
    "count",
    "jobs count state:failed",
    "dlq",
    "dlq groups",
    "dlq inspect {failed}",
    "queues",
    "queues show mail",
    "workers",
    "workers show {worker}",
    "workers show w1",
    "schedules",
    "schedules show nightly",
    "schedules next nightly -n 2",
    "schedules preview '0 7 * * *' -n 1",
    "bulk",
    "tasks",
    f"tasks show {ADD}",
    "stats",
    "doctor",
    "health",
    "health --live",
    "audit",
    "audit --subject token --limit 1",
    "audit --target x",
    "jobs --order=id",
    "jobs state:completed --order=finished_at",
    "jobs state:queued --order=id",
    # What is not there, or cannot be taken.
    "job {missing}",
    "job 01890a5d",
    "history {missing}",
    "jobs colour:red",
    "jobs state:bogus",
    "queues show nowhere",
    "workers show {missing}",
    "schedules show nothing",
    "schedules preview never",
    "bulk show {missing}",
    "tasks show no.such",
]


def test_a_look_is_the_same_both_ways(
    relay: Run, remote: Run, rows: dict[str, str]
) -> None:
    for line in LOOKS:
        words = [*shlex.split(line.format(**rows)), "--json"]

        here, there = relay(*words), remote(*words)

        assert there.code == here.code, (line, here.err, there.err)
        assert bool(there.out) == bool(here.out), line
        if here.out:
            assert (line, same(there.json)) == (line, same(here.json))


def some(state: str, **values: Any) -> Job:
    values.setdefault("args", {"args": [1, 2], "kwargs": {}})
    return make_job(state, task=ADD, **values)


def dated() -> UUID:
    """Make a job with arguments that JSON has no types for."""
    values = (datetime(2026, 1, 1, tzinfo=UTC), 2)
    return some("failed", args=json.loads(codec.encode_arguments(values, {}))).pk


def later() -> Job:
    return some("scheduled", run_at=datetime(2999, 1, 1, tzinfo=UTC))


def worker(**values: Any) -> Worker:
    return Worker.objects.create(
        name="w2",
        host="h",
        pid=2,
        queues=["low"],
        concurrency=1,
        version="1",
        lease_expires_at=Now() + timedelta(hours=1),
        **values,
    )


def nightly() -> str:
    Schedule.objects.all().delete()
    return Schedule.objects.create(name="weekly", task=ADD, cron="0 7 * * 1").name


def slashed() -> str:
    Schedule.objects.all().delete()
    return Schedule.objects.create(name="week/ly", task=ADD, cron="0 7 * * 1").name


def one_failed() -> None:
    Job.objects.all().delete()
    some("failed")


def without_schedules() -> str:
    Schedule.objects.all().delete()
    return "new"


# Command line -> what {0} stands for, made anew for each way.
ACTS: list[tuple[str, Callable[[], Any]]] = [
    ("cancel {0}", lambda: some("queued").pk),
    ("cancel {0} --reason because", lambda: some("running").pk),
    ("retry {0}", lambda: some("failed").pk),
    ("replay {0}", lambda: some("completed").pk),
    ("replay {0} --set args.0=5", lambda: some("failed").pk),
    ("replay {0} --set args.1=5", dated),
    ("replay {0} --set args.0.__relay__=nothing", dated),
    ("run default {0}", lambda: later().pk),
    ("jobs run-now {0}", lambda: later().pk),
    ("rm {0} --yes", lambda: some("failed").pk),
    ("jobs edit {0} --set priority=3 --set args.1=9", lambda: some("queued").pk),
    ("jobs edit {0} --set run_at=2999-01-01T00:00:00Z", lambda: some("queued").pk),
    ("jobs edit {0} --set timeout=2m --set deadline=null", lambda: some("queued").pk),
    (f"enqueue {ADD} --args [1,2]", lambda: ""),
    (f"enqueue {ADD} --args [1] --kwarg b=2 --queue mail --priority 3", lambda: ""),
    (f"enqueue {ADD} --args [1,2] --delay 1h --timeout 30s --tag vip", lambda: ""),
    (f"enqueue {ADD} --args [1,2] --at 2999-01-01T00:00:00Z", lambda: ""),
    (f"enqueue {ADD} --args [3,4] --unique-for 1h", lambda: Job.objects.all().delete()),
    (f"enqueue {ADD} --kwarg nothing=1", lambda: ""),
    ("enqueue no.such", lambda: ""),
    ("enqueue relay.bulk", lambda: ""),
    ("pause low", lambda: ""),
    ("pause low --until 2999-01-01T00:00:00Z", lambda: ""),
    ("resume low", lambda: ""),
    ("pause nowhere", lambda: ""),
    ("queues set low --order fifo", lambda: ""),
    ("queues set low --weight 6 --order priority", lambda: ""),
    ("queues set low --weight 0", lambda: ""),
    ("mark 'deploy 1.4'", lambda: ""),
    ("mark 'deploy 1.4' --dry-run", lambda: ""),
    ("mark ' '", lambda: ""),
    ("queues set low", lambda: ""),
    ("workers rm {0} --yes", lambda: worker(state="lost").pk),
    ("workers rm {0} --yes", lambda: worker().pk),
    ("token create laptop --scopes everything", lambda: ""),
    ("token revoke {0} --yes", lambda: uuid7()),
    ("queues purge low --yes", lambda: ""),
    ("workers quiet {0}", lambda: worker().pk),
    ("workers stop {0} --yes", lambda: worker().pk),
    ("schedules add {0} --task testproject.tasks.add --every 1h", without_schedules),
    ("schedules add {0} --task no.such --cron never", without_schedules),
    (
        "schedules edit {0} --excluded 2998-12-25 --excluded '* * 26 12 *'",
        nightly,
    ),
    ("schedules edit {0} --excluded never", nightly),
    ("schedules edit {0} --cron '0 6 * * *' --priority 3 --spread 5m", nightly),
    ("schedules edit {0} --every 2h", nightly),
    ("schedules pause {0}", nightly),
    ("schedules resume {0}", nightly),
    ("schedules trigger {0}", nightly),
    ("schedules rm {0} --yes", nightly),
    ("schedules add {0}/b --task testproject.tasks.add --every 1h", without_schedules),
    ("schedules pause {0}", slashed),
    ("schedules next {0} -n 1", slashed),
    ("schedules rm {0} --yes", slashed),
    ("retry --filter state:failed --dry-run", one_failed),
    ("cancel --filter queue:mail --yes", lambda: ""),
    ("prune --older-than 30d --yes", lambda: ""),
    # What the state, or nothing at all, is in the way of.
    ("cancel {0}", lambda: some("completed").pk),
    ("retry {0} {0}", lambda: some("queued").pk),
    ("rm {0} --yes", lambda: some("running").pk),
    ("cancel {0}", lambda: uuid7()),
    ("schedules trigger nothing", lambda: ""),
    ("workers quiet {0}", lambda: uuid7()),
]


@pytest.mark.parametrize(
    ("line", "make"),
    ACTS,
    ids=[f"{place} {line}" for place, (line, _) in enumerate(ACTS)],
)
def test_an_act_is_the_same_both_ways(
    line: str, make: Callable[[], Any], relay: Run, remote: Run
) -> None:
    def done(run: Run) -> Result:
        made = make()
        return run(*shlex.split(line.format(made)), "--json")

    here, there = done(relay), done(remote)

    assert there.code == here.code, (here.err, there.err)
    assert bool(there.out) == bool(here.out)
    if here.out:
        assert same(there.json) == same(here.json)


# As the texts that relay began with have them.
SEEDS = [
    "stats",
    "ls mail retry",
    "run mail {retrying}",
    "cancel {queued}",
    "pause low",
    "jobs",
    "job {failed}",
    "workers",
    "history {failed}",
]


@pytest.mark.parametrize("way", ["relay", "remote"])
def test_the_first_command_lines_still_run(
    way: str, relay: Run, remote: Run, rows: dict[str, str]
) -> None:
    run = relay if way == "relay" else remote

    for line in SEEDS:
        result = run(*line.format(**rows).split())
        assert result.code == 0, (line, result.err)
        assert result.out, line


def test_tokens_are_made_and_revoked_over_http_too(remote: Run) -> None:
    made = remote("token", "create", "laptop", "--scopes", "read", "--expires-in", "2h")
    secret = made.out.strip()
    first = remote("token", "ls", "--json").json["results"][0]
    revoked = remote("token", "revoke", first["id"][:-1], "--yes")

    assert secret.startswith(first["prefix"])
    assert (first["name"], first["state"]) == ("laptop", "active")
    assert revoked.code == 0
    assert remote("token", "ls", "--json").json["results"][0]["state"] == "revoked"
    assert secret not in remote("token", "ls", "--json").out


def test_a_token_that_is_none_is_not_let_in(
    remote: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RELAY_TOKEN", "rly_nothing")

    result = remote("jobs")

    assert (result.code, result.out) == (5, "")


LOOK_WITHOUT_DJANGO = """
import sys
from relay.cli.console import main
code = main(sys.argv[1:])
heavy = {name.partition(".")[0] for name in sys.modules}
heavy &= {"django", "psycopg", "rest_framework", "asgiref", "croniter"}
assert not heavy, heavy
sys.exit(code)
"""


def test_a_server_is_asked_without_django(
    remote: Run, live_server: LiveServer, rows: dict[str, str]
) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", LOOK_WITHOUT_DJANGO, "jobs", "-q"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    assert rows["failed"] in done.stdout.splitlines()


def test_arguments_keep_their_types_where_others_are_changed(
    relay: Run, remote: Run
) -> None:
    for run in (relay, remote):
        [new] = run("replay", dated(), "--set", "args.1=5", "-q").lines

        args, _ = codec.decode_arguments(Job.objects.get(pk=new).args)
        assert args == [datetime(2026, 1, 1, tzinfo=UTC), 5]


def test_a_reason_is_on_record_as_it_was_given(relay: Run, remote: Run) -> None:
    reason = "für\t因为"

    for run in (relay, remote):
        assert run("cancel", some("queued").pk, "--reason", reason).code == 0

    [one, two] = Audit.objects.filter(subject="job").values_list("reason", flat=True)
    assert one == two == "für\\t因为"


def test_each_way_tells_as_whom_it_is_known(relay: Run, remote: Run) -> None:
    here, there = relay("whoami", "--json").json, remote("whoami", "--json").json

    assert here["name"] == "ada"
    assert there["name"].startswith("token tests rly_")
    assert here["permissions"] == there["permissions"]
    assert here.keys() == there.keys()


def test_metrics_are_written_both_ways(relay: Run, remote: Run) -> None:
    some("queued")

    for run in (relay, remote):
        lines = run("metrics").lines
        assert 'relay_jobs{queue="default",state="queued"} 1.0' in lines, lines


def test_the_document_of_the_api_is_written_both_ways(relay: Run, remote: Run) -> None:
    here, there = relay("openapi").json, remote("openapi").json

    assert here["openapi"] == there["openapi"]
    assert here["paths"] == there["paths"]


def test_metrics_need_their_permission(
    script: Run, live_server: LiveServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    actor = Actor(name="root", source="system")
    monkeypatch.setenv("RELAY_SERVER", live_server.url)
    monkeypatch.setenv(
        "RELAY_TOKEN", create_token(actor, "few", scopes=["submit"]).secret
    )

    assert script("metrics").code == 5


def test_an_enqueue_tells_of_the_job_that_holds_its_key_both_ways(
    relay: Run, remote: Run
) -> None:
    for run, key in ((relay, "here"), (remote, "there")):
        words = ("enqueue", ADD, "--args", "[1, 2]", "--unique-key", key)
        made, again, document = run(*words), run(*words), run(*words, "--json")

        job = json.loads(document.out)
        assert (made.code, made.out) == (0, f"enqueued {job['id']} (is queued)\n")
        told = f"nothing was enqueued: {job['id']} holds the unique key (is queued)\n"
        assert (again.code, again.out, job["duplicate"]) == (0, told, True)

    assert Job.objects.count() == 2
