"""Acts over all jobs that match: counted, run in chunks, broken off, refused."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest
from django.db import connection
from django.db.models import BooleanField, Func

from relay import operations, task
from relay.conf import OWN_QUEUE
from relay.engine.acts import ActReport, Why
from relay.exceptions import ArgumentError, Conflict, DecodeError, NotAllowed, NotFound
from relay.failure import Failure
from relay.ids import uuid7
from relay.models import Audit, BulkOperation, History, Job, Queue
from relay.operations import Actor, FilterError, bulk, bulk_jobs, parse
from relay.tasks import get_task, known_queues
from relay.testing import drain
from tests.operations.factory import actor, make_job

pytestmark = pytest.mark.django_db

LATER = datetime(2999, 1, 1, tzinfo=UTC)
ROOT = Actor(name="root", source="cli", reason="why")


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulk, "CHUNK", 2)
    monkeypatch.setattr(bulk, "PAGE", 4)


def run(made: BulkOperation) -> BulkOperation:
    bulk.run_bulk(str(made.pk))
    made.refresh_from_db()
    return made


def steps(made: BulkOperation, count: int) -> None:
    """Take some steps, as a worker that is then gone."""
    one = bulk._Run(made.pk, "default")
    for _ in range(count):
        one.step()


@pytest.mark.parametrize(
    ("action", "before", "after"),
    [
        ("cancel", "queued", "cancelled"),
        ("cancel", "scheduled", "cancelled"),
        ("retry", "failed", "queued"),
        ("retry", "cancelled", "queued"),
        ("run_now", "retrying", "queued"),
        ("delete", "completed", None),
        ("delete", "queued", None),
    ],
)
def test_an_action_reaches_all_that_match_and_no_other(
    action: str, before: str, after: str | None
) -> None:
    jobs = [make_job(before, queue="mail", run_at=LATER) for _ in range(9)]
    other = make_job(before, queue="web", run_at=LATER)

    made = run(operations.start_bulk(ROOT, action, f"queue:mail state:{before}"))

    assert (made.state, made.matched, made.done) == ("completed", 9, 9)
    assert (made.skipped, made.failed, made.error) == ({}, 0, None)
    assert made.started_at is not None
    assert made.finished_at is not None
    found = dict(Job.objects.values_list("pk", "state"))
    assert {found.get(job.pk) for job in jobs} == {after}
    assert found[other.pk] == before
    for who, detail in History.objects.values_list("actor", "detail"):
        assert who == "root"
        assert detail == {"source": "cli", "reason": "why"}


def test_all_states_that_are_usual_are_meant_unless_one_is_named() -> None:
    for state in ("queued", "scheduled", "retrying", "running", "failed"):
        make_job(state, queue="mail", run_at=LATER)

    made = run(operations.start_bulk(ROOT, "cancel", "queue:mail"))

    assert (made.matched, made.done, made.asked) == (4, 3, 1)
    assert Job.objects.filter(state="failed").count() == 1


def test_an_operation_is_stored_with_who_and_what_and_on_record() -> None:
    make_job("failed")

    made = operations.start_bulk(ROOT, "retry", "state:failed age:<1h", expected=1)

    assert (made.state, made.actor, made.source, made.reason) == (
        *("queued", "root"),
        *("cli", "why"),
    )
    assert made.filter.startswith("state:failed created_after:20")
    job = Job.objects.get(pk=made.job_id)
    assert (job.task, job.queue) == ("relay.bulk", OWN_QUEUE)
    row = Audit.objects.get()
    assert (row.operation, row.target) == ("start_bulk", str(made.pk))


def test_who_goes_on_after_a_crash_does_no_job_twice_and_leaves_none_out() -> None:
    jobs = [make_job(state) for state in ("failed", "completed") for _ in range(7)]
    made = operations.start_bulk(ROOT, "replay", "state:failed,completed")

    steps(made, 2)
    steps(made, 3)
    run(made)

    assert (made.state, made.matched, made.done) == ("completed", 14, 14)
    replays = Job.objects.exclude(replay_of=None).values_list("replay_of", flat=True)
    assert sorted(replays) == sorted(job.pk for job in jobs)


def test_jobs_that_ended_at_one_instant_are_all_replayed() -> None:
    at = datetime(2026, 1, 1, tzinfo=UTC)
    for number in range(9):
        make_job("completed", finished_at=at + timedelta(seconds=number // 5))

    made = run(operations.start_bulk(ROOT, "replay", "state:completed"))

    assert made.done == 9


def test_a_cancelled_operation_goes_no_further() -> None:
    for _ in range(9):
        make_job("failed")
    made = operations.start_bulk(ROOT, "retry", "state:failed")
    steps(made, 2)

    operations.cancel_bulk(ROOT, made.pk)
    run(made)

    assert (made.state, made.done) == ("cancelled", 4)
    assert Job.objects.filter(state="failed").count() == 5
    with pytest.raises(Conflict, match="cancelled"):
        operations.cancel_bulk(ROOT, made.pk)


def test_an_operation_that_has_not_begun_is_cancelled_at_once() -> None:
    make_job("failed")
    made = operations.start_bulk(ROOT, "retry", "state:failed")

    operations.cancel_bulk(ROOT, made.pk)

    made.refresh_from_db()
    assert made.state == "cancelled"
    assert run(made).done == 0
    with pytest.raises(NotFound):
        operations.cancel_bulk(ROOT, uuid7())


@pytest.mark.parametrize("fate", ["deleted", "cancelled"])
def test_an_operation_whose_job_is_over_is_cancelled_at_once(fate: str) -> None:
    for _ in range(9):
        make_job("failed")
    made = operations.start_bulk(ROOT, "retry", "state:failed")
    steps(made, 1)
    if fate == "deleted":
        operations.delete_job(ROOT, made.job_id)
    else:
        operations.cancel_job(ROOT, made.job_id)

    operations.cancel_bulk(ROOT, made.pk)

    made.refresh_from_db()
    assert made.state == "cancelled"
    assert made.finished_at is not None


def test_more_than_was_expected_is_refused_or_ends_the_operation() -> None:
    for _ in range(11):
        make_job("failed")

    with pytest.raises(Conflict, match="11 jobs match and 9 were expected"):
        operations.start_bulk(ROOT, "retry", "state:failed", expected=9)
    assert not BulkOperation.objects.exists()
    made = operations.start_bulk(ROOT, "retry", "state:failed", expected=10)
    for _ in range(4):
        make_job("failed")
    run(made)

    assert (made.state, made.matched, made.done) == ("failed", 10, 10)
    assert "were expected" in (made.error or "")
    assert Job.objects.filter(state="failed").count() == 5


@pytest.mark.parametrize("state", ["queued", "failed", "completed"])
def test_without_a_number_what_is_enqueued_later_is_left(state: str) -> None:
    for _ in range(3):
        make_job(state)

    made = operations.start_bulk(ROOT, "delete", f"state:{state}")
    later = make_job(state)
    run(made)

    assert (made.state, made.done) == ("completed", 3)
    assert [job.pk for job in Job.objects.filter(task="tests.noop")] == [later.pk]


def test_what_is_skipped_is_counted_by_its_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    jobs = [make_job("failed") for _ in range(5)]
    make_job("queued", replay_of=jobs[0].pk)

    made = run(operations.start_bulk(ROOT, "replay", "state:failed"))

    assert (made.matched, made.done) == (5, 4)
    assert made.skipped == {"has a replay that has not ended": 1}


def test_one_that_cannot_be_read_fails_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = [make_job("failed") for _ in range(3)]

    def act(ids: Sequence[UUID], actor: str, why: Why, using: str) -> ActReport:
        if jobs[1].pk in ids:
            raise DecodeError("altered")
        return ActReport(tuple(ids), ())

    monkeypatch.setattr(bulk, "VERBS", {"replay": act})

    made = run(operations.start_bulk(ROOT, "replay", "state:failed"))

    assert (made.state, made.done, made.failed) == ("completed", 2, 1)


def test_jobs_that_are_tried_alone_are_in_the_order_in_which_everybody_locks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # They are found by their time, the other way round.
    jobs = [
        make_job("scheduled", run_at=LATER - timedelta(days=day)) for day in range(2)
    ]
    tried: list[UUID] = []

    def act(ids: Sequence[UUID], actor: str, why: Why, using: str) -> ActReport:
        if len(ids) > 1:
            raise DecodeError("altered")
        tried.extend(ids)
        return ActReport(tuple(ids), ())

    monkeypatch.setattr(bulk, "VERBS", {"cancel": act})
    made = operations.start_bulk(ROOT, "cancel", "state:scheduled")

    steps(made, 1)

    assert tried == sorted(job.pk for job in jobs)


def test_an_operation_does_not_end_itself() -> None:
    make_job()

    made = operations.start_bulk(ROOT, "cancel", "state:queued")
    run(made)

    assert made.done == 1
    assert Job.objects.get(pk=made.job_id).state == "queued"


def test_an_operation_waits_behind_no_queues_jobs_and_for_none() -> None:
    operations.order_queue(ROOT, "default", "fifo")
    for _ in range(3):
        make_job()
    operations.pause_queue(ROOT, "default")

    made = operations.purge_queue(ROOT, "default")
    drain(OWN_QUEUE)

    made.refresh_from_db()
    assert (made.state, made.done) == ("completed", 3)


def test_nobody_else_names_the_queue_of_operations() -> None:
    made = operations.start_bulk(ROOT, "retry", "state:failed")
    assert made.job_id is not None
    refused: list[Callable[[], object]] = [
        lambda: operations.pause_queue(ROOT, OWN_QUEUE),
        lambda: operations.order_queue(ROOT, OWN_QUEUE, "fifo"),
        lambda: operations.weigh_queue(ROOT, OWN_QUEUE, 5),
        lambda: operations.purge_queue(ROOT, OWN_QUEUE),
        lambda: operations.enqueue_job(ROOT, "tests.noop", queue=OWN_QUEUE),
        lambda: operations.edit_job(ROOT, make_job().pk, queue=OWN_QUEUE),
        lambda: operations.edit_job(ROOT, made.job_id or uuid7(), queue="default"),
        lambda: task(queue=OWN_QUEUE),
    ]

    for call in refused:
        with pytest.raises((ArgumentError, NotFound)):
            call()

    assert not Queue.objects.filter(name=OWN_QUEUE).exists()
    assert OWN_QUEUE not in known_queues()
    assert {get_task(name).queue for name in bulk_jobs.OWN_TASKS} == {OWN_QUEUE}


def test_an_operation_whose_job_failed_for_good_says_so() -> None:
    made = operations.start_bulk(ROOT, "retry", "state:failed")

    bulk.note_failed(
        Failure(
            job_id=made.job_id or uuid7(),
            task="relay.bulk",
            queue="default",
            attempt=26,
            error_class="OperationalError",
            error_message="gone",
        )
    )

    made.refresh_from_db()
    assert (made.state, made.error) == ("failed", "OperationalError: gone")


def test_a_dry_run_counts_up_to_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(3):
        make_job("failed")
    make_job("queued")

    assert operations.count_bulk(ROOT, "retry", "age:<1h").count == 3
    monkeypatch.setattr(bulk, "COUNT_LIMIT", 2)
    capped = operations.count_bulk(ROOT, "retry", "age:<1h")
    assert (capped.count, capped.is_capped) == (2, True)


def test_a_count_that_takes_too_long_says_so_and_leaves_the_session_as_it_was(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    make_job("failed")
    slow = Func(template="pg_sleep(2) IS NOT NULL", output_field=BooleanField())
    rows = Job.objects.filter(slow)
    monkeypatch.setattr(bulk_jobs, "COUNT_SECONDS", 1)

    with monkeypatch.context() as patch:
        patch.setattr(bulk_jobs, "_rows", lambda *args: rows)
        with pytest.raises(FilterError, match="not counted within 1 s"):
            operations.count_bulk(ROOT, "retry", "state:failed")
    counted = operations.count_bulk(ROOT, "retry", "state:failed")

    assert counted.count == 1
    with connection.cursor() as cursor:
        cursor.execute("SHOW statement_timeout")
        assert cursor.fetchone() == ("0",)


def test_a_queue_is_purged_of_what_waits() -> None:
    for state in ("queued", "scheduled", "running", "failed"):
        make_job(state, queue="mail", run_at=LATER)
    make_job(queue="web")

    asker = actor("manage_queue")
    assert operations.count_purge(asker, "mail").count == 2
    with pytest.raises(Conflict, match="2 jobs match and 1 were expected"):
        operations.purge_queue(asker, "mail", expected=1)

    made = run(operations.purge_queue(asker, "mail", expected=2))

    assert made.done == 2
    left = Job.objects.exclude(task="relay.bulk").values_list("queue", "state")
    assert sorted(left) == [("mail", "failed"), ("mail", "running"), ("web", "queued")]
    assert Audit.objects.get().target == "mail"
    with pytest.raises(ArgumentError):
        operations.purge_queue(ROOT, "mail state:failed")
    with pytest.raises(ArgumentError):
        operations.count_purge(ROOT, "mail state:failed")
    with pytest.raises(NotAllowed):
        operations.count_purge(actor("bulk_job"), "mail")


@pytest.mark.parametrize(
    ("permissions", "filter", "missing"),
    [
        (("retry_job",), "state:failed", "bulk_job"),
        (("bulk_job",), "state:failed", "retry_job"),
        (("bulk_job", "retry_job"), "args.x:1", "view_payload"),
    ],
)
def test_an_operation_needs_bulk_the_actions_and_to_see_what_it_asks_of(
    permissions: tuple[str, ...], filter: str, missing: str
) -> None:
    asker = actor(*permissions)

    with pytest.raises(NotAllowed, match=missing):
        operations.start_bulk(asker, "retry", filter)
    with pytest.raises(NotAllowed, match=missing):
        operations.count_bulk(asker, "retry", filter)

    assert not BulkOperation.objects.exists()


@pytest.mark.parametrize(
    ("action", "filter", "says"),
    [
        ("explode", "state:failed", "give one of cancel"),
        ("retry", "", "all jobs"),
        ("retry", "state:queued", "failed, cancelled"),
        ("retry", "colour:red", "unknown"),
    ],
)
def test_what_makes_no_operation_is_refused(
    action: str, filter: str, says: str
) -> None:
    with pytest.raises(ArgumentError, match=says):
        operations.start_bulk(ROOT, action, filter)
    for expected in (-1, 2**31, 10**400):
        with pytest.raises(ArgumentError, match="whole number"):
            operations.start_bulk(ROOT, "retry", "state:failed", expected=expected)


INDEXES = {
    "scheduled": "relay_job_due_idx",
    "retrying": "relay_job_retrying_idx or relay_job_due_idx",
    "queued": "relay_job_ready_idx",
    "running": "relay_job_held_idx",
    "completed": "relay_job_final_idx",
    "failed": "relay_job_failed_idx",
    "cancelled": "relay_job_failed_idx",
}


@pytest.mark.usefixtures("counted_jobs")
@pytest.mark.parametrize("state", INDEXES)
@pytest.mark.parametrize("text", ["queue:mail", "task:a.*", "tag:vip", "args.x:1"])
def test_each_state_is_gone_through_along_an_index(state: str, text: str) -> None:
    rows = bulk_jobs._rows(parse(text), state, "default").values_list("id")

    plan = rows[: bulk.PAGE].explain()

    assert "Seq Scan" not in plan
    allowed = [*INDEXES[state].split(" or "), "relay_job_tags_idx"]
    assert any(index in plan for index in allowed), plan
