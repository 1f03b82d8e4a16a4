"""manage.py relay_load on a database without workers."""

from __future__ import annotations

import json
from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from relay.load import noop
from relay.load.plan import Plan
from relay.models import Job
from relay.tasks import all_tasks
from tests.load import tasks


def load(*arguments: str) -> tuple[int, str, str]:
    """Run the command; return its exit code, and what is on stdout and stderr."""
    stdout, stderr = StringIO(), StringIO()
    code = 0
    try:
        call_command("relay_load", *arguments, stdout=stdout, stderr=stderr)
    except SystemExit as ended:
        code = int(str(ended.code))
    return code, stdout.getvalue(), stderr.getvalue()


def report(*arguments: str) -> tuple[int, dict[str, Any]]:
    code, stdout, _ = load(*arguments, "--yes", "--json")
    found: dict[str, Any] = json.loads(stdout)
    return code, found


@pytest.fixture
def jobs(transactional_db: None) -> Any:
    return Job.objects.order_by("ready_seq")


def test_every_process_knows_the_task_of_the_load() -> None:
    assert all_tasks()["relay.load.noop"] is noop


def test_a_load_enqueues_plain_jobs_and_reports(jobs: Any) -> None:
    code, found = report("--requests", "50", "--clients", "3")

    assert code == 0
    assert {(job.task, job.queue, job.state, job.tags) for job in jobs} == {
        ("relay.load.noop", "default", "queued", None)
    }
    assert jobs[0].args == {"args": [], "kwargs": {}}
    assert jobs.count() == 50
    assert found["requests"].items() >= {
        ("succeeded", 50),
        ("failed", 0),
        ("unsent", 0),
    }
    assert found["jobs"].items() >= {("made", 50), ("duplicates", 0)}
    assert found["requests"]["per_second"] > 0
    latency = found["latency_ms"]
    assert 0 < latency["p50"] <= latency["p90"] <= latency["p99"] <= latency["max"]
    assert (found["errors"], found["wait"], found["interrupted"]) == ({}, None, False)


def test_a_request_may_be_a_batch(jobs: Any) -> None:
    _, found = report("--requests", "3", "--batch", "20")

    assert jobs.count() == found["jobs"]["made"] == 60
    assert found["requests"]["succeeded"] == 3


