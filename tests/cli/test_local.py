"""manage.py relay: what its verbs do, say and leave on record."""

from __future__ import annotations

import json
import re
from uuid import UUID

import pytest
from django.db.models.functions import Now
from pytest_django import Settings

from relay.ids import uuid7
from relay.models import Audit, BulkOperation, Job, Queue, Schedule
from tests.cli.conftest import Run
from tests.operations.factory import make_job

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def queues(settings: Settings) -> None:
    settings.RELAY = {"QUEUES": ["default", "mail", "low"]}


def state_of(job: Job) -> str:
    return Job.objects.values_list("state", flat=True).get(pk=job.pk)


# --- looking -------------------------------------------------------------------------


def test_a_noun_alone_lists(relay: Run) -> None:
    job = make_job("queued", task="app.send", queue="mail")

    assert relay("jobs", "-q").lines == [str(job.pk)]
    assert relay("jobs", "ls", "-q").lines == [str(job.pk)]
    [title, row] = relay("jobs").lines
    assert title.split()[:3] == ["ID", "STATE", "TASK"]
    assert row.split()[:3] == [str(job.pk), "queued", "app.send"]


def test_jobs_are_found_by_words_and_flags(relay: Run) -> None:
    one = make_job("failed", queue="mail", error_class="ValueError")
    two = make_job("failed", queue="low")
    make_job("queued", queue="mail")

    def found(*words: str) -> set[str]:
        return set(relay("jobs", *words, "-q").lines)

    assert found("state:failed") == {str(one.pk), str(two.pk)}
    assert found("--state", "failed", "--queue", "mail") == {str(one.pk)}
    assert found("error:ValueError") == {str(one.pk)}
    assert found("state:completed") == set()
    assert set(relay("ls", "mail", "archived", "-q").lines) == {str(one.pk)}


def test_pages_follow_one_another(relay: Run) -> None:
    made = {str(make_job("queued").pk) for _ in range(3)}

    first = relay("jobs", "--limit", 2, "--json").json
    second = relay("jobs", "--limit", 2, "--cursor", first["next"], "--json").json
    everything = relay("jobs", "--all", "--jsonl")

    assert {each["id"] for each in first["results"] + second["results"]} == made
    assert second["next"] is None
    assert len(everything.lines) == 3
    assert "--all" in relay("jobs", "--limit", 2).err


def test_attempts_are_told_of_how_many_until_a_retry_added_some(relay: Run) -> None:
    jobs = [make_job("failed", attempt=each, max_retries=1) for each in (2, 3)]

    lines = relay("jobs", "state:failed").out.splitlines()
    said = [next(x for x in lines if str(job.pk) in x).split() for job in jobs]
    assert "2/2" in said[0]
    assert "3" in said[1]
    assert "3/2" not in said[1]


def test_one_job_is_shown_by_the_beginning_of_its_id(relay: Run) -> None:
    job = make_job("failed", error_class="ValueError", error_message="no\x1b[31m")
    text = str(job.pk)

    whole = relay("job", text, "--json")
    begun = relay("job", text[:-1], "--json")

    assert whole.json["id"] == begun.json["id"] == text
    shown = relay("jobs", "show", text).out
    assert "ValueError" in shown
    assert "\x1b" not in shown


