"""A request: what it says of its job, and what is rare."""

from __future__ import annotations

import copy
import pickle
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from relay import Task, Unique, requests
from relay.ids import uuid7
from relay.requests import JobRequest

CANARY = "4111-canary"


def handler(card: object = None, **more: object) -> None: ...


plain: Task[..., None] = Task(handler, name="tests.requests")

RARE: dict[str, dict[str, Any]] = {
    "unique": {"unique": Unique()},
    "timeout": {"timeout": timedelta(seconds=1)},
    "tags": {"tags": ["a"]},
    "sensitive": {"sensitive": ["card"]},
}
RARE_OF_ONE: dict[str, dict[str, Any]] = {
    "run_at": {"run_at": datetime(2999, 1, 1, tzinfo=UTC)},
    "run_in": {"run_in": timedelta(0)},
    "id": {"id": uuid7()},
    "deadline": {"deadline": timedelta(hours=1)},
    "on_commit": {"on_commit": "default"},
    "meta": {"meta": {"a": 1}},
    "outside": {"outside_transaction": True},
}
NOT_RARE: dict[str, dict[str, Any]] = {
    "nothing": {},
    "queue": {"queue": "mail"},
    "priority": {"priority": 3},
    "max_retries": {"max_retries": 0},
}
EMPTY: dict[str, dict[str, Any]] = {
    "unique": {"unique": None},
    "timeout": {"timeout": None},
    "tags": {"tags": []},
    "sensitive": {"sensitive": []},
    "meta": {"meta": {}},
    "run_in": {"run_in": None},
}


@pytest.mark.parametrize("options", RARE.values(), ids=RARE)
def test_a_task_with_a_rare_option_has_no_plain_jobs(options: dict[str, Any]) -> None:
    made: Task[..., None] = Task(handler, name="tests.requests.rare", **options)

    assert made.has_rare_options
    assert not made.job(card=1).is_plain


@pytest.mark.parametrize(
    "options", [*RARE.values(), *RARE_OF_ONE.values()], ids=[*RARE, *RARE_OF_ONE]
)
def test_a_rare_option_of_one_call_makes_its_job_rare(options: dict[str, Any]) -> None:
    assert not plain.has_rare_options
    assert not plain.using(**options).job(card=1).is_plain


@pytest.mark.parametrize("options", NOT_RARE.values(), ids=NOT_RARE)
def test_other_options_leave_a_job_plain(options: dict[str, Any]) -> None:
    made: Task[..., None] = Task(handler, name="tests.requests.other", **options)

    assert not made.has_rare_options
    assert made.job(card=1).is_plain
    assert plain.using(**options).job(card=1).is_plain


@pytest.mark.parametrize("options", EMPTY.values(), ids=EMPTY)
def test_a_rare_option_that_says_nothing_leaves_a_job_plain(
    options: dict[str, Any],
) -> None:
    assert plain.using(**options).job(card=1).is_plain


@pytest.mark.parametrize(
    "options",
    [{"timeout": timedelta(seconds=1)}, {"unique": Unique()}],
    ids=["timeout", "unique"],
)
def test_what_a_task_has_a_call_can_take_away(options: dict[str, Any]) -> None:
    made: Task[..., None] = Task(handler, name="tests.requests.taken", **options)

    assert made.using(**dict.fromkeys(options)).job(card=1).is_plain


def test_a_name_without_code_makes_plain_jobs_too() -> None:
    made = requests.request_by_name("tests:name", None, (1,), {"a": 2}, {})

    assert made.is_plain
    assert made.args == '{"args":[1],"kwargs":{"a":2}}'


@pytest.mark.parametrize("again", [copy.copy, copy.deepcopy], ids=["copy", "deep"])
def test_a_copy_makes_the_same_job(again: Any) -> None:
    for request in (plain.job(card=1), plain.using(tags=["a"]).job(card=1)):
        made, other = request.new_job(), again(request).new_job()

        assert (other.args, other.tags, other.is_plain) == (
            made.args,
            made.tags,
            made.is_plain,
        )


def test_a_pickled_request_makes_the_same_job() -> None:
    request: JobRequest[None] = pickle.loads(pickle.dumps(plain.job(card=1)))

    assert request.new_job().args == '{"args":[],"kwargs":{"card":1}}'
    assert request.new_job().is_plain


def test_a_request_shows_neither_arguments_nor_meta() -> None:
    bound = plain.using(meta={"trace": CANARY}, tags=["shown"])
    request = bound.job(CANARY)

    for text in (repr(request), str(request), f"{request}"):
        assert CANARY not in text
        assert "tests.requests" in text
        assert "shown" in text
    assert CANARY not in repr(plain.job(CANARY))