def test_a_duration_and_a_rate_make_so_many_requests(
    jobs: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Asked for the first one at no time at all: a machine that stands still there for
    # as long as the load goes on would have none sent.
    ask, first = Plan.next, iter([0.0])
    monkeypatch.setattr(Plan, "next", lambda plan, now: ask(plan, next(first, now)))

    _, found = report("--duration", "0.2", "--rate", "100")

    sent = found["requests"]["succeeded"]
    assert sent + found["requests"]["unsent"] == 20
    assert jobs.count() == sent > 0


def test_a_payload_is_an_argument_of_that_size(jobs: Any) -> None:
    report("--requests", "1", "--payload", "5000")

    assert jobs.get().args["args"] == ["x" * 5_000]


def test_another_task_takes_its_arguments_and_queue(jobs: Any, settings: Any) -> None:
    settings.RELAY = {"QUEUES": ["default", "mail"]}

    report(
        *("--requests", "1", "--task", tasks.greet.name, "--queue", "mail"),
        *("--args", '["ada"]', "--kwargs", '{"loud": true}'),
    )

    job = jobs.get()
    assert (job.task, job.queue) == (tasks.greet.name, "mail")
    assert job.args == {"args": ["ada"], "kwargs": {"loud": True}}


def test_requests_that_fail_are_counted_by_class_and_make_the_exit_code_1(
    jobs: Any,
) -> None:
    code, found = report("--requests", "5", "--task", tasks.once_or_raise.name)

    assert code == 1
    assert (found["requests"]["succeeded"], found["requests"]["failed"]) == (1, 4)
    (name,) = found["errors"]
    assert name == "relay.exceptions.DuplicateJob"
    assert found["errors"][name]["count"] == 4
    assert "holds the same unique key" in found["errors"][name]["first"]
    assert jobs.count() == 1


def test_jobs_that_were_there_already_are_duplicates(jobs: Any) -> None:
    code, found = report("--requests", "5", "--task", tasks.once.name)

    assert code == 0
    assert (found["jobs"]["made"], found["jobs"]["duplicates"]) == (1, 4)


def test_it_says_what_it_will_do_and_reports_for_people(jobs: Any) -> None:
    code, stdout, stderr = load("--requests", "8", "--clients", "2", "--yes")

    assert code == 0
    assert "2 clients make 8 requests, each of 1 x relay.load.noop" in stderr
    assert "into the queue 'default' of DATABASES['default']" in stderr
    assert "requests  8 succeeded, 0 failed" in stdout
    assert "jobs      8 enqueued" in stdout
    assert "latency   p50 " in stdout


def test_verbosity_0_says_nothing_but_the_report(jobs: Any) -> None:
    _, stdout, stderr = load("--requests", "1", "--yes", "--verbosity", "0")

    assert stderr == ""
    assert stdout.startswith("requests  1 succeeded")


def test_the_report_names_errors(jobs: Any) -> None:
    _, stdout, _ = load("--requests", "2", "--task", tasks.once_or_raise.name, "--yes")

    assert "error     1 x relay.exceptions.DuplicateJob: job " in stdout


def test_a_wait_ends_after_its_limit_and_says_what_has_not_ended(jobs: Any) -> None:
    arguments = ("--requests", "3", "--wait", "0.05", "--yes")

    code, stdout, stderr = load(*arguments)

    assert code == 1
    assert "no worker serves the queue 'default' now" in stderr
    assert "ended     3 not ended yet" in stdout
    assert "to start  no samples" in stdout


def test_without_debug_it_wants_to_be_sure(jobs: Any) -> None:
    with pytest.raises(CommandError, match=r"settings\.DEBUG is False.*add --yes"):
        load("--requests", "1")

    assert not jobs.exists()


def test_with_debug_it_goes_ahead(jobs: Any, settings: Any) -> None:
    settings.DEBUG = True

    load("--requests", "1")

    assert jobs.count() == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("", "one of the arguments --requests --duration is required"),
        ("--requests 1 --duration 1", "not allowed with argument --requests"),
        ("--requests 0", "'0' is no whole number from 1"),
        ("--requests -5", "'-5' is no whole number"),
        ("--requests many", "'many' is no whole number"),
        ("--duration 0", "'0' is no number above 0"),
        ("--duration=-1", "'-1' is no number above 0"),
        ("--duration nan", "'nan' is no number"),
        ("--duration inf", "'inf' is no number"),
        (
            "--requests 1 --clients 0",
            "--clients: '0' is no whole number from 1 to 1000",
        ),
        ("--requests 1 --clients 1001", "'1001' is no whole number"),
        ("--requests 1 --rate 0", "--rate: '0' is no number above 0"),
        ("--requests 1 --rate=-3", "'-3' is no number above 0"),
        ("--requests 1 --batch 0", "--batch: '0' is no whole number"),
        ("--requests 1 --payload=-1", "--payload: '-1' is no whole number from 0"),
        ("--requests 1 --wait 0", "--wait: '0' is no number above 0"),
        (
            "--requests 1 --task nowhere.at_all",
            "no task 'nowhere.at_all' is registered",
        ),
        ("--requests 1 --args [1", "'[1' is not JSON"),
        ("--requests 1 --args [1]", "--args is for another task: name that by --task"),
        ("--requests 1 --kwargs {}", "--kwargs is for another task"),
        ("--requests 1 --queue no/queue", "'no/queue' cannot name a queue"),
        ("--requests 1 --queue nowhere", "unknown queue 'nowhere'"),
        ("--requests 1 --payload 300000", "--payload 300000: args: are 3000"),
        (f"--requests 1 --payload 1 --task {tasks.greet.name}", "by --args and --kwa"),
        (f"--requests 1 --task {tasks.greet.name}", "missing a required argument"),
        (
            f"--requests 1 --task {tasks.greet.name} --args 1",
            "--args: give a JSON list",
        ),
        (
            f"--requests 1 --task {tasks.greet.name} --kwargs []",
            "--kwargs: give a JSON object",
        ),
    ],
)
def test_what_cannot_be_done_is_refused_before_anything_is(
    jobs: Any, arguments: str, said: str
) -> None:
    with pytest.raises(CommandError) as refused:
        load(*arguments.split(), "--yes")

    assert said in str(refused.value)
    assert not jobs.exists()


def test_a_payload_is_measured_by_the_settings(jobs: Any, settings: Any) -> None:
    settings.RELAY = {"MAX_ARGUMENT_BYTES": 100}

    with pytest.raises(CommandError, match=r"RELAY\['MAX_ARGUMENT_BYTES'\]"):
        load("--requests", "1", "--payload", "100", "--yes")
