"""The rules of tags and metadata."""

from __future__ import annotations

from typing import Any

import pytest

from relay import ArgumentError, EncodeError, Task
from relay.labels import check_tags, encode_meta


def handler() -> None: ...


made: Task[[], None] = Task(handler, name="tests.labels", tags=("import", "eu"))


def test_a_job_has_the_tags_of_its_task_and_its_own_each_once() -> None:
    assert made.job().rare.tags == ("import", "eu")
    assert made.using(tags=["eu", "run-7"]).job().rare.tags == ("import", "eu", "run-7")


@pytest.mark.parametrize(
    "tags",
    [
        "import",
        b"bytes",
        {"set"},
        7,
        [7],
        [""],
        [" a"],
        ["a\n"],
        ["a" * 101],
        ["\x00"],
        ["\udc80"],
        [f"t{number}" for number in range(21)],
    ],
)
def test_what_is_no_tag_is_refused(tags: Any) -> None:
    with pytest.raises(ArgumentError, match="tag"):
        check_tags(tags)
    with pytest.raises(ArgumentError, match="tag"):
        made.using(tags=tags)


def test_a_tag_may_be_any_text() -> None:
    assert check_tags(["Kunde: Müller & Söhne", "日本"]) == (
        "Kunde: Müller & Söhne",
        "日本",
    )


def test_a_task_s_tags_count_among_the_most() -> None:
    own = [f"t{number}" for number in range(19)]

    with pytest.raises(ArgumentError, match="21 tags"):
        made.using(tags=own).job()
    assert len(made.using(tags=own[:18]).job().rare.tags) == 20


@pytest.mark.parametrize("meta", [None, {}])
def test_no_metadata_is_stored_as_none(meta: Any) -> None:
    assert encode_meta(meta) is None


@pytest.mark.parametrize(
    ("meta", "said"),
    [
        ([1], "give a dict"),
        ("tenant", "give a dict"),
        ({"row_keep_s": 1}, "relay uses itself"),
        ({"text": "é" * 2_048}, "4,107 bytes"),
    ],
)
def test_metadata_that_is_none_is_refused(meta: Any, said: str) -> None:
    with pytest.raises(ArgumentError, match=said):
        made.using(meta=meta)


@pytest.mark.parametrize(
    ("meta", "path"),
    [
        ({"a": [object()]}, r"meta\['a'\]\[0\]"),
        ({1: 2}, "meta"),
        ({"a\x00": 1}, "meta"),
    ],
)
def test_metadata_that_cannot_be_carried_names_its_path(meta: Any, path: str) -> None:
    with pytest.raises(EncodeError, match=path):
        made.using(meta=meta)


@pytest.mark.parametrize(
    "options",
    [
        {"outside_transaction": 1},
        {"outside_transaction": True, "on_commit": "default"},
    ],
)
def test_outside_a_transaction_is_true_or_false_and_not_after_a_commit(
    options: Any,
) -> None:
    with pytest.raises(ArgumentError, match="outside_transaction"):
        made.using(**options)
