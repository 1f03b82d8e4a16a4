"""drain(), run_job() and perform(), inside a plain TestCase and outside of one."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import IntegrityError, connection, transaction
from django.test import TestCase

from relay import Retry, StateConflict, current_job, enqueue, enqueue_many
from relay.engine import pause
from relay.exceptions import ArgumentError, EncodeError, JobNotFound, RelayError
from relay.ids import uuid7
from relay.models import Attempt, Job, JobState, Worker
from relay.testing import drain, mode, perform, run_job
from tests.testing import tasks


def state(job: Any) -> str:
    return Job.objects.get(pk=job.id).state


class TestDrainInAPlainTestCase(TestCase):
    user: User

    @classmethod
    def setUpTestData(cls) -> None:
        cls.user = User.objects.create(username="of the class")
        # A drain in the class's transaction, which has no test's around it.
        tasks.note.enqueue("class")
        drain()

    def test_a_job_of_an_open_transaction_runs_and_is_settled(self) -> None:
        job = tasks.note.enqueue("one")

        drained = drain()

        assert tasks.ran == ["one"]
        assert (drained.ran, drained.completed, drained.jobs) == (1, 1, [job.id])
        assert job.result() == "one"
        assert Job.objects.filter(state="completed").count() == 2

    def test_what_the_handler_writes_is_there_and_is_rolled_back_later(self) -> None:
        tasks.anote.enqueue("by a coroutine")

        drained = drain()

        assert drained.errors == []
        assert User.objects.count() == 2

    def test_a_transactional_job_completes_with_what_it_wrote(self) -> None:
        job = tasks.transact.enqueue("both")

        drained = drain()

        assert (drained.completed, drained.errors) == (1, [])
        assert job.result() == "both"
        assert User.objects.filter(username="both").exists()
        assert tasks.ran == ["both"]

    def test_a_transactional_job_that_fails_leaves_nothing(self) -> None:
        job = tasks.transact.enqueue("neither", fails=True)

        [error] = drain().errors

        assert str(error) == "after the write"
        assert state(job) == "retrying"
        assert not User.objects.filter(username="neither").exists()
        assert tasks.ran == []

    def test_a_transactional_job_runs_inline(self) -> None:
        with mode("inline"):
            job = tasks.transact.enqueue("inline")

        assert job.result() == "inline"

    def test_a_transactional_task_is_performed_without_a_row(self) -> None:
        outcome = perform(tasks.transact, "alone")
        failed = perform(tasks.transact, "failed", kwargs={"fails": True})

        assert (outcome.state, outcome.result) == (JobState.COMPLETED, "alone")
        assert failed.state == JobState.RETRYING
        assert set(User.objects.values_list("username", flat=True)) == {
            "of the class",
            "alone",
        }
        assert not Job.objects.filter(task="testing.transact").exists()

    def test_nothing_of_a_coroutines_context_stays(self) -> None:
        perform(tasks.anote, "by a coroutine")

        with pytest.raises(RelayError, match="no job is running"):
            current_job()

    def test_the_transaction_is_usable_after_a_handler_has_broken_it(self) -> None:
        job = tasks.spoil.enqueue("twice")

        [error] = drain().errors

        assert isinstance(error, IntegrityError)
        assert User.objects.count() == 1
        assert state(job) == "retrying"


@pytest.mark.django_db(transaction=True)
def test_a_transactional_job_commits_as_in_a_worker_outside_of_a_transaction() -> None:
    job, lost = tasks.transact.enqueue("one"), tasks.transact.enqueue("two", fails=True)

    drained = drain()

    assert (drained.completed, drained.retrying) == (1, 1)
    assert (state(job), state(lost)) == ("completed", "retrying")
    assert list(User.objects.values_list("username", flat=True)) == ["one"]


@pytest.mark.django_db
class TestDrain:
    def test_it_runs_what_jobs_enqueue_until_none_is_left(
        self, ran: list[object]
    ) -> None:
        tasks.chain.enqueue(3)

        assert drain().completed == 4
        assert ran == [3, 2, 1, 0]

    def test_it_runs_by_priority_and_then_in_order(self, ran: list[object]) -> None:
        enqueue_many([tasks.note.job(1), tasks.first.job(2), tasks.note.job(3)])

        drain()

        assert ran == [2, 1, 3]

    def test_it_runs_the_named_queue_alone(self, ran: list[object]) -> None:
        tasks.note.enqueue(1)
        mail = tasks.send.enqueue("her")

        assert drain("mail").jobs == [mail.id]
        assert drain(["mail", "default"]).ran == 1

    def test_it_leaves_paused_queues_alone(self) -> None:
        mail = tasks.send.enqueue("her")
        pause.pause("mail", until=None, actor=None, using="default", known=["mail"])

        assert drain().ran == 0
        with pytest.raises(StateConflict, match="its queue 'mail' is paused"):
            run_job(mail)

    def test_it_leaves_what_is_due_later_unless_told(self, ran: list[object]) -> None:
        tasks.note.using(run_in=timedelta(hours=2)).enqueue("second")
        tasks.chain.using(run_in=timedelta(hours=1)).enqueue(1)
        tasks.note.using(run_in=timedelta(days=1)).enqueue("third")

        assert drain().ran == 0
        assert drain(with_scheduled=True).completed == 4
        assert ran == [1, 0, "second", "third"]

    def test_it_runs_retries_to_their_end_if_told(self, ran: list[object]) -> None:
        job = tasks.broken.enqueue()

        once = drain()
        rest = drain(with_retries=True)

        assert (once.ran, once.retrying, once.failed) == (1, 1, 0)
        assert (rest.ran, rest.retrying, rest.failed) == (2, 1, 1)
        assert [str(error) for error in rest.errors] == ["broken", "broken"]
        assert ran == [1, 2, 3]
        assert Attempt.objects.filter(job_id=job.id).count() == 3

    def test_a_job_of_no_known_task_is_handed_back_once(self) -> None:
        job = enqueue("testing.elsewhere")

        assert drain(with_retries=True).retrying == 1
        assert Job.objects.get(pk=job.id).error_class == "UnknownTask"

    def test_a_limit_leaves_the_rest(self) -> None:
        enqueue_many([tasks.note.job(number) for number in range(5)])

        assert drain(limit=2).ran == 2
        assert drain(limit=10).ran == 3

    def test_without_a_limit_it_tells_what_never_ends(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("relay.testing.running.MOST_JOBS", 5)
        tasks.again.enqueue()

        with pytest.raises(RelayError, match=r"drain\(limit="):
            drain(with_scheduled=True)

    def test_it_raises_a_handler_s_error_if_told(self) -> None:
        job = tasks.broken.enqueue()

        with pytest.raises(ValueError, match="broken"):
            drain(raises=True)

        assert state(job) == "retrying"

    def test_what_a_failing_handler_wrote_stays_as_in_a_worker(self) -> None:
        tasks.write_and_fail.enqueue("written")

        drain()

        assert User.objects.get().username == "written"

    def test_a_handler_may_ask_for_a_durable_transaction_of_its_own(
        self, ran: list[object]
    ) -> None:
        tasks.careful.enqueue("her")

        assert drain().completed == 1
        assert ran == ["refused"]

    def test_callbacks_of_the_handler_s_commit_run_when_it_has_ended(
        self, ran: list[object]
    ) -> None:
        transaction.on_commit(lambda: ran.append("of the test"))
        tasks.later.enqueue("after")

        assert drain().completed == 2
        assert ran == [True, "after"]

    def test_it_leaves_no_worker_running(self) -> None:
        tasks.note.enqueue(1)

        drain()

        assert set(Worker.objects.values_list("state", flat=True)) == {"stopped"}

    def test_an_error_of_the_database_takes_back_only_the_helper_s_own(self) -> None:
        tasks.note.enqueue(1)

        with pytest.raises(JobNotFound):
            run_job(uuid7())

        assert drain().completed == 1


@pytest.mark.django_db(transaction=True)
def test_outside_of_a_transaction_each_step_commits_as_in_a_worker() -> None:
    job = tasks.anote.enqueue("committed")
    tasks.broken.enqueue()

    drained = drain()

    assert not connection.in_atomic_block
    assert (drained.completed, drained.retrying) == (1, 1)
    assert job.result() == 1


@pytest.mark.django_db(transaction=True)
def test_it_joins_an_atomic_block_that_has_asked_nothing_yet() -> None:
    job = tasks.note.enqueue(1)

    with transaction.atomic():
        drain()
        transaction.set_rollback(True)

    assert state(job) == "queued"


@pytest.mark.django_db
class TestRunJob:
    def test_it_runs_this_job_before_those_that_are_ready_earlier(
        self, ran: list[object]
    ) -> None:
        tasks.note.enqueue("earlier")
        job = tasks.note.enqueue("this")

        outcome = run_job(job)

        assert ran == ["this"]
        assert outcome.state == JobState.COMPLETED
        assert outcome.result == "this"

    def test_it_runs_a_job_that_is_due_later(self, ran: list[object]) -> None:
        job = tasks.note.using(run_in=timedelta(days=1)).enqueue("this")

        assert run_job(job.id).state == "completed"

    def test_it_tells_the_error_the_delay_and_the_logs(self) -> None:
        job = tasks.broken.enqueue("bad")

        outcome = run_job(Job.objects.get(pk=job.id))

        assert outcome.state == JobState.RETRYING
        assert str(outcome.error) == "bad"
        assert outcome.delay is not None
        assert "about to break: bad" in outcome.logs
        assert run_job(job).state == JobState.RETRYING
        assert run_job(job).state == JobState.FAILED

    def test_it_refuses_a_job_that_has_ended(self) -> None:
        job = tasks.note.enqueue(1)
        run_job(job)

        with pytest.raises(StateConflict, match=f"cannot run job {job.id}: it is comp"):
            run_job(job)

    def test_it_says_what_is_no_job(self) -> None:
        with pytest.raises(TypeError, match="'mail' is no job: give what enqueue"):
            run_job("mail")


class TestPerform:
    def test_it_makes_no_row(self, db: None) -> None:
        outcome = perform(tasks.note, {"a": 1})

        assert (outcome.state, outcome.result) == (JobState.COMPLETED, {"a": 1})
        assert not Job.objects.exists()

    def test_it_needs_no_database(self) -> None:
        assert perform(tasks.note, 1).result == 1
        assert perform("testing.note", kwargs={"value": 2}).result == 2

    def test_arguments_and_result_go_through_json(self, ran: list[object]) -> None:
        outcome = perform(tasks.note, (1, 2))

        assert ran == [[1, 2]]
        assert outcome.result == [1, 2]
        with pytest.raises(EncodeError, match=r"args\[0\]"):
            perform(tasks.note, float("nan"))
        with pytest.raises(ArgumentError, match="missing"):
            perform(tasks.note)

    def test_an_attempt_sees_which_one_it_is(self) -> None:
        first, second = perform(tasks.patient), perform(tasks.patient, attempt=2)

        assert first.state == JobState.RETRYING
        assert isinstance(first.error, Retry)
        assert first.delay == timedelta(minutes=5)
        assert (second.state, second.result) == (JobState.COMPLETED, "done")

    @pytest.mark.parametrize(
        ("given", "wanted"),
        [
            ({"attempt": 1}, "retrying"),
            ({"attempt": 3}, "failed"),
            ({"attempt": 3, "failures": 0}, "retrying"),
            ({"max_retries": 0}, "failed"),
        ],
    )
    def test_the_budget_decides_what_becomes_of_a_failure(
        self, given: dict[str, int], wanted: str
    ) -> None:
        assert perform(tasks.broken, **given).state == wanted

    def test_giving_up_fails_at_once(self) -> None:
        assert perform(tasks.hopeless).state == JobState.FAILED

    def test_a_coroutine_runs_too(self, db: None) -> None:
        assert perform(tasks.anote, "her").result == 1
