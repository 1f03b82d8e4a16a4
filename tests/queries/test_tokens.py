"""What is told of API tokens."""

from __future__ import annotations

import pytest
from django.db.models import F

from relay import queries
from relay.exceptions import NotFound
from relay.ids import uuid7
from relay.models import ApiToken
from relay.operations import Actor, create_token
from relay.queries.documents import TokenDocument
from tests.queries.documents import check

pytestmark = pytest.mark.django_db
ME = Actor(name="ada", source="cli")


def test_a_token_tells_all_but_its_secret() -> None:
    made = create_token(ME, "ci", scopes=["read"], queues=["mail"])
    ApiToken.objects.update(expires_at=F("created_at"))

    found = queries.get_token(ME, str(made.token.pk))

    check(found, TokenDocument)
    assert (found["name"], found["state"]) == ("ci", "expired")
    assert (found["scopes"], found["queues"]) == (["read"], ["mail"])
    assert made.secret[10:] not in repr(found)
    assert queries.list_tokens(ME)["results"] == [found]


@pytest.mark.parametrize("text", ["7", "", str(uuid7())])
def test_a_token_that_is_not_there_is_not_found(text: str) -> None:
    with pytest.raises(NotFound):
        queries.get_token(ME, text)
