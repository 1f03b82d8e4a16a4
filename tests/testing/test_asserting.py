"""Assertions about what was enqueued, and what they say when they fail."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from unittest import mock

import pytest
from django.contrib.auth.models import User

from relay import enqueue, task
from relay.exceptions import EncodeError
from relay.models import Job
from relay.testing import (
    approx,
    assert_enqueued,
    assert_idempotent,
    assert_roundtrips,
    drain,
    enqueued,
    refute_enqueued,
)
from tests.testing import tasks


@pytest.mark.django_db
class TestEnqueued:
    def test_it_finds_by_each_thing_asked(self) -> None:
        one = tasks.send.using(priority=7).enqueue("her", copies=2, colour="red")
        tasks.send.enqueue("him")
        tasks.note.enqueue(1)

        for found in (
            enqueued(tasks.send, args={"to": "her"}),
            enqueued("testing.send", args={"copies": 2}),
            enqueued(args={"colour": "red"}),
            enqueued(tasks.send, args=["her"]),
            enqueued(priority=7, queue="mail", state="queued"),
            enqueued(args={"to": mock.ANY}, priority=7),
        ):
            assert [job.id for job in found] == [one.id]
        assert len(enqueued()) == 3
        assert enqueued(tasks.send, args={"to": "her", "copies": 1}) == []

    def test_a_default_is_an_argument_too(self) -> None:
        tasks.send.enqueue("her")

        assert_enqueued(tasks.send, args={"copies": 1})

    def test_arguments_are_compared_as_the_handler_would_see_them(self) -> None:
        moment = datetime(2026, 3, 29, 2, 30, tzinfo=UTC)
        tasks.note.enqueue({"at": moment})

        assert_enqueued(tasks.note, args={"value": {"at": moment}})

    def test_a_task_that_is_not_registered_is_found_by_keywords(self) -> None:
        enqueue("testing.elsewhere", 1, kwargs={"id": 3})

        assert_enqueued("testing.elsewhere", args={"id": 3})
        assert_enqueued("testing.elsewhere", args=[1])

    def test_a_job_counts_whatever_became_of_it(self) -> None:
        tasks.note.enqueue(1)
        drain()

        assert_enqueued(tasks.note)
        refute_enqueued(tasks.note, state="queued")

    def test_a_due_time_may_be_near_enough(self) -> None:
        tasks.note.using(run_in=timedelta(hours=1)).enqueue(1)

        assert_enqueued(run_at=approx(timedelta(hours=1)))
        assert_enqueued(run_at=approx(datetime.now(UTC) + timedelta(hours=1)))
        refute_enqueued(run_at=approx(timedelta(hours=2)))
        refute_enqueued(run_at=approx(timedelta(0), within=timedelta(minutes=59)))

    def test_a_count_is_exact_and_none_means_some(self) -> None:
        tasks.note.enqueue(1)
        tasks.note.enqueue(2)

        assert len(assert_enqueued(tasks.note)) == 2
        assert_enqueued(tasks.note, count=2)
        with pytest.raises(AssertionError, match=r"wanted 1 of a job .* found 2"):
            assert_enqueued(tasks.note, count=1)

    def test_a_failure_shows_the_nearest_jobs_and_what_differs(self) -> None:
        tasks.note.enqueue(1)
        near = tasks.send.enqueue("him")
        tasks.send.using(queue="post", priority=3).enqueue("them")

        with pytest.raises(AssertionError) as caught:
            assert_enqueued(tasks.send, args={"to": "her"}, queue="mail")

        lines = str(caught.value).splitlines()
        assert lines[0] == (
            "wanted at least 1 of a job with task='testing.send', "
            "args={'to': 'her'}, queue='mail'; found none."
        )
        assert lines[1] == "The nearest of 3:"
        assert lines[2].startswith(f"  testing.send {near.id} queued in mail")
        assert lines[3] == "    args['to']: wanted 'her', is 'him'"
        assert "    queue: wanted 'mail', is 'post'" in lines
        assert "    task: wanted 'testing.send', is 'testing.note'" in lines

    def test_a_failure_says_when_nothing_was_enqueued(self) -> None:
        with pytest.raises(AssertionError, match="No job was enqueued at all"):
            assert_enqueued(tasks.note)

    def test_a_failure_names_an_argument_that_is_not_there(self) -> None:
        tasks.send.enqueue("her")

        with pytest.raises(AssertionError, match=r"'too'.: wanted 1, is not there"):
            assert_enqueued(tasks.send, args={"too": 1})

    def test_arguments_that_cannot_be_read_differ(self) -> None:
        user = User.objects.create(username="gone")
        tasks.note.enqueue(user)
        user.delete()

        with pytest.raises(AssertionError, match=r"args: cannot be read: .* no longer"):
            assert_enqueued(tasks.note, args={"value": 1})

    def test_a_refutation_shows_what_it_found(self) -> None:
        job = tasks.send.enqueue("her")

        refute_enqueued(tasks.send, args={"to": "him"})
        with pytest.raises(AssertionError, match=f"found 1:\n  testing.send {job.id}"):
            refute_enqueued(tasks.send)

    def test_a_text_is_no_arguments(self) -> None:
        with pytest.raises(TypeError, match="give a dict by parameter"):
            enqueued(args="her")

    def test_a_row_comes_back(self) -> None:
        job = tasks.note.enqueue(1)

        [found] = assert_enqueued(tasks.note)

        assert isinstance(found, Job)
        assert found.id == job.id


@pytest.mark.django_db
class TestIdempotence:
    def test_a_task_that_can_run_twice_passes(self) -> None:
        assert_idempotent(tasks.add_user, "her", True, probe=User.objects.count)

    def test_a_task_that_cannot_fails_with_what_the_probe_said(self) -> None:
        with pytest.raises(AssertionError, match=r"said 1, after the second 2"):
            assert_idempotent(tasks.add_user, "her", False, probe=User.objects.count)

    def test_a_task_that_raises_fails(self) -> None:
        with pytest.raises(AssertionError, match="raised in run 1 of 2: ValueError"):
            assert_idempotent(tasks.broken, probe=User.objects.count)


class TestRoundTrips:
    def test_what_arrives_as_it_left_passes(self) -> None:
        assert_roundtrips(
            tasks.note, {"when": datetime.now(UTC), "who": {"a", "b"}, "n": [1.5]}
        )
        assert_roundtrips(tasks.send, "her", kwargs={"copies": 2})

    @pytest.mark.parametrize(("value", "shown"), [((1, 2), "(1, 2)"), (True, None)])
    def test_what_arrives_as_another_fails(
        self, value: object, shown: str | None
    ) -> None:
        if shown is None:
            assert_roundtrips(tasks.note, value)
        else:
            with pytest.raises(AssertionError, match=r"args\[0\].* arrives as \[1, 2"):
                assert_roundtrips(tasks.note, value)

    def test_what_cannot_leave_is_refused(self) -> None:
        with pytest.raises(EncodeError):
            assert_roundtrips(tasks.note, object())


@task(name="testing.named")
def named(first: int, *rest: int, **others: int) -> None: ...


@pytest.mark.django_db
def test_arguments_are_named_as_in_the_signature() -> None:
    named.enqueue(1, 2, 3, four=4)

    assert_enqueued(named, args={"first": 1, "rest": (2, 3), "four": 4})
