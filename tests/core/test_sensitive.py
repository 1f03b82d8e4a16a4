"""Sensitive arguments: which they are, how they are encrypted, what is never told."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from django.test import override_settings

from relay import (
    ArgumentError,
    DecodeError,
    EncodeError,
    MissingKey,
    SettingsError,
    Unique,
    codec,
    sensitive,
    sensitive_places,
    task,
)
from relay.conf import Settings, get_settings, read_settings
from relay.ids import uuid7
from relay.tasks import Task
from relay.worker.verdict import verdict

CANARY = "canary-4111-1111"


def key(number: int) -> str:
    return base64.b64encode(bytes([number]) * 32).decode()


OLD, NEW = {"old": key(1)}, {"new": key(2), "old": key(1)}


@pytest.fixture(autouse=True)
def keys() -> Iterator[None]:
    with override_settings(RELAY={"ENCRYPTION_KEYS": OLD}):
        yield


@task(name="tests.sensitive.pay", sensitive=("card", "token"))
def pay(order: int, card: Any, *, token: str = "", note: str = "") -> None: ...


@task(name="tests.sensitive.all", sensitive=True)
def login(user: str, password: Any) -> str:
    return user


@task(name="tests.sensitive.open", sensitive=("rest", "more", "named"))
def collect(first: int, *rest: Any, **more: Any) -> None: ...


@task(name="tests.sensitive.plain")
def plain(value: Any) -> None: ...


def sealed(request: Any) -> tuple[Any, dict[str, Any]]:
    job = request.new_job()
    return job.id, json.loads(job.args)


# --- which arguments -----------------------------------------------------------------


def test_the_named_arguments_are_encrypted_and_the_others_are_not() -> None:
    job_id, document = sealed(pay.job(7, CANARY, token="tok-1", note="a gift"))

    assert CANARY not in json.dumps(document)
    assert "tok-1" not in json.dumps(document)
    assert document["args"][0] == 7
    assert document["kwargs"]["note"] == "a gift"
    assert sensitive.decode_arguments(document, job_id) == (
        [7, CANARY],
        {"token": "tok-1", "note": "a gift"},
    )


def test_a_named_argument_is_found_however_it_is_passed() -> None:
    _, document = sealed(pay.job(order=7, card=CANARY))

    assert document["kwargs"]["order"] == 7
    assert sensitive.is_sealed(document["kwargs"]["card"])


def test_true_encrypts_all_arguments() -> None:
    job_id, document = sealed(login.job("ada", password=[CANARY]))

    assert all(map(sensitive.is_sealed, document["args"]))
    assert all(map(sensitive.is_sealed, document["kwargs"].values()))
    assert sensitive.decode_arguments(document, job_id) == (
        ["ada"],
        {"password": [CANARY]},
    )


def test_names_reach_open_parameters_and_keywords_of_any_name() -> None:
    _, document = sealed(collect.job(1, "two", "three", named="four", other="five"))

    assert document["args"][0] == 1
    assert all(map(sensitive.is_sealed, document["args"][1:]))
    assert all(map(sensitive.is_sealed, document["kwargs"].values()))


def test_a_job_without_sensitive_arguments_is_stored_as_ever() -> None:
    _, document = sealed(plain.job(1))

    assert document == {"args": [1], "kwargs": {}}


def test_a_name_that_no_argument_has_is_refused_at_decoration() -> None:
    with pytest.raises(ArgumentError, match="has no argument crad"):
        Task(pay.function, name="tests.sensitive.slip", sensitive=("crad",))


@pytest.mark.parametrize("value", ["card", None, False, 7, [7], CANARY])
def test_an_option_that_names_nothing_is_refused_without_telling_it(value: Any) -> None:
    with pytest.raises(ArgumentError, match="sensitive") as refused:
        task(sensitive=value)
    assert CANARY not in str(refused.value)


def test_an_enqueue_may_add_names_and_take_none_away() -> None:
    _, document = sealed(pay.using(sensitive=("note",)).job(7, CANARY, note="n"))
    assert sensitive.is_sealed(document["kwargs"]["note"])
    assert sensitive.is_sealed(document["args"][1])

    _, document = sealed(pay.using(sensitive=()).job(7, CANARY))
    assert sensitive.is_sealed(document["args"][1])

    with pytest.raises(ArgumentError, match="has no argument nte"):
        pay.using(sensitive=("nte",)).job(7, CANARY)


@pytest.mark.parametrize(
    "unique",
    [
        Unique(),
        Unique(on=("order", "card")),
        Unique(key="k", on_conflict="replace"),
    ],
)
def test_a_unique_key_that_would_tell_or_misplace_a_value_is_refused(
    unique: Unique,
) -> None:
    with pytest.raises(ArgumentError, match="sensitive arguments"):
        Task(pay.function, name="tests.sensitive.u", sensitive=("card",), unique=unique)
    with pytest.raises(ArgumentError, match="sensitive arguments"):
        pay.using(unique=unique).job(7, CANARY)


def test_a_unique_key_of_other_arguments_is_allowed() -> None:
    assert pay.using(unique=Unique(on=("order",))).job(7, CANARY).rare.unique


# --- encryption ----------------------------------------------------------------------


def test_the_same_value_is_encrypted_differently_each_time() -> None:
    _, first = sealed(pay.job(7, CANARY))
    _, second = sealed(pay.job(7, CANARY))

    assert first["args"][1]["value"] != second["args"][1]["value"]


def test_an_envelope_cannot_be_read_in_another_job() -> None:
    _, document = sealed(pay.job(7, CANARY))

    with pytest.raises(DecodeError, match="moved here from another job"):
        sensitive.decode_arguments(document, uuid7())


def test_an_envelope_cannot_be_read_as_another_argument_or_as_the_result() -> None:
    job_id, document = sealed(pay.job(7, CANARY, token="tok"))
    card, token = document["args"][1], document["kwargs"]["token"]
    document["args"][1], document["kwargs"]["token"] = token, card

    with pytest.raises(DecodeError, match=re.escape("args[1] cannot be decrypted")):
        sensitive.decode_arguments(document, job_id)
    with pytest.raises(DecodeError, match="result cannot be decrypted"):
        sensitive.decode_result(card, job_id)


@pytest.mark.parametrize(
    "change",
    [{"value": "AAAA"}, {"value": "%"}, {"value": None}, {"key": 7}],
)
def test_an_envelope_that_was_altered_is_refused(change: dict[str, Any]) -> None:
    job_id, document = sealed(pay.job(7, CANARY))
    document["args"][1] |= change

    with pytest.raises(DecodeError, match="cannot be decrypted"):
        sensitive.decode_arguments(document, job_id)


def test_one_bit_changed_in_the_ciphertext_is_noticed() -> None:
    job_id, document = sealed(pay.job(7, CANARY))
    data = bytearray(base64.b64decode(document["args"][1]["value"]))
    data[-1] ^= 1
    document["args"][1]["value"] = base64.b64encode(data).decode()

    with pytest.raises(DecodeError, match="altered"):
        sensitive.decode_arguments(document, job_id)


def test_an_envelope_outside_a_document_marked_as_sealed_is_not_taken_for_a_value() -> (
    None
):
    job_id, document = sealed(pay.job(7, CANARY))
    del document["sealed"]

    with pytest.raises(DecodeError):
        sensitive.decode_arguments(document, job_id)


def test_a_callers_value_cannot_pass_for_an_envelope() -> None:
    _, document = sealed(pay.job(7, CANARY))
    forged = document["args"][1]

    job_id, copied = sealed(pay.job(7, {"inner": forged}))

    assert sensitive.decode_arguments(copied, job_id)[0][1] == {"inner": forged}


@pytest.mark.parametrize("value", [None, 0, "", [], {"a": [1]}, b"\x00", 1.5, "\u00e9"])
def test_every_value_comes_back(value: Any) -> None:
    job_id, document = sealed(pay.job(7, value))

    assert sensitive.decode_arguments(document, job_id)[0][1] == value


# --- keys ----------------------------------------------------------------------------


def test_after_a_rotation_the_new_key_encrypts_and_both_decrypt() -> None:
    job_id, before = sealed(pay.job(7, CANARY))

    with override_settings(RELAY={"ENCRYPTION_KEYS": NEW}):
        new_id, after = sealed(pay.job(7, CANARY))
        assert after["args"][1]["key"] == "new"
        assert sensitive.decode_arguments(before, job_id)[0][1] == CANARY
        assert sensitive.decode_arguments(after, new_id)[0][1] == CANARY

    with pytest.raises(MissingKey, match="'new' is not in") as missing:
        sensitive.decode_arguments(after, new_id)
    assert missing.value.key_id == "new"
    assert verdict(missing.value, failures=99, max_retries=0) == "hand_back"


def test_reencrypting_takes_the_current_key_and_does_nothing_twice() -> None:
    job_id, document = sealed(pay.job(7, CANARY))
    result, _ = sensitive.encode_result(CANARY, job_id, is_sensitive=True)

    assert sensitive.reseal_arguments(document, job_id, job_id) is None
    with override_settings(RELAY={"ENCRYPTION_KEYS": NEW}):
        made = sensitive.reseal_arguments(document, job_id, job_id)
        again = sensitive.reseal_result(json.loads(result), job_id)
        assert made is not None
        assert again is not None
        assert made["args"][1]["key"] == again["key"] == "new"
        assert sensitive.decode_arguments(made, job_id)[0][1] == CANARY
        assert sensitive.decode_result(again, job_id) == CANARY
        assert sensitive.reseal_arguments(made, job_id, job_id) is None
        assert sensitive.reseal_result(again, job_id) is None


def test_without_a_key_an_enqueue_is_refused() -> None:
    with (
        override_settings(RELAY={}),
        pytest.raises(SettingsError, match="ENCRYPTION_KEYS"),
    ):
        pay.job(7, CANARY).new_job()


def test_without_the_library_a_sensitive_task_is_refused_where_it_is_declared(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sensitive_places, "find_spec", lambda name: None)

    with pytest.raises(SettingsError, match=re.escape("django-relay[crypto]")):
        Task(pay.function, name="tests.sensitive.bare", sensitive=("card",))
    Task(pay.function, name="tests.sensitive.bare")


def test_a_callable_gives_a_key_once() -> None:
    calls: list[int] = []

    def fetch() -> bytes:
        calls.append(1)
        return bytes(32)

    with override_settings(RELAY={"ENCRYPTION_KEYS": {"vault": fetch}}):
        job_id, document = sealed(pay.job(7, CANARY))
        assert sensitive.decode_arguments(document, job_id)[0][1] == CANARY
        sealed(pay.job(7, CANARY))

    assert calls == [1]


@pytest.mark.parametrize("value", [CANARY, None, b"short"])
def test_a_callable_that_gives_no_key_is_named_and_its_value_is_not(value: Any) -> None:
    with override_settings(RELAY={"ENCRYPTION_KEYS": {"vault": lambda: value}}):
        with pytest.raises(MissingKey, match="returned no key") as missing:
            pay.job(7, "x").new_job()
        assert CANARY not in str(missing.value)


def test_a_callable_that_raises_is_named_and_its_message_is_not() -> None:
    def fetch() -> bytes:
        raise OSError(CANARY)

    with override_settings(RELAY={"ENCRYPTION_KEYS": {"vault": fetch}}):
        with pytest.raises(MissingKey, match="raised OSError") as missing:
            pay.job(7, "x").new_job()
        assert CANARY not in str(missing.value)
        assert missing.value.__context__ is None


def test_keys_may_come_as_one_text_of_the_environment() -> None:
    text = f"new:{key(2)}, old:{key(1)}"

    assert dict(read_settings({"ENCRYPTION_KEYS": text}).encryption_keys) == NEW


@pytest.mark.parametrize(
    "value",
    [
        {"k": CANARY},
        {"k": base64.b64encode(CANARY.encode()).decode()},
        {"k": 7},
        {f"{CANARY}!": key(1)},
        [CANARY],
        CANARY,
        f"k:{CANARY}",
        f"k:{key(1)},k:{key(2)}",
    ],
)
def test_keys_that_cannot_be_used_are_refused_and_not_shown(value: Any) -> None:
    with pytest.raises(SettingsError, match="ENCRYPTION_KEYS") as refused:
        read_settings({"ENCRYPTION_KEYS": value})
    assert CANARY not in str(refused.value)


def test_no_key_stands_in_the_repr_of_the_settings() -> None:
    assert key(1) not in repr(get_settings())


# --- nothing is told -----------------------------------------------------------------


def test_a_request_and_a_job_show_no_value() -> None:
    request = pay.job(7, CANARY)

    assert CANARY not in repr(request)
    assert CANARY not in repr(request.new_job())


class Odd:
    def __repr__(self) -> str:
        return CANARY


@pytest.mark.parametrize(
    "value",
    [Odd(), {CANARY: Odd()}, {Odd(): 1}, f"{CANARY}\x00", [[f"{CANARY}\ud800"]]],
)
def test_an_error_names_the_argument_and_nothing_in_it(value: Any) -> None:
    with pytest.raises(EncodeError) as refused:
        pay.job(7, value)

    assert refused.value.path == "args[1]"
    assert CANARY not in str(refused.value)
    assert refused.value.__context__ is None

    with pytest.raises(EncodeError, match=re.escape("kwargs['token']")) as refused:
        pay.job(7, "x", token=value)
    assert CANARY not in str(refused.value)


def test_an_error_of_another_argument_says_all() -> None:
    with pytest.raises(EncodeError, match="is nan"):
        pay.job(7, "x", note=float("nan"))  # type: ignore[arg-type] # on purpose


def test_arguments_that_do_not_fit_are_named_without_their_values() -> None:
    with pytest.raises(ArgumentError) as refused:
        pay.job(7, CANARY, "too many")  # type: ignore[call-arg] # on purpose
    assert CANARY not in str(refused.value)


@pytest.mark.parametrize("value", [CANARY, 4111111111111111, {"n": [CANARY]}, "a'b\n"])
def test_what_a_handlers_error_quotes_is_masked(value: Any) -> None:
    job_id, document = sealed(pay.job(7, value))
    leaf = value["n"][0] if isinstance(value, dict) else value

    [text] = sensitive.mask_text(document, job_id, f"bad card {leaf}: {leaf!r}")

    assert str(leaf) not in text
    assert text.startswith(f"bad card {sensitive.MASK}")


def test_the_lines_of_a_value_are_masked_wherever_they_stand() -> None:
    job_id, document = sealed(pay.job(7, "-----BEGIN KEY-----\r\n  MIIEow==\r\n"))

    [text] = sensitive.mask_text(
        document, job_id, "stdout: -----BEGIN KEY-----\nstdout:   MIIEow==\nstdout: END"
    )

    assert text == "stdout: •••\nstdout:   •••\nstdout: END"


def test_a_result_is_encrypted_and_its_note_tells_nothing() -> None:
    job_id = uuid7()

    text, note = sensitive.encode_result({"a": CANARY}, job_id, is_sensitive=True)
    assert CANARY not in text
    assert note is None
    assert sensitive.decode_result(json.loads(text), job_id) == {"a": CANARY}

    text, note = sensitive.encode_result({Odd(): 1}, job_id, is_sensitive=True)
    assert note is not None
    assert CANARY not in note


def test_a_result_that_cannot_be_encrypted_is_dropped_with_a_note() -> None:
    with override_settings(RELAY={}):
        text, note = sensitive.encode_result(CANARY, uuid7(), is_sensitive=True)

    assert text == "null"
    assert note is not None
    assert "ENCRYPTION_KEYS" in note


# --- limits --------------------------------------------------------------------------


def test_the_limits_of_payloads_are_settings() -> None:
    deep: Any = [[[[1]]]]

    with override_settings(RELAY={"MAX_ARGUMENT_BYTES": 40, "MAX_DEPTH": 3}):
        plain.job("x" * 10)
        with pytest.raises(EncodeError, match="MAX_ARGUMENT_BYTES"):
            plain.job("x" * 40)
        with pytest.raises(EncodeError, match="more than 3 deep"):
            plain.job(deep)


def test_the_limits_of_results_are_settings() -> None:
    with override_settings(RELAY={"MAX_RESULT_BYTES": 40}):
        text, note = sensitive.encode_result("x" * 40, uuid7(), is_sensitive=False)

    assert text == "null"
    assert note is not None
    assert "above 40" in note


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("MAX_ARGUMENT_BYTES", 0),
        ("MAX_ARGUMENT_BYTES", 10**9),
        ("MAX_RESULT_BYTES", "1"),
        ("MAX_DEPTH", 129),
    ],
)
def test_limits_out_of_range_are_refused(name: str, value: Any) -> None:
    with pytest.raises(SettingsError, match=name):
        read_settings({name: value})


def test_the_defaults_of_the_limits_are_the_codecs() -> None:
    settings = Settings()

    assert settings.max_argument_bytes == codec.ARGUMENTS_LIMIT_BYTES
    assert settings.max_result_bytes == codec.RESULT_LIMIT_BYTES
