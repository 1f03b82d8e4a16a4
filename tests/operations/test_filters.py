"""The filter language: what it finds, by which index, and what it refuses."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from django.db import connection
from hypothesis import example, given
from hypothesis import strategies as st

from relay.ids import uuid7
from relay.models import Job, Occurrence, Schedule, Worker
from relay.operations import (
    QUALIFIERS,
    FilterError,
    JobFilter,
    exactly,
    from_parameters,
    parse,
    quoted,
)
from relay.operations import job_filter as module
from relay.operations.first_line import FIRST_LINE, first_line
from relay.operations.job_filter import Term
from tests.operations.factory import make_job

pytestmark = pytest.mark.django_db

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)


def found(text: str) -> set[UUID]:
    return {job.pk for job in parse(text).jobs(using="default")}


def test_each_part_has_to_hold_and_commas_are_or() -> None:
    one = make_job("failed", queue="mail", task="app.send_one")
    two = make_job("failed", queue="web", task="app.send_two")
    three = make_job("queued", queue="mail", task="app.send_three")

    assert found("state:failed") == {one.pk, two.pk}
    assert found("state:failed queue:mail") == {one.pk}
    assert found("queue:mail,web state:failed,queued") == {one.pk, two.pk, three.pk}
    assert found("task:app.send_*") == {one.pk, two.pk, three.pk}
    assert found("task:app.send_one,app.send_two") == {one.pk, two.pk}
    assert found(f"id:{one.pk},{three.pk}") == {one.pk, three.pk}
    assert found(f"id:{str(one.pk)[:-1]},{three.pk}") == {one.pk, three.pk}
    assert found("") == {one.pk, two.pk, three.pk}
    assert found("task:app.send") == set()
    assert found("task:app%") == set()


@pytest.mark.parametrize(
    ("word", "state"),
    [
        ("pending", "queued"),
        ("RETRY", "retrying"),
        ("active", "running"),
        ("done", "completed"),
        ("dead", "failed"),
        ("canceled", "cancelled"),
        ("waiting", "blocked"),
    ],
)
def test_states_have_other_words(word: str, state: str) -> None:
    job = make_job(state)
    make_job("scheduled")

    assert found(f"state:{word}") == {job.pk}


def test_tags_errors_replays_and_what_is_quoted() -> None:
    original = make_job("failed", error_class="ValueError")
    tagged = make_job(tags=["a b", "c,d"])
    replay = make_job(replay_of=original.pk)

    assert found('tag:"a b"') == found('tag:"c,d"') == {tagged.pk}
    assert found("error:ValueError,KeyError") == {original.pk}
    assert found('error:"" state:failed') == set()
    assert found(f"replay_of:{original.pk}") == {replay.pk}


def test_arguments_are_found_by_name_place_and_path() -> None:
    kwargs = {"user": {"id": 7, "vip": True}, "name": "ada lovelace"}
    job = make_job(args={"args": ["first", 2], "kwargs": kwargs})
    make_job(args={"args": ["other"], "kwargs": {"user": {"id": 77}}})

    for text in (
        "args.user.id:7",
        "args.user.vip:true",
        'args.name:"ada lovelace"',
        "args.0:first",
        "args.1:2",
        "args.user.id:6,7",
    ):
        assert found(text) == {job.pk}, text
    assert found("args.user__id:7") == set()


def test_the_holder_of_a_unique_key_is_found_by_its_hash() -> None:
    key = bytes(range(16))
    job = make_job(unique_key=key)
    make_job(unique_key=bytes(16))

    assert found(f"unique_key:{key.hex()}") == {job.pk}
    assert found(f"unique_key:{key.hex().upper()},{'f' * 32}") == {job.pk}
    assert found(f"unique_key:{'e' * 32}") == set()


def test_arguments_are_found_only_for_who_may_see_them() -> None:
    assert parse(f"unique_key:{'0' * 32}").permissions == {"view_payload"}
    assert parse("args.user.id:7 state:failed").permissions == {"view_payload"}
    assert parse("state:failed").permissions == set()


def test_workers_and_schedules_are_found_by_name_or_id() -> None:
    worker = Worker.objects.create(
        name="host-1",
        host="host",
        pid=1,
        queues=[],
        concurrency=1,
        version="0",
        lease_expires_at=NOW,
    )
    running = make_job("running", worker_id=worker.pk)
    make_job("running")
    schedule = Schedule.objects.create(name="nightly", task="t.t", cron="0 3 * * *")
    job = make_job("completed", schedule_id=schedule.pk)
    Occurrence.objects.create(schedule=schedule, due_at=NOW, job_id=job.pk)

    assert found("worker:host-1") == found(f"worker:{worker.pk}") == {running.pk}
    assert found("schedule:nightly") == {job.pk}
    assert found("schedule:nothing") == set()


def test_ages_are_spans_back_from_now_and_become_instants() -> None:
    now = datetime.now(tz=UTC)
    old = make_job("failed", finished_at=now - timedelta(days=2))
    new = make_job("failed", finished_at=now)
    Job.objects.filter(pk=old.pk).update(created_at=now - timedelta(days=2))
    due = make_job("scheduled", run_at=now + timedelta(hours=5))

    assert found("age:>1d12h") == {old.pk}
    assert found("age:<1h") == {new.pk, due.pk}
    assert found("finished:<24h") == {new.pk}
    assert found("finished:>24h") == {old.pk}
    assert found("due:>4h") == {due.pk}
    assert found("due:<4h state:scheduled") == set()
    assert str(parse("age:>1h", now=NOW)) == "created_before:2026-11-30T11:00:00Z"
    assert str(parse("finished:<30m", now=NOW)) == "finished_after:2026-11-30T11:30:00Z"


def test_free_words_search_the_errors_of_the_last_day() -> None:
    now = datetime.now(tz=UTC)
    recent = {"finished_at": now, "error_message": "Connection refused by 10.0.0.1"}
    job = make_job("failed", **recent)
    make_job("failed", **{**recent, "finished_at": now - timedelta(hours=25)})

    assert found('"connection refused"') == {job.pk}
    assert found("refused connection") == {job.pk}
    assert found('"refused connection"') == set()


@pytest.mark.parametrize(
    "text",
    [
        "state:failed,queued queue:mail",
        'tag:"a b","c,d" "two words" one',
        f'id:{uuid7()} args.user.id:7 args.name:"x y"',
        "created_after:2026-11-30T08:00:00Z task:app.*",
        f"id:01890A5D-ac96,{uuid7()}",
        'error:"","a ""b""" error_line:"\n x" """quoted"" words" "a""b"',
    ],
)
def test_a_filter_as_text_means_the_same(text: str) -> None:
    read = parse(text)

    assert parse(str(read)) == read


# What can be stored: neither NUL nor lone surrogates.
TEXTS = st.text(
    st.characters(codec="utf-8", exclude_characters="\x00")
    | st.sampled_from("\"', \n\\")
)


@given(TEXTS, TEXTS, TEXTS.filter(bool))
@example('"', '""', 'a"b')
@example('\\"', '",', '", task:x "')
@example("\\x00 \\0 %00", " ", "a\x1f\x85\u2028b")
def test_a_quoted_text_is_read_as_it_was(value: str, other: str, word: str) -> None:
    text = f"error:{quoted(value)},{quoted(other)} args.x:{quoted(value)} "

    read = parse(text + str(JobFilter((), (word,))))

    values = tuple(dict.fromkeys((value, other)))
    assert read.terms == (Term("error", values), Term("args.x", (value,)))
    assert read.words == (word,)
    assert parse(str(read)) == read


def test_the_first_line_of_an_error_is_found_whole() -> None:
    jobs = {
        message: make_job("failed", error_message=message)
        for message in ("timeout", "connect timeout", "timeout!", " \n timeout\nmore")
    }
    windows = make_job("failed", error_message='say "no"\r\nmore')
    silent = make_job("failed")
    empty = make_job("failed", error_message="")

    same = {jobs["timeout"].pk, jobs[" \n timeout\nmore"].pk}
    assert found("error_line:timeout") == found('error_line:" timeout\nother"') == same
    assert found('error_line:"connect timeout"') == {jobs["connect timeout"].pk}
    assert found('error_line:"say ""no"""') == {windows.pk}
    assert found('error_line:""') == {silent.pk, empty.pk}
    assert found('error_line:"say ""no""",timeout!') == {
        windows.pk,
        jobs["timeout!"].pk,
    }