def test_a_job_is_followed_until_it_has_ended(
    relay: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = make_job("running")
    monkeypatch.setattr(
        "relay.cli.session.time.sleep",
        lambda _: Job.objects.filter(pk=job.pk).update(
            state="completed", finished_at=Now()
        ),
    )

    states = [
        each["state"]
        for each in map(json.loads, relay("job", job.pk, "--follow", "--jsonl").lines)
    ]

    assert states == ["running", "completed"]


def test_an_id_that_several_begin_with_is_refused(relay: Run) -> None:
    make_job(id=UUID("01890a5d-ac96-774b-bcce-b302099a8057"))
    make_job(id=UUID("01890a5d-ac96-774b-bcce-b302099a8058"))

    result = relay("job", "01890a5d")

    assert (result.code, result.out) == (2, "")
    first, *candidates = result.err.splitlines()
    assert "several" in first
    assert [each.split()[0] for each in candidates] == [
        "01890a5d-ac96-774b-bcce-b302099a8058",
        "01890a5d-ac96-774b-bcce-b302099a8057",
    ]
    assert all("queued" in each for each in candidates)


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("job", str(uuid7())), 3),
        (("job", "01890a5d"), 3),
        (("job", "0189"), 2),
        (("jobs", "colour:red"), 2),
        (("cancel", str(uuid7())), 3),
        (("queues", "show", "nowhere"), 3),
        (("pause", "nowhere"), 3),
        (("schedules", "show", "nothing"), 3),
        (("workers", "show", str(uuid7())), 3),
        (("workers", "show", "nobody"), 2),
        (("tasks", "show", "no.such"), 3),
        (("enqueue", "no.such"), 3),
        (("bulk", "show", str(uuid7())), 3),
        (("schedules", "preview", "not cron"), 2),
        (("cancel",), 2),
        (("retry", "--filter", "x:1", "--yes"), 2),
    ],
)
def test_what_is_not_there_or_no_value_has_its_exit_code(
    relay: Run, words: tuple[str, ...], code: int
) -> None:
    result = relay(*words)

    assert (result.code, result.out) == (code, "")
    assert result.err


def test_counts_history_and_reasons_are_told(relay: Run) -> None:
    job = make_job("scheduled", run_at="2999-01-01T00:00:00Z")

    assert relay("count", "state:scheduled").lines == ["1"]
    assert relay("jobs", "count", "--json").json == {"count": 1, "capped": False}
    assert [each["event"] for each in relay("history", job.pk, "--json").json] == [
        "enqueued"
    ]
    assert relay("why", job.pk).out
    assert relay("why", job.pk, "--json").json["cause"]


def test_everything_has_a_list(relay: Run) -> None:
    Schedule.objects.create(
        name="nightly", task="testproject.tasks.add", cron="0 7 * * *"
    )

    names = set(relay("queues", "-q").lines)
    tasks = relay("tasks", "--json").json["results"]

    assert {"default", "mail", "low"} <= names
    tasks = {each["name"] for each in tasks}
    assert "testproject.tasks.add" in tasks
    assert not {each for each in tasks if each.startswith("relay.")}
    assert relay("tasks", "show", "relay.load.noop").code == 0
    assert relay("schedules", "-q").lines == ["nightly"]
    assert "no worker" in relay("workers").err
    assert "no bulk operation" in relay("bulk").err
    assert relay("dlq").code == 0
    assert relay("stats", "--json").json["queues"]
    assert re.search(r"^QUEUE +STATE", relay("stats").out, re.MULTILINE)
    assert relay("top", "--once").out.startswith("relay  ")
    assert relay("version", "--json").json["django"]
    assert relay("health").lines == ["ok"]


def test_times_of_a_schedule_are_shown_before_it_is_there(relay: Run) -> None:
    found = relay("schedules", "preview", "0 7 * * *", "--tz", "Europe/Rome", "-n", 2)

    assert len(found.lines) == 3


# --- changing ------------------------------------------------------------------------


def test_a_job_is_cancelled_by_who_is_logged_in(relay: Run) -> None:
    job = make_job("queued")

    result = relay("cancel", job.pk, "--reason", "not needed", "--json")

    assert result.code == 0
    assert [each["state"] for each in result.json["results"]] == ["cancelled"]
    record = Audit.objects.get()
    assert (record.actor, record.source, record.reason) == ("ada", "cli", "not needed")


def test_of_several_what_cannot_be_done_is_told(relay: Run) -> None:
    waiting, ended = make_job("queued"), make_job("completed")

    result = relay("cancel", waiting.pk, ended.pk, "--json")

    assert result.code == 7
    assert [each["id"] for each in result.json["results"]] == [str(waiting.pk)]
    assert [each["code"] for each in result.json["errors"]] == ["conflict"]
    assert str(ended.pk) in result.err
    assert relay("cancel", waiting.pk).code == 6


def test_failed_jobs_run_again(relay: Run) -> None:
    retried, replayed = make_job("failed"), make_job("failed")

    assert relay("retry", retried.pk).code == 0
    [new] = relay("replay", replayed.pk, "-q").lines

    assert state_of(retried) == "queued"
    assert Job.objects.get(pk=new).replay_of == replayed.pk


