"""What a page shows of stored documents: nothing under a secret's name."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.test import override_settings

from relay import SettingsError, sensitive
from relay.conf import read_settings
from relay.redaction import redact

PRETTY = """{
    "to": "ada",
    "list": [
        {
            "key": "old",
            "value": "AAAA",
            "__relay__": "sealed"
        },
        1
    ],
    "nested": {
        "API_Token": "s1",
        "pass": {
            "deep": [
                "s2"
            ]
        },
        "name": "n"
    },
    "cards": [
    ]
}"""


def test_what_stands_under_a_secrets_name_is_masked_with_all_below_it() -> None:
    document = json.loads(str(redact(PRETTY)))

    assert document == {
        "to": "ada",
        "list": [sensitive.MASK, 1],
        "nested": {"API_Token": "•••", "pass": "•••", "name": "n"},
        "cards": "•••",
    }


def test_a_document_that_is_cut_shows_nothing_of_a_secret_either() -> None:
    for end in range(len(PRETTY)):
        shown = str(redact(PRETTY[:end]))
        assert "s1" not in shown
        assert "s2" not in shown


def test_the_names_are_a_setting() -> None:
    with override_settings(RELAY={"REDACTED_NAMES": "^to$"}):
        shown = str(redact(PRETTY))

    assert "ada" not in shown
    assert "s2" in shown


@pytest.mark.parametrize("value", ["", "(", None, 7])
def test_names_that_are_no_pattern_are_refused(value: Any) -> None:
    with pytest.raises(SettingsError, match="REDACTED_NAMES"):
        read_settings({"REDACTED_NAMES": value})