@given(st.text(st.sampled_from("ab \t\r\n\x0b\x85\u2028é\"\\'%"), max_size=12))
@example("x" * 300)
@example(" " * 1_000 + "x")
@example("é" * 999 + "\nb")
def test_the_database_reads_the_same_first_line(text: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            f"SELECT {FIRST_LINE} FROM (SELECT %s AS error_message) AS job", [text]
        )
        [(line,)] = cursor.fetchall()

    assert line == first_line(text) == first_line(line)


def test_a_task_whose_name_ends_with_a_star_is_named_alone() -> None:
    star = make_job(task="app.send*")
    other = make_job(task="app.send_all")
    slash = make_job(task="app.send\\*")

    assert found("task:app.send*") == {star.pk, other.pk, slash.pk}
    for job in (star, other, slash):
        assert found(f"task:{exactly(job.task)}") == {job.pk}


def test_parameters_of_a_url_say_the_same() -> None:
    parameters = {"state": "failed,dead", "queue": "mail", "q": 'tag:a "two words"'}

    assert from_parameters(parameters) == parse(
        'state:failed,dead queue:mail tag:a "two words"'
    )


@pytest.mark.parametrize(
    ("text", "qualifier", "says"),
    [
        ("colour:red", "colour", "there are id, state"),
        ("state:bogus", "state", "there are blocked"),
        ("state:", "state", "no value"),
        ("id:123", "id", "first 8 digits"),
        ("id:0189zzzz", "id", "first 8 digits"),
        ("replay_of:01890a5d", "replay_of", "36 characters"),
        ('queue:"; drop table"', "queue", "cannot name a queue"),
        ("unique_key:12", "unique_key", "all 32 digits"),
        ("age:1h", "age", "age:>1h"),
        ("age:>1y", "age", "age:>1h"),
        ("age:>99999999w", "age", "age:>1h"),
        ("created_after:yesterday", "created_after", "2026-11-30T08"),
        ("created_after:2026-11-30T08:00:00", "created_after", "2026-11-30T08"),
        ("run_at_after:9999-12-31T23:59:59-14:00", "run_at_after", "no time"),
        ("created_before:0001-01-01T00:00:00+14:00", "created_before", "no time"),
        ("tag:" + "x" * 101, "tag", "100 characters"),
        ("args." + ".".join("x" * 25) + ":1", None, "deeper"),
        ("state:failed state:queued", None, "no job"),
        ('"unclosed', None, "not closed"),
        ('tag:"a""', None, "not closed"),
        ('"""', None, "not closed"),
        ('tag:"a"b', "tag", "ends at a comma"),
        ("task__startswith:x", "task__startswith", "unknown"),
        ("_connector:OR", "_connector", "unknown"),
        ("task:a\x00b", None, "NUL"),
        ("x" * 40_001, None, "characters"),
    ],
)
def test_what_cannot_be_read_is_refused_by_name(
    text: str, qualifier: str | None, says: str
) -> None:
    with pytest.raises(FilterError, match=says) as caught:
        parse(text)

    if qualifier is not None:
        assert caught.value.qualifier == qualifier
        assert qualifier in str(caught.value)