def test_a_replay_may_have_other_arguments(relay: Run) -> None:
    job = make_job("failed", args={"args": [1, 2], "kwargs": {"x": {"y": 1}}})

    [new] = relay(
        "replay", job.pk, "--set", "args.0=10", "--set", "args.x.y=june", "-q"
    ).lines

    assert Job.objects.get(pk=new).args == {
        "args": [10, 2],
        "kwargs": {"x": {"y": "june"}},
    }


def test_run_makes_ready_what_waits_and_requeues_what_failed(relay: Run) -> None:
    later = make_job("scheduled", run_at="2999-01-01T00:00:00Z", queue="mail")
    failed = make_job("failed", queue="mail")

    assert relay("run", "mail", later.pk, failed.pk).code == 0

    assert {state_of(later), state_of(failed)} == {"queued"}
    assert relay("run", "default", later.pk).code == 3


def test_a_job_that_waits_is_edited(relay: Run) -> None:
    job = make_job("queued", args={"args": [1], "kwargs": {}})

    result = relay(
        *("jobs", "edit", job.pk, "--set", "priority=5", "--set", "queue=mail"),
        *("--set", "timeout=2m", "--set", "tags=a,b", "--set", "args.0=7", "--json"),
    )

    [changed] = result.json["results"]
    assert (changed["priority"], changed["queue"]) == (5, "mail")
    assert (changed["timeout"], changed["tags"]) == (120.0, ["a", "b"])
    assert changed["args"] == [7]


def test_a_job_is_enqueued_with_its_options(relay: Run) -> None:
    [job_id] = relay(
        *("enqueue", "testproject.tasks.add", "--args", "[1]", "--kwarg", "b=2"),
        *("--queue", "mail", "--priority", 7, "--delay", "1h", "--tag", "vip", "-q"),
    ).lines

    job = Job.objects.get(pk=job_id)
    assert job.args == {"args": [1], "kwargs": {"b": 2}}
    assert (job.queue, job.priority, job.state) == ("mail", 7, "scheduled")
    assert job.tags == ["vip"]


def test_an_enqueue_that_does_not_fit_is_refused(relay: Run) -> None:
    result = relay("enqueue", "testproject.tasks.add", "--kwarg", "nothing=1")

    assert result.code == 2
    assert not Job.objects.exists()


def test_queues_are_paused_and_resumed(relay: Run) -> None:
    assert relay("pause", "low", "mail").code == 0
    assert Queue.objects.filter(paused_at__isnull=False).count() == 2

    assert relay("resume", "low").code == 0
    assert relay("queues", "pause", "default", "--for", "1h").code == 0

    queue = Queue.objects.get(name="default")
    assert queue.paused_until is not None
    assert (
        relay("queues", "set", "low", "--order", "fifo", "--json").json["results"][0][
            "policy"
        ]
        == "fifo"
    )


def test_a_schedule_lives_from_add_to_rm(relay: Run) -> None:
    assert (
        relay(
            *("schedules", "add", "nightly", "--task", "testproject.tasks.add"),
            *("--cron", "0 7 * * *", "--tz", "Europe/Rome", "--args", "[1, 2]"),
        ).code
        == 0
    )

    assert relay("schedules", "edit", "nightly", "--priority", 3).code == 0
    assert relay("schedules", "pause", "nightly").code == 0
    assert not Schedule.objects.get().enabled
    assert relay("schedules", "resume", "nightly").code == 0
    [job_id] = relay("schedules", "trigger", "nightly", "-q").lines
    assert Job.objects.get(pk=job_id).priority == 3
    assert len(relay("schedules", "next", "nightly", "--jsonl").lines) == 5
    assert relay("schedules", "show", "nightly").code == 0
    assert relay("schedules", "rm", "nightly", "--yes").code == 0
    assert not Schedule.objects.exists()


def test_what_cannot_be_undone_wants_a_yes_where_nobody_can_be_asked(
    relay: Run,
) -> None:
    job = make_job("completed")

    for words in (
        ("rm", job.pk),
        ("cancel", "--filter", "state:queued"),
        ("queues", "purge", "low"),
        ("prune", "--older-than", "30d"),
        ("schedules", "rm", "x"),
        ("workers", "stop", str(uuid7())),
    ):
        result = relay(*words)
        assert (result.code, result.out) == (2, ""), words
        assert "--yes" in result.err

    assert relay("rm", job.pk, "--yes").code == 0
    assert not Job.objects.exists()


