"""One attempt, and what it ends in; and what a job leaves for the next."""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import random
import threading
import weakref
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import psycopg
import pytest
from asgiref.sync import sync_to_async
from django.contrib.auth import get_user_model
from django.db import (
    InterfaceError,
    OperationalError,
    connection,
    connections,
    transaction,
)
from django.utils import timezone, translation

from relay import (
    Backoff,
    Cancel,
    RelayError,
    Retry,
    SkipRetry,
    Snooze,
    current_job,
    task,
)
from relay.codec import encode_arguments
from relay.engine.claim import ClaimedJob
from relay.engine.finish import Completed, Outcome, Settled
from relay.ids import uuid7
from relay.worker.executor import Executor
from relay.worker.interruption import Interruptible
from relay.worker.verdict import verdict
from tests.waiting import until

WORKER: Final = uuid7()
PLAIN: Final = Backoff(base=timedelta(seconds=8), jitter=False)
VARIABLE: ContextVar[str] = ContextVar("VARIABLE", default="untouched")

# What run_() calls in place of the body of a task: tasks are registered only once.
body: Callable[..., Any] = lambda: None  # noqa: E731 - replaced by each test


@task(name="tests.executor.plain", backoff=PLAIN, max_retries=3)
def plain(*args: Any) -> Any:
    return body(*args)


@task(name="tests.executor.coroutine", backoff=PLAIN, max_retries=3)
async def coroutine(*args: Any) -> Any:
    found = body(*args)
    return await found if asyncio.iscoroutine(found) else found


@task(name="tests.executor.jittered", backoff=Backoff(base=timedelta(seconds=8)))
def jittered() -> None:
    raise ValueError


@task(
    name="tests.executor.choosy",
    backoff={
        ConnectionError: lambda failures, error: timedelta(seconds=failures),
        TimeoutError: lambda failures, error: None,
        OSError: lambda failures, error: 5 / 0,
    },
    give_up_on=(ValueError,),
    retry_until=timedelta(hours=1),
)
def choosy() -> None:
    body()


@task(name="tests.executor.kept", retention=timedelta(hours=1))
def kept() -> None:
    pass


def claimed(name: str, *args: Any, **values: Any) -> ClaimedJob:
    defaults: dict[str, Any] = {
        "id": uuid7(),
        "task": f"tests.executor.{name}",
        "queue": "default",
        "priority": 0,
        "ready_seq": 1,
        "attempt": 1,
        "args": {"args": list(args), "kwargs": {}},
        "failures": 0,
        "crashes": 0,
        "max_retries": 3,
    }
    return ClaimedJob(**{**defaults, **values})


def run(name: str, handler: Callable[..., Any], *args: Any, **values: Any) -> Outcome:
    global body
    body = handler
    job = claimed(name, *args, **values)
    executor = Executor(WORKER)
    if executor.is_async(job):
        return asyncio.run(executor.run_async(job))
    return executor.run(job)


def settled(outcome: Outcome) -> Settled:
    assert isinstance(outcome, Settled)
    return outcome


def raiser(error: BaseException) -> Callable[..., Any]:
    def handler(*_: Any) -> None:
        raise error

    return handler


kinds = pytest.mark.parametrize("kind", ["plain", "coroutine"])


@pytest.fixture(autouse=True)
def _no_session_of_others(request: pytest.FixtureRequest) -> None:
    """Close what an earlier test has left open: an attempt would look at it."""
    if not {"db", "transactional_db"} & set(request.fixturenames):
        connections.close_all()


# --- outcomes ------------------------------------------------------------------------


@kinds
def test_what_a_handler_returns_is_its_result(kind: str) -> None:
    outcome = run(kind, lambda a, b: {"sum": a + b}, 1, 2)

    assert isinstance(outcome, Completed)
    assert outcome.result == '{"sum":3}'
    assert outcome.keep_seconds == 86_400


def test_a_task_may_say_how_long_its_result_is_kept() -> None:
    outcome = Executor(WORKER).run(claimed("kept"))

    assert isinstance(outcome, Completed)
    assert outcome.keep_seconds == 3_600