UUID_TEXT = "01890a5d-ac96-774b-bcce-b302099a8057"
PLANS = {
    "": "relay_job_pkey",
    f"id:{UUID_TEXT}": "relay_job_pkey",
    f"id:{UUID_TEXT[:8]}": "relay_job_pkey",
    "state:blocked": "relay_job_blocked_idx or relay_job_pkey",
    "state:scheduled": "relay_job_due_idx",
    "state:retrying due:<1h": "relay_job_retrying_idx or relay_job_due_idx",
    "state:queued": "relay_job_ready_idx",
    "state:queued queue:mail": "relay_job_ready_idx",
    "state:running": "relay_job_held_idx",
    "state:completed": "relay_job_final_idx",
    "state:failed": "relay_job_failed_idx",
    "state:failed task:a.*": "relay_job_failed_idx",
    "state:failed error:ValueError args.x:1": "relay_job_failed_idx",
    "state:failed,queued": "relay_job_pkey",
    "queue:mail": "relay_job_pkey",
    "task:a.b": "relay_job_pkey",
    "error:ValueError": "relay_job_pkey",
    "error_line:refused": "relay_job_pkey",
    'state:failed task:a.b error:X error_line:"a b"': "relay_job_failed_idx",
    "tag:vip": "relay_job_tags_idx",
    f"worker:{UUID_TEXT}": "relay_job_held_idx",
    "worker:host-1": "relay_job_held_idx",
    "schedule:nightly": "relay_job_pkey",
    f"replay_of:{UUID_TEXT}": "relay_job_replay_idx",
    f"unique_key:{'0' * 32}": "relay_job_unique_idx",
    "age:<1h": "relay_job_pkey",
    "finished:<1h": "relay_job_final_idx",
    "finished:>1h state:completed": "relay_job_final_idx",
    "run_at_after:2026-11-30T08:00:00Z": "relay_job_pkey",
    "args.user.id:7": "relay_job_pkey",
    '"connection refused"': "relay_job_final_idx",
}


