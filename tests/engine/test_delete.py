"""Deleting jobs: what goes with them, what is left, and what it waits for."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import pytest
from django.db import connection, transaction

from relay.engine.connection import EngineConnection
from relay.engine.delete import delete_many
from relay.ids import uuid7
from tests.engine.rows import (
    add_jobs,
    add_worker,
    hold,
    other_session,
    states,
    wait_until_blocked,
)

pytestmark = pytest.mark.django_db(transaction=True, available_apps=["relay"])


def test_what_runs_is_left_and_what_is_gone_is_said(duty: EngineConnection) -> None:
    [running] = hold(duty, add_worker(duty))
    [ended] = add_jobs(duty, state="failed")
    unknown = uuid7()

    report = delete_many([running, ended, unknown], using="default")

    assert report.done == (ended,)
    assert {(skip.job_id, skip.state) for skip in report.skipped} == {
        (running, "running"),
        (unknown, None),
    }
    assert states(duty) == {"running": 1}


def test_a_handlers_open_transaction_with_a_step_is_not_waited_for(
    duty: EngineConnection,
) -> None:
    [running] = hold(duty, add_worker(duty))
    [ended] = add_jobs(duty, state="failed")

    with other_session(autocommit=False) as handler:
        # As relay.steps.RECORD does.
        handler.execute("SELECT FROM relay_job WHERE id = %s FOR KEY SHARE", (running,))
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute("SET LOCAL lock_timeout = '20s'")
            report = delete_many([running, ended], using="default")

    assert report.done == (ended,)
    assert [skip.state for skip in report.skipped] == ["running"]


def test_what_is_written_of_a_job_while_its_lock_is_waited_for_goes_too(
    duty: EngineConnection,
    in_thread: Callable[[Callable[[], Any]], Future[Any]],
) -> None:
    [job] = add_jobs(duty)

    def delete() -> Any:
        try:
            return delete_many([job], using="default")
        finally:
            connection.close()

    with other_session(autocommit=False) as other:
        other.execute("UPDATE relay_job SET state = 'cancelled' WHERE id = %s", (job,))
        other.execute(
            "INSERT INTO relay_history (job_id, at, event, attempt) "
            "VALUES (%s, now(), 'cancel', 0)",
            (job,),
        )
        answer = in_thread(delete)
        wait_until_blocked(duty)
        other.commit()
        report = answer.result(timeout=60)

    assert report.done == (job,)
    assert duty.execute("SELECT count(*) FROM relay_history").fetchone() == (0,)
