"""What an enqueue does in each mode."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.test import override_settings

from relay import enqueue_many
from relay.conf import get_settings
from relay.engine import enqueue, pause, wakeup
from relay.exceptions import ArgumentError, RelayError, SettingsError
from relay.models import Job
from relay.testing import mode
from tests.testing import tasks

pytestmark = pytest.mark.django_db


def states() -> list[str]:
    return list(Job.objects.order_by("ready_seq").values_list("state", flat=True))


def test_inline_makes_the_row_and_runs_the_job_at_once(ran: list[object]) -> None:
    with mode("inline"):
        job = tasks.note.enqueue((1, 2))

        assert ran == [[1, 2]]  # as JSON has it
        assert job.state == "completed"


def test_inline_raises_what_the_handler_raises_and_settles_the_job() -> None:
    with mode("inline"), pytest.raises(ValueError, match="broken"):
        tasks.broken.enqueue()

    assert states() == ["retrying"]


def test_inline_leaves_a_job_that_asks_to_be_run_again() -> None:
    with mode("inline"):
        job = tasks.patient.enqueue()

    assert job.state == "retrying"


def test_inline_leaves_what_is_due_later_and_what_is_paused(ran: list[object]) -> None:
    with mode("inline"):
        tasks.note.using(run_in=timedelta(hours=1)).enqueue(1)
        tasks.send.enqueue("makes the queue")
        pause.pause("mail", until=None, actor=None, using="default", known=["mail"])
        tasks.send.enqueue("her")

    assert ran == ["makes the queue"]
    assert states() == ["scheduled", "completed", "queued"]


def test_inline_runs_many_in_order_and_what_they_enqueue(ran: list[object]) -> None:
    with mode("inline"):
        enqueue_many([tasks.chain.job(1), tasks.note.job("x")])

    assert ran == [1, 0, "x"]


@pytest.mark.parametrize("options", [{}, {"priority": 3}, {"tags": ["a"]}], ids=str)
def test_inline_runs_each_job_once_however_it_is_enqueued(
    options: dict[str, Any], ran: list[object]
) -> None:
    bound = tasks.note.using(**options)

    with mode("inline"):
        one = bound.enqueue(1)
        many = enqueue_many(bound.job(number) for number in (2, 3))
        mixed = enqueue_many([tasks.note.job(4), bound.job(5)])

    assert ran == [1, 2, 3, 4, 5]
    assert [job.state for job in (one, *many, *mixed)] == ["completed"] * 5
    assert [job.result() for job in many] == [2, 3]


@pytest.mark.parametrize("kind", ["manual", "off"])
def test_otherwise_plain_jobs_are_left_in_their_order(
    kind: Any, ran: list[object]
) -> None:
    with mode(kind):
        one = tasks.note.enqueue(1)
        many = enqueue_many(tasks.note.job(number) for number in (2, 3))

    stored = Job.objects.order_by("ready_seq").values_list("id", "state")
    assert list(stored) == [(job.id, "queued") for job in (one, *many)]
    assert ran == []


def test_inline_checks_arguments_as_ever() -> None:
    with mode("inline"), pytest.raises(ArgumentError):
        tasks.note.enqueue()  # type: ignore[call-arg] # on purpose


def test_inline_names_the_remedy_where_jobs_go_on_for_ever() -> None:
    with mode("inline"), pytest.raises(RelayError, match=r'mode\("manual"\)'):
        tasks.chain.enqueue(1_000)


def test_inline_works_for_async_code(ran: list[object]) -> None:
    async def view() -> Any:
        await tasks.anote.aenqueue("her")
        return await tasks.note.aenqueue(2)

    with mode("inline"):
        job = async_to_sync(view)()

    assert ran == ["her", 2]
    assert job.state == "completed"


def test_manual_leaves_the_job_and_sends_no_wake_up(
    monkeypatch: pytest.MonkeyPatch, ran: list[object]
) -> None:
    sent: list[object] = []
    monkeypatch.setattr(wakeup, "announce", lambda *args: sent.append(args))

    with mode("manual"):
        tasks.note.enqueue(1)
        with mode("off"):
            tasks.note.enqueue(2)
        enqueue_many([tasks.note.job(3)])

    assert ran == []
    assert states() == ["queued"] * 3
    assert len(sent) == 1


def test_modes_nest_and_leave_nothing_behind(ran: list[object]) -> None:
    def ways() -> list[object]:
        names = ("insert", "insert_new", "insert_many", "insert_ready")
        return [wakeup.announce, *(getattr(enqueue, name) for name in names)]

    before = ways()

    with mode("inline"):
        with mode("manual"):
            tasks.note.enqueue("manual")
        tasks.note.enqueue("inline")
    tasks.note.enqueue("off")

    assert ran == ["inline"]
    assert ways() == before


def test_a_mode_of_the_settings_holds_where_no_other_does(ran: list[object]) -> None:
    before = wakeup.announce

    with override_settings(RELAY={"TEST_MODE": "inline"}):
        tasks.note.enqueue("set")
        with mode("manual"), override_settings(RELAY={}):
            tasks.note.enqueue("manual")
        tasks.note.enqueue("set again")
        with override_settings(RELAY={"TEST_MODE": "manual"}):
            tasks.note.enqueue("waits")
    tasks.note.enqueue("off")

    assert ran == ["set", "set again"]
    assert wakeup.announce is before


def test_a_mode_that_there_is_not_is_refused() -> None:
    with (
        override_settings(RELAY={"TEST_MODE": "eager"}),
        pytest.raises(SettingsError, match="'inline'"),
    ):
        get_settings()


@mode("inline")
def test_a_test_may_be_decorated(ran: list[object]) -> None:
    tasks.note.enqueue(1)

    assert ran == [1]


def test_a_coroutine_may_be_decorated(ran: list[object]) -> None:
    @mode("inline")
    async def view() -> None:
        await tasks.note.aenqueue(1)

    async_to_sync(view)()

    assert ran == [1]


def test_what_cannot_be_a_mode_names_the_remedy() -> None:
    with pytest.raises(ValueError, match="inline, manual, off"):
        mode("eager")  # type: ignore[arg-type] # on purpose
    with pytest.raises(TypeError, match="RelayTestMixin and its relay_mode"):
        mode("inline")(type("Tests", (), {}))