def test_a_dry_run_changes_nothing(relay: Run) -> None:
    job, failed = make_job("queued"), make_job("failed")

    for words in (
        ("cancel", job.pk),
        ("rm", job.pk),
        ("run", "default", job.pk),
        ("jobs", "edit", job.pk, "--set", "priority=1"),
        ("replay", failed.pk, "--set", "args.0=1"),
        ("cancel", "--filter", "state:queued"),
        ("enqueue", "testproject.tasks.add"),
        ("pause", "low"),
        ("queues", "set", "low", "--order", "fifo"),
        ("queues", "set", "low", "--weight", "2"),
        ("queues", "purge", "low"),
        ("prune", "--older-than", "30d"),
        ("token", "create", "x", "--scopes", "read"),
        ("schedules", "add", "x", "--task", "testproject.tasks.add", "--every", "1h"),
    ):
        result = relay(*words, "--dry-run")
        assert result.code == 0, (words, result.err)
        assert "would" in result.out, words

    said = relay("retry", failed.pk, "--dry-run").out
    assert said == f"{failed.pk} (is failed) would be retried\n"
    said = relay("replay", failed.pk, "--dry-run").out
    assert said == f"{failed.pk} (is failed) would be replayed\n"
    assert state_of(job) == "queued"
    assert Job.objects.count() == 2
    assert not Audit.objects.exists()


def test_an_act_on_all_that_match_becomes_a_bulk_operation(relay: Run) -> None:
    for _ in range(3):
        make_job("failed", queue="mail")

    result = relay("retry", "--filter", "queue:mail state:failed", "--yes", "--json")

    assert result.json["expected"] == 3
    bulk = BulkOperation.objects.get()
    assert (bulk.action, bulk.actor) == ("retry", "ada")
    assert relay("bulk", "show", str(bulk.pk)[:-1]).code == 0
    assert relay("bulk", "cancel", bulk.pk).code == 0


def test_all_failed_jobs_are_the_dead_letters(relay: Run) -> None:
    failed = make_job("failed", error_class="ValueError", error_message="no")
    make_job("cancelled")

    assert relay("dlq", "-q").lines == [str(failed.pk)]
    assert "ValueError" in relay("dlq", "groups").out
    [group] = relay("dlq", "groups", "--json").json["results"]
    result = relay("dlq", "-q", group["filter"])
    assert result.lines == [str(failed.pk)], result
    assert relay("dlq", "inspect", failed.pk).code == 0
    result = relay("dlq", "replay", "--filter", "queue:default", "--yes", "--json")
    assert result.json["filter"] == "state:failed queue:default"


def test_a_token_is_told_once(relay: Run) -> None:
    made = relay("token", "create", "laptop", "--scopes", "read,operate")

    assert made.out.startswith("rly_")
    [token] = relay("token", "ls", "--json").json["results"]
    assert made.out.strip() not in relay("token", "ls", "--json").out
    assert token["scopes"] == ["read", "operate"]
    assert relay("token", "revoke", token["id"], "--yes").code == 0
    assert relay("token", "ls", "--json").json["results"][0]["revoked_at"]


def test_jobs_are_exported_inert(relay: Run, tmp_path: object) -> None:
    make_job("failed", error_class="=cmd", error_message="x")
    file = f"{tmp_path}/jobs.csv"

    lines = relay("export", "state:failed").lines
    result = relay("export", "--format", "csv", "--output", file)

    assert len(lines) == 1
    assert "1 jobs written" in result.err
    with open(file) as opened:
        assert "'=cmd" in opened.read()
    assert relay("export", "--output", file).code == 2


def test_without_the_permission_to_change_nothing_is_changed(
    relay: Run, settings: Settings
) -> None:
    settings.RELAY = {"READ_ONLY": True}
    job = make_job("queued")

    assert relay("cancel", job.pk).code == 5
    assert relay("jobs").code == 0


def test_settings_that_cannot_be_used_are_said_in_one_line(
    relay: Run, settings: Settings
) -> None:
    settings.RELAY = {"QUEUE": ["x"]}

    result = relay("jobs")

    assert result.code == 1
    assert "QUEUES" in result.err