@kinds
def test_an_error_is_charged_and_retried_after_the_backoff(kind: str) -> None:
    outcome = settled(run(kind, raiser(ValueError("bad")), failures=2))

    assert (outcome.verb, outcome.is_charged) == ("retry", True)
    assert outcome.delay_seconds == 32  # the third failure: 8 * 2**2
    assert (outcome.error_class, outcome.error_message) == ("ValueError", "bad")
    assert outcome.traceback is not None
    assert "raiser" in outcome.traceback or "handler" in outcome.traceback
    assert "worker/executor.py" not in outcome.traceback.partition("handler")[0]


def test_the_backoff_has_full_jitter(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = random.Random(1)
    monkeypatch.setattr(Backoff.delay, "__kwdefaults__", {"rng": drawn})

    delays = [
        settled(Executor(WORKER).run(claimed("jittered", failures=1))).delay_seconds
        for _ in range(200)
    ]

    assert all(0 <= delay <= 16 for delay in delays)
    assert min(delays) < 2
    assert max(delays) > 14


@kinds
def test_the_last_failure_is_final(kind: str) -> None:
    assert settled(run(kind, raiser(ValueError()), failures=2)).verb == "retry"
    assert settled(run(kind, raiser(ValueError()), failures=3)).verb == "fail"
    assert settled(run(kind, raiser(ValueError()), max_retries=0)).verb == "fail"


@kinds
def test_retry_waits_as_long_as_it_says_and_is_charged(kind: str) -> None:
    outcome = settled(run(kind, raiser(Retry(after=timedelta(seconds=90)))))

    assert (outcome.verb, outcome.delay_seconds) == ("retry", 90)
    assert outcome.is_charged


@kinds
def test_retry_without_a_delay_takes_the_backoff_and_ends_like_a_failure(
    kind: str,
) -> None:
    assert settled(run(kind, raiser(Retry()))).delay_seconds == 8
    assert settled(run(kind, raiser(Retry()), failures=3)).verb == "fail"


@kinds
def test_skip_retry_fails_at_once(kind: str) -> None:
    outcome = settled(run(kind, raiser(SkipRetry("no such user"))))

    assert (outcome.verb, outcome.is_charged) == ("fail", True)
    assert outcome.error_message == "no such user"


@kinds
@pytest.mark.parametrize(
    "error",
    [SystemExit(3), KeyboardInterrupt(), GeneratorExit(), asyncio.CancelledError()],
    ids=lambda error: type(error).__name__,
)
def test_no_error_of_a_handler_reaches_the_worker(
    kind: str, error: BaseException
) -> None:
    outcome = settled(run(kind, raiser(error)))

    assert (outcome.verb, outcome.is_charged) == ("retry", True)
    assert outcome.error_class == type(error).__name__


@kinds
def test_a_handler_may_put_its_job_off_uncharged(kind: str) -> None:
    error = Snooze(timedelta(minutes=5), "the file is not there")

    outcome = settled(run(kind, raiser(error), failures=3))

    assert (outcome.verb, outcome.is_charged) == ("snooze", False)
    assert (outcome.delay_seconds, outcome.most) == (300, 10_000)
    assert outcome.error_class == "Snooze"
    assert (outcome.error_message or "").startswith("the file is not there")


def test_a_snooze_into_the_past_is_due_at_once() -> None:
    assert Snooze(timedelta(seconds=-1)).after == timedelta(0)
    with pytest.raises(TypeError, match="give a timedelta"):
        Snooze(5)  # type: ignore[arg-type]  # what an untyped caller does


@kinds
def test_a_handler_may_cancel_its_own_job(kind: str) -> None:
    outcome = settled(run(kind, raiser(Cancel("not needed any more"))))

    assert (outcome.verb, outcome.is_charged) == ("cancel", False)
    assert (outcome.error_class, outcome.error_message) == (
        "Cancel",
        "not needed any more",
    )


@kinds
@pytest.mark.parametrize("failures", [0, 3])
@pytest.mark.parametrize(
    "error", [ValueError("on the way out"), psycopg.OperationalError("cut off")]
)
def test_j17_whatever_a_cancelled_handler_raises_it_is_not_retried(
    kind: str, failures: int, error: Exception
) -> None:
    def handler() -> None:
        assert not current_job().is_cancelled
        current_job()._requests.is_cancelled = True  # as another thread does
        assert current_job().is_cancelled
        raise error

    outcome = settled(run(kind, handler, failures=failures))

    assert (outcome.verb, outcome.is_charged) == ("cancel", False)
    assert outcome.error_class == type(error).__name__


@kinds
def test_j17_what_a_cancelled_handler_still_returns_is_its_result(kind: str) -> None:
    def handler() -> str:
        current_job()._requests.is_cancelled = True
        return "done"

    assert isinstance(run(kind, handler), Completed)


def test_a_coroutine_that_was_cancelled_says_so() -> None:
    async def handler() -> None:
        requests = current_job()._requests
        assert isinstance(requests, Interruptible)
        asyncio.get_running_loop().call_soon(requests.interrupt_task)
        await asyncio.sleep(30)

    outcome = settled(run("coroutine", handler))

    assert (outcome.verb, outcome.error_class) == ("cancel", "Cancelled")
    assert outcome.error_message == "somebody cancelled the job while it ran"


def test_an_awaited_task_that_was_cancelled_is_a_failure_not_an_endless_release() -> (
    None
):
    async def handler() -> None:
        inner = asyncio.ensure_future(asyncio.sleep(10))
        inner.cancel()
        await inner

    outcome = settled(run("coroutine", handler))

    assert (outcome.verb, outcome.is_charged) == ("retry", True)


@kinds
@pytest.mark.parametrize(
    "error",
    [
        psycopg.OperationalError("connection lost"),
        psycopg.errors.AdminShutdown(),
        psycopg.errors.TooManyConnections(),
        psycopg.errors.ReadOnlySqlTransaction(),
        InterfaceError("connection already closed"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_outage_hands_the_job_back_uncharged(kind: str, error: Exception) -> None:
    outcome = settled(run(kind, raiser(error), failures=3))

    assert (outcome.verb, outcome.is_charged) == ("hand_back", False)
    assert outcome.delay_seconds <= 60


@kinds
def test_an_outage_below_djangos_error_is_seen(kind: str) -> None:
    error = OperationalError("the connection is closed")
    error.__cause__ = psycopg.errors.AdminShutdown()

    assert settled(run(kind, raiser(error))).verb == "hand_back"


@kinds
def test_an_error_in_a_statement_is_the_jobs_own(kind: str) -> None:
    error = OperationalError("deadlock detected")
    error.__cause__ = psycopg.errors.DeadlockDetected()

    assert settled(run(kind, raiser(error))).verb == "retry"


@pytest.mark.parametrize(
    ("error", "failures", "verb"),
    [
        (ValueError(), 2, "retry"),
        (ValueError(), 3, "fail"),
        (SkipRetry(), 0, "fail"),
        (psycopg.OperationalError("connection lost"), 9, "hand_back"),
    ],
)
def test_the_verdict_on_an_error_is_open_to_adapters(
    error: Exception, failures: int, verb: str
) -> None:
    assert verdict(error, failures=failures, max_retries=3) == verb


@pytest.mark.parametrize(
    ("error", "verb"),
    [
        (ConnectionResetError(), "retry"),
        (TimeoutError(), "fail"),
        (FileNotFoundError(), "retry"),
        (ValueError(), "fail"),
        (json.JSONDecodeError("bad", "", 0), "fail"),
        (KeyError(), "retry"),
        (Retry(), "retry"),
        (Snooze(timedelta(1)), "snooze"),
        (psycopg.OperationalError("connection lost"), "hand_back"),
    ],
    ids=lambda value: getattr(type(value), "__name__", str(value)),
)
def test_a_task_says_for_each_class_of_errors_what_becomes_of_the_job(
    error: Exception, verb: str
) -> None:
    outcome = settled(run("choosy", raiser(error), failures=1))

    assert outcome.verb == verb
    assert outcome.until == (timedelta(hours=1) if verb == "retry" else None)
    if isinstance(error, ConnectionError):
        assert outcome.delay_seconds == 2


@kinds
def test_failure_051_nothing_that_a_failed_handler_held_stays(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # pytest keeps every record, and with it the error and its frames.
    monkeypatch.setattr(logging.getLogger("relay.worker"), "propagate", False)

    class Large:
        pass

    held: list[weakref.ref[Large]] = []

    def handler() -> None:
        large = Large()
        held.append(weakref.ref(large))
        raise ValueError

    outcomes = [run(kind, handler, failures=number % 4) for number in range(20)]
    gc.collect()

    assert len(outcomes) == len(held) == 20
    assert [one() for one in held] == [None] * 20


def test_max_retries_holds_whatever_the_backoff_says() -> None:
    assert settled(run("choosy", raiser(OSError()), failures=3)).verb == "fail"
    assert settled(run("choosy", raiser(Retry()), failures=3)).verb == "fail"


def test_a_retry_beyond_every_calendar_is_cut() -> None:
    outcome = settled(run("plain", raiser(Retry(after=timedelta.max))))

    assert outcome.verb == "retry"
    with pytest.raises(TypeError, match="give a timedelta"):
        Retry(after=10**15)  # type: ignore[arg-type]  # what an untyped caller does
    assert Retry(after=timedelta(days=-5)).after == timedelta(0)


def test_b10_an_unknown_task_is_handed_back_uncharged() -> None:
    job = claimed("plain")._replace(task="no.such.task", failures=3)
    executor = Executor(WORKER)

    outcome = settled(executor.run(job))

    assert not executor.is_async(job)
    assert (outcome.verb, outcome.is_charged) == ("hand_back", False)
    assert outcome.error_class == "UnknownTask"
    assert "no.such.task" in str(outcome.error_message)


@kinds
def test_failure_088_arguments_the_function_does_not_take_fail_that_job(
    kind: str,
) -> None:
    outcome = settled(run(kind, lambda: None, 1))

    assert (outcome.verb, outcome.error_class) == ("retry", "TypeError")


@kinds
def test_b10_arguments_that_python_cannot_hold_fail_that_job_at_once(kind: str) -> None:
    outcome = settled(run(kind, lambda: None, args=None))

    assert (outcome.verb, outcome.is_charged) == ("fail", True)


@pytest.mark.django_db(transaction=True)
@kinds
def test_a_model_instance_is_fetched_for_the_handler(kind: str) -> None:
    user = get_user_model().objects.create(username="ada")
    document = json.loads(encode_arguments((user,), {}))

    outcome = run(kind, lambda found: found.username, args=document)

    assert isinstance(outcome, Completed)
    assert outcome.result == '"ada"'


@pytest.mark.django_db(transaction=True)
@kinds
def test_a_model_instance_that_is_gone_fails_the_job_at_once(kind: str) -> None:
    user = get_user_model().objects.create(username="ada")
    document = json.loads(encode_arguments((user,), {}))
    user.delete()

    outcome = settled(run(kind, lambda found: found, args=document))

    assert (outcome.verb, outcome.error_class) == ("fail", "DecodeError")


@kinds
@pytest.mark.parametrize(
    ("value", "written"),
    [("a\x00b", "a"), ({"p": "\ud800"}, "p"), (float("nan"), "null")],
)
def test_failures_009_085_102_a_result_postgresql_refuses_is_changed_and_kept(
    kind: str, value: object, written: str
) -> None:
    outcome = run(kind, lambda: value)

    assert isinstance(outcome, Completed)
    assert written in outcome.result
    assert "\x00" not in outcome.result
    assert "\\u0000" not in outcome.result
    outcome.result.encode()


@kinds
def test_failure_073_a_result_that_is_no_json_completes_with_a_note(
    kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    outcome = run(kind, lambda: {(1, 2): object()})

    assert isinstance(outcome, Completed)
    assert "result not stored as returned" in caplog.text


@kinds
@pytest.mark.parametrize("text", ["bad\x00bytes", "caf\udce9"])
def test_failures_009_085_an_error_postgresql_refuses_is_shown_escaped(
    kind: str, text: str
) -> None:
    outcome = settled(run(kind, raiser(ValueError(text))))

    for found in (outcome.error_message, outcome.traceback):
        assert found is not None
        assert "\x00" not in found
        found.encode()
    assert str(outcome.error_message).startswith(text[:3])


@kinds
def test_an_error_whose_message_cannot_be_shown_is_still_an_error(kind: str) -> None:
    class Mute(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    outcome = settled(run(kind, raiser(Mute())))

    assert (outcome.verb, outcome.error_class) == ("retry", "Mute")


@kinds
def test_a_huge_message_is_cut(kind: str) -> None:
    outcome = settled(run(kind, raiser(ValueError("x" * 1_000_000))))

    assert len(str(outcome.error_message)) < 3_000
    assert len(str(outcome.traceback)) < 40_000


class Broken(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        raise RuntimeError("a filter of the project's")


@kinds
def test_a_log_that_raises_does_not_undo_what_a_handler_did(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger("relay.worker"), "isEnabledFor", bad_log)

    outcome = run(kind, lambda: 1)

    assert isinstance(outcome, Completed)


def bad_log(level: int) -> bool:
    raise ValueError("a filter of the project's")


@kinds
def test_an_error_around_the_handler_costs_no_slot(kind: str) -> None:
    logger = logging.getLogger("relay.worker")
    broken = Broken()
    level = logger.level
    logger.setLevel(logging.INFO)
    logger.addFilter(broken)
    try:
        with pytest.raises(RuntimeError):
            logger.info("shows that the filter raises")
        logger.setLevel(logging.WARNING)
        outcome = run(kind, raiser(ValueError("bad")))
    finally:
        logger.removeFilter(broken)
        logger.setLevel(level)

    assert settled(outcome).verb == "retry"


# --- what a handler can learn --------------------------------------------------------


@kinds
def test_current_job_tells_a_handler_what_it_runs(kind: str) -> None:
    seen = []

    run(
        kind,
        lambda: seen.append(current_job()),
        attempt=4,
        failures=2,
        queue="mail",
    )

    (job,) = seen
    assert (job.attempt, job.failures, job.max_retries) == (4, 2, 3)
    assert (job.queue, job.task) == ("mail", f"tests.executor.{kind}")
    assert job.worker_id == WORKER


@kinds
def test_current_job_tells_a_handler_its_deadline(kind: str) -> None:
    deadline = datetime(2030, 1, 2, tzinfo=UTC)
    seen = []

    run(kind, lambda: seen.append(current_job().deadline), deadline_at=deadline)

    assert seen == [deadline]


def test_current_job_is_known_to_what_a_coroutine_hands_to_threads_and_tasks() -> None:
    async def handler() -> list[Any]:
        return [
            (await sync_to_async(current_job)()).queue,
            (await asyncio.to_thread(current_job)).queue,
        ]

    outcome = run("coroutine", handler, queue="mail")

    assert isinstance(outcome, Completed)
    assert outcome.result == '["mail","mail"]'


@kinds
def test_no_job_runs_afterwards(kind: str) -> None:
    run(kind, lambda: None)

    with pytest.raises(RelayError, match="no job is running"):
        current_job()


# --- what a job leaves for the next --------------------------------------------------


@pytest.fixture
def in_slot(transactional_db: None) -> Iterator[Callable[[Callable[[], Any]], Any]]:
    """Call functions one after another in one thread, as a slot does."""
    import queue

    work: queue.SimpleQueue[Any] = queue.SimpleQueue()
    results: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def loop() -> None:
        while (function := work.get()) is not None:
            try:
                results.put((function(), None))
            except BaseException as error:
                results.put((None, error))
        connection.close()

    thread = threading.Thread(target=loop)
    thread.start()

    def call(function: Callable[[], Any]) -> Any:
        work.put(function)
        value, error = results.get(timeout=60)
        if error is not None:
            raise error
        return value

    yield call
    work.put(None)
    thread.join(60)


def test_failure_093_nothing_of_one_job_reaches_the_next(
    in_slot: Callable[[Callable[[], Any]], Any],
) -> None:
    def spoil() -> None:
        translation.activate("es")
        timezone.activate("Asia/Tokyo")
        VARIABLE.set("spoilt")

    def look() -> list[str]:
        return [
            translation.get_language(),
            timezone.get_current_timezone_name(),
            VARIABLE.get(),
        ]

    in_slot(lambda: run("plain", spoil))
    outcome = in_slot(lambda: run("plain", look))

    assert outcome.result == '["en-us","UTC","untouched"]'


def test_failure_093_nothing_of_one_coroutine_reaches_the_next() -> None:
    seen = []

    def spoil() -> None:
        translation.activate("es")
        VARIABLE.set("spoilt")

    def look() -> None:
        seen.append((translation.get_language(), VARIABLE.get()))

    async def both() -> None:
        global body
        executor = Executor(WORKER)
        from contextvars import Context

        for handler in (spoil, look):
            body = handler
            await asyncio.get_running_loop().create_task(
                executor.run_async(claimed("coroutine")), context=Context()
            )

    asyncio.run(both())

    assert seen == [("en-us", "untouched")]


def backend() -> int:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        number: int = cursor.fetchone()[0]
        return number


def test_a_slot_keeps_its_connection_from_job_to_job(
    in_slot: Callable[[Callable[[], Any]], Any],
) -> None:
    in_slot(lambda: connection.settings_dict.update(CONN_MAX_AGE=None))

    pids = [in_slot(lambda: run("plain", backend)).result for _ in range(3)]

    assert len(set(pids)) == 1


@pytest.mark.parametrize("way", ["atomic", "autocommit off", "BEGIN"])
def test_failure_093_a_transaction_left_open_is_rolled_back_and_its_connection_replaced(
    in_slot: Callable[[Callable[[], Any]], Any],
    way: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def leave_open() -> int:
        if way == "atomic":
            transaction.atomic().__enter__()
        elif way == "autocommit off":
            transaction.set_autocommit(False)
        with connection.cursor() as cursor:
            if way == "BEGIN":
                cursor.execute("BEGIN")
            cursor.execute("INSERT INTO relay_queue (name) VALUES ('left')")
        return backend()

    def look() -> list[int]:
        with connection.cursor() as cursor:
            cursor.execute("SELECT count(*) FROM relay_queue")
            return [backend(), cursor.fetchone()[0]]

    first = in_slot(lambda: run("plain", leave_open))
    second = in_slot(lambda: run("plain", look))

    assert isinstance(first, Completed)
    assert isinstance(second, Completed)
    assert second.result.endswith(",0]")
    assert not second.result.startswith(f"[{first.result},")
    assert "a job left a transaction open" in caplog.text


def test_failure_002_a_dropped_connection_is_replaced_before_the_next_job(
    in_slot: Callable[[Callable[[], Any]], Any],
) -> None:
    in_slot(
        lambda: connection.settings_dict.update(
            CONN_MAX_AGE=None, CONN_HEALTH_CHECKS=True
        )
    )
    before = in_slot(lambda: run("plain", backend))

    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_terminate_backend(%s, 60000)", [int(before.result)])
    after = in_slot(lambda: run("plain", backend))

    assert isinstance(after, Completed)
    assert after.result != before.result


@pytest.mark.django_db(transaction=True)
def test_a_coroutines_sessions_end_with_it() -> None:
    async def handler() -> int:
        return await sync_to_async(backend)()

    outcome = run("coroutine", handler)

    assert isinstance(outcome, Completed)
    number = int(outcome.result)

    def has_ended() -> bool:
        with connection.cursor() as cursor:
            cursor.execute("SELECT FROM pg_stat_activity WHERE pid = %s", [number])
            return cursor.fetchone() is None

    until(has_ended)