@pytest.mark.usefixtures("counted_jobs")
@pytest.mark.parametrize("text", PLANS)
def test_every_qualifier_goes_by_an_index(text: str) -> None:
    wanted = parse(text)
    rows = wanted.jobs(using="default").only("id")[:50]

    with connection.cursor() as cursor:
        bitmaps = "on" if wanted.needs_bitmaps else "off"
        cursor.execute(
            "SELECT set_config('enable_seqscan', 'off', true), "
            "set_config('enable_bitmapscan', %s, true), "
            "set_config('enable_sort', %s, true)",
            [bitmaps, bitmaps],
        )
        if wanted.needs_bitmaps:  # a table as small as here is read along any index
            cursor.execute("SET LOCAL enable_indexscan = off")
    plan = rows.explain() if text != "schedule:nightly" else _plan_of_a_schedule()

    assert any(index in plan for index in PLANS[text].split(" or "))
    assert "Seq Scan on relay_job" not in plan


ORDERED = {
    ("", "id"): "relay_job_pkey",
    ("queue:mail", "id"): "relay_job_pkey",
    ("state:blocked", "id"): "relay_job_blocked_idx or relay_job_pkey",
    ("state:failed", "id"): "relay_job_failed_idx",
    ("state:failed", "-id"): "relay_job_failed_idx",
    ("state:scheduled", "run_at"): "relay_job_due_idx",
    ("state:completed", "finished_at"): "relay_job_final_idx",
    ("finished:<1h", "finished_at"): "relay_job_final_idx",
    ("finished:<1h", "-finished_at"): "relay_job_final_idx",
}


@pytest.mark.usefixtures("counted_jobs")
@pytest.mark.parametrize(("text", "word"), ORDERED)
def test_every_order_is_that_of_an_index(text: str, word: str) -> None:
    wanted = parse(text)
    rows = wanted.jobs(using="default").order_by(*wanted.ordered(word)).only("id")

    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT set_config('enable_seqscan', 'off', true), "
            "set_config('enable_bitmapscan', 'off', true), "
            "set_config('enable_sort', 'off', true)"
        )
    plan = rows[:50].explain()

    assert any(index in plan for index in ORDERED[text, word].split(" or "))
    assert "Sort" not in plan


def _plan_of_a_schedule() -> str:
    schedule = Schedule.objects.create(name="nightly", task="t.t", cron="0 3 * * *")
    job = make_job(schedule_id=schedule.pk)
    Occurrence.objects.create(schedule=schedule, due_at=NOW, job_id=job.pk)
    return str(parse("schedule:nightly").jobs(using="default")[:50].explain())


def test_every_qualifier_has_its_plan_tried() -> None:
    tried = " ".join(str(parse(text, now=NOW)) + " " + text for text in PLANS)

    for qualifier in QUALIFIERS:
        name = qualifier.replace("<path>", "user.id")
        if name not in ("created_before",):
            assert f"{name}:" in tried, name


def test_what_no_index_serves_is_searched_among_the_newest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ids = sorted(uuid7() for _ in range(5))
    jobs = [make_job("completed", id=job_id, queue="mail") for job_id in ids]
    monkeypatch.setattr(module, "NEWEST", 3)

    assert found("queue:mail") == {job.pk for job in jobs[1:]}
    assert found("state:completed") == {job.pk for job in jobs}
    assert parse("queue:mail").is_windowed
    assert not parse("queue:mail state:failed").is_windowed


def test_a_hostile_filter_is_a_value_and_nothing_else() -> None:
    job = make_job(error_class="x' OR 1=1 --")
    values: Any = ["x' OR 1=1 --", "%s", "{}", "') --"]

    assert found('error:"x\' OR 1=1 --"') == {job.pk}
    for value in values[1:]:
        assert found(f'error:"{value}"') == set()
        assert found(f'args.x:"{value}"') == set()
        assert found(f'task:"{value}*"') == set()
